"""`attnperf kernel`: runs one kernel for a profiler, and compiles kernels ahead."""

GROUP = "deeper"
ORDER = 200
SUMMARY = "run | build: one backend for a profiler, or HIP kernels ahead"
DESCRIPTION = "Runs one backend on one workload for profilers and debuggers, or compiles the HIP kernels ahead."
EPILOG = """examples:
  attnperf kernel run hip.flash --workload s=512,d=64,h=8
  attnperf kernel build --arch gfx942
"""
