"""pytest-attnperf: proves attention kernels right, times them, and gates pull requests on both."""

__version__ = "0.1.0"
