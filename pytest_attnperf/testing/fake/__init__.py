"""A device, backends and faults that are scripted: no torch, no GPU."""
