"""What `sweep_configs.py` tries of each kernel: size classes, the workloads that stand for them, and candidates."""
