"""Softmax, RMSNorm and LayerNorm over long rows, shared by the programs of a cluster."""
