"""Launches a Triton kernel that is compiled for sm_90 through a driver that loads nothing, while a case is watched.

Started by the test beside it, in a process in which Triton does not interpret; prints a JSON line of what was seen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from pytest_attnperf.measure.ran_code import RanCode, record_code
from pytest_attnperf.records import Launch

MAX_THREADS = 1024


@triton.jit
def scaled_copy_kernel(x, y, n, SCALE: tl.constexpr, BLOCK: tl.constexpr):
    """y = SCALE * x."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * SCALE, mask=at < n)


class Loader:
    """Gives handles 1, 2, 3 ..."""

    loaded = 0

    def load_binary(self, *what: Any) -> tuple[int, ...]:
        """Module, function, registers, spills and, from Triton 3.4 on, the most threads."""
        Loader.loaded += 1
        later = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 4)
        return (1, Loader.loaded, 32, 0, *([MAX_THREADS] if later else []))

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Of an H200, what Triton asks for."""
        return {"max_shared_mem": 232448, "max_num_regs": 65536, "multiprocessor_count": 132, "warpSize": 32}

    def unload_module(self, module: int) -> None:
        """Nothing was loaded."""


class NoDevice:
    """A driver of Triton's."""

    utils = Loader()

    @staticmethod
    def launcher_cls(source: Any, metadata: Any) -> Any:
        """Launches nothing."""
        return lambda *arguments: None

    def get_current_target(self) -> GPUTarget:
        """Hopper."""
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        """The first."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """The default one."""
        return 0


@dataclass
class Tensor:
    """What Triton asks of one."""

    dtype: str = "float32"

    def data_ptr(self) -> int:
        """Aligned."""
        return 4096


def main() -> None:
    """Two versions of one shape, launched three times, and one that was compiled first and launched by itself."""
    driver.set_active(NoDevice())
    x, y, ran = Tensor(), Tensor(), RanCode()
    with record_code(ran):
        for scale in (2.0, 3.0, 2.0):
            scaled_copy_kernel[(4,)](x, y, 512, SCALE=scale, BLOCK=128, num_warps=4)
        compiled = scaled_copy_kernel.warmup(x, y, 512, SCALE=4.0, BLOCK=128, num_warps=8, grid=(1,))
        [before] = ran.identify_launches([Launch("scaled_copy_kernel", block=(256, 1, 1))])
        compiled[(4, 1, 1)](x, y, 512, 4.0, 128)
    scaled_copy_kernel[(4,)](x, y, 512, SCALE=5.0, BLOCK=128, num_warps=2)
    small, large, later = (Launch("scaled_copy_kernel", block=(threads, 1, 1)) for threads in (128, 256, 64))
    by_handle = ran.identify_launches([small, small], [1, 2])
    by_shape = ran.identify_launches([small, large, later])
    code = ran.encode_objects([*by_handle, *by_shape])
    print(
        json.dumps(
            {
                "triton": triton.__version__,
                "before": before.object_id,
                "by_handle": [launch.object_id for launch in by_handle],
                "by_shape": [launch.object_id for launch in by_shape],
                "unknown": ran.build_unknown_entry([later]),
                "code": code,
            }
        )
    )


if __name__ == "__main__":
    main()
