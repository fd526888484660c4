"""Softmax, RMSNorm and LayerNorm over rows."""
