"""How good gates are: what `gate_quality.py` measures in processes, and how each tool's rule decides from that."""
