"""What `kernel_ratios.py` compares."""
