"""Prints as JSON what Triton's kernels and driver do in a process that interprets and has begun to.

Triton decides at import whether it interprets, so this is a process of its own, with TRITON_INTERPRET=1 from outside.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pytest_attnperf.measure import interpreting

interpreting.start_interpreting()

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402

SEEN: list[int] = []


def fits(configs: list[Any], named: dict[str, Any], **kwargs: Any) -> list[Any]:
    """Leave out tiles of more than 64."""
    return [config for config in configs if config.kwargs["BLOCK"] <= 64]


def of_a_gpu(**kwargs: Any) -> float:
    """Estimate a time from what only a GPU has."""
    return float(triton.runtime.driver.active.utils.get_device_properties(0)["mem_clock_rate"])


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}) for block in (128, 64, 32)],
    key=["count"],
    prune_configs_by={"early_config_prune": fits, "perf_model": of_a_gpu, "top_k": 1},
)
@triton.heuristics({"HALF": lambda args: SEEN.append(args["BLOCK"]) or args["BLOCK"] // 2})
@triton.jit
def scaled(x, y, count, factor, BLOCK: tl.constexpr, HALF: tl.constexpr):
    """Multiply by a factor, which a compiled kernel has as a float32."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + place, tl.load(x + place, mask=place < count) * factor.to(tl.float32), mask=place < count)


@triton.jit
def of_library(x, y, BLOCK: tl.constexpr):
    """Compute some functions of libdevice in a row."""
    value = libdevice.rsqrt(libdevice.pow(tl.load(x + tl.arange(0, BLOCK)), 2.0))
    tl.store(y + tl.arange(0, BLOCK), libdevice.tanh(value))


@triton.jit
def unknown(x, y, BLOCK: tl.constexpr):
    """Ask for a function of libdevice that numpy lacks."""
    tl.store(y + tl.arange(0, BLOCK), libdevice.erfcx(tl.load(x + tl.arange(0, BLOCK))))


@triton.jit
def loop_index(x, y, BLOCK: tl.constexpr):
    """Convert the index of a loop, which is a tensor where it is compiled."""
    for step in range(2):
        tl.store(y + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)) * step.to(tl.float32))


@triton.jit
def misspelt(x, y, BLOCK: tl.constexpr):
    """Ask a tensor for what none has."""
    tl.store(y + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)).twice())


@triton.jit
def asserting(x, y, BLOCK: tl.constexpr):
    """Hold a tile for larger than it is."""
    tl.static_assert(BLOCK > 64, "BLOCK is too small")


def raised(work: Callable[[], Any]) -> list[str]:
    """Type and text of what it raises where a case runs interpreted."""
    from pytest_attnperf.measure.not_interpreted import translate_errors

    try:
        with translate_errors(True):
            work()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return []


def launched(kernel: Any, dtype: torch.dtype = torch.float32) -> list[str]:
    """What a kernel of one program raises."""
    x = torch.arange(1, 17, dtype=dtype)
    return raised(lambda: kernel[(1,)](x, torch.empty_like(x), BLOCK=16))


def facts() -> dict[str, Any]:
    """What is asserted outside."""
    x = torch.arange(1, 17, dtype=torch.float32)
    y, z = torch.empty_like(x), torch.empty_like(x)
    seen = interpreting.Interpreted()
    with interpreting.watch_kernels(seen):
        before = seen.seen
        with torch.cuda.device(x.device):
            scaled[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), 0.5)
    of_library[(1,)](x, z, BLOCK=16)
    driver = triton.runtime.driver.active
    return {
        "watched": [before, seen.seen],
        "scaled": torch.equal(y, x / 2),
        "blocks": SEEN,
        "library": torch.allclose(z, torch.tanh(1 / x)),
        "unknown": launched(unknown),
        "half": launched(of_library, torch.float16),
        "loop_index": launched(loop_index),
        "misspelt": launched(misspelt),
        "asserting": launched(asserting),
        "device": str(driver.get_active_torch_device()),
        "target": [driver.get_current_target().backend, driver.get_current_target().arch],
        "stream": raised(lambda: driver.get_current_stream(0)),
        "warmed": raised(lambda: of_library.warmup(x, y, BLOCK=16, grid=(1,)).n_regs),
        "name": raised(lambda: torch.cuda.get_device_name(0)),
    }


if __name__ == "__main__":
    json.dump(facts(), sys.stdout)
