"""The rotary embedding of q and k."""
