"""What `attnperf report` does besides showing a run: a file per mode, imported only in that mode."""
