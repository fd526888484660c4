"""The conftest.py of the project in which `fault_campaign.py --gpu` breaks a real device.

`faults.json` beside it says {"dry": false, "backends": {"bad.illegal": "illegal", "good.a": ""}}. Every backend
computes torch.softmax; one with a fault breaks its process or its device before. Every kernel here ends by itself: the
one that spins does so for SPIN_SECONDS at most.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_attnperf.backends import Backend, Prepared, Registry, Tensors
from pytest_attnperf.measure import flight_recorder
from pytest_attnperf.workloads.softmax import Softmax

FILE = Path(__file__).with_name("faults.json")
SPIN_SECONDS = 17
"""Longer than the case's limit of 12 s; and over within the 10 s that a killed process is given to end, should the
driver wait for the kernel."""
FAR_MEGAS = -(1 << 18)
"""Times 2^20 elements of 4 bytes: 1 TiB before the tensor, mapped for nobody."""
FAR_TOO_MUCH = 1 << 44

try:
    import triton
    import triton.language as tl
    from triton.language.extra.cuda import globaltimer
except ImportError:
    triton = None
else:

    @triton.jit
    def illegal_store_kernel(pointer, megas):
        """Store where nothing is mapped, unless `megas` is 0."""
        tl.store(pointer + tl.cast(megas, tl.int64) * 1048576, 1.0)

    @triton.jit(debug=True)
    def asserting_kernel(pointer):
        """Assert what is so for a tensor of zeros only."""
        value = tl.load(pointer)
        tl.device_assert(value == 0.0, "not zero")
        tl.store(pointer, value)

    @triton.jit
    def spinning_kernel(pointer, milliseconds):
        """Spin until the clock has moved on by so much; bounded by that, and by the number of turns."""
        nanoseconds = tl.cast(milliseconds, tl.int64) * 1000000
        start = globaltimer()
        now = start
        turns = 0
        while (now - start < nanoseconds) & (turns < 2000000000):
            now = globaltimer()
            turns += 1
        tl.store(pointer, turns * 0.0)


def on_gpu(fault: str, x: Any, *, harmless: bool) -> None:
    """Break this device, or this process; `harmless` launches the same kernel, loaded then, with nothing to break."""
    import torch

    spare = torch.zeros(16, device=x.device)
    if fault == "illegal":
        illegal_store_kernel[(1,)](spare, 0 if harmless else FAR_MEGAS)
    elif fault == "index":
        spare[torch.full((4,), 1 << 20, device=x.device, dtype=torch.int64)]
    elif fault == "triton_assert":
        asserting_kernel[(1,)](spare if harmless else spare.add_(1))
    elif fault == "torch_assert":
        torch.ops.aten._assert_async(torch.zeros(1, device=x.device))
    elif fault == "spin":
        spinning_kernel[(1,)](spare, 0 if harmless else SPIN_SECONDS * 1000)
    elif fault == "memory":
        torch.empty(FAR_TOO_MUCH, device=x.device)


def in_words(fault: str) -> None:
    """What ROCm's runtime does, without a device: it says so, and ends the process. In front of the kernel's name."""
    names = {"illegal": "illegal_store_kernel", "index": "aten.index.Tensor", "spin": "spinning_kernel"}
    with flight_recorder.launch(names.get(fault, "asserting_kernel")):
        if fault in ("illegal", "index"):
            print("Memory access fault by GPU node-1 on address 0x7f0000000000.", file=sys.stderr, flush=True)
            os.abort()
        if fault in ("triton_assert", "torch_assert"):
            text = "faulty.hip:6: void asserting_kernel(float*): Device-side assertion `x' failed."
            print(text, file=sys.stderr, flush=True)
            os.abort()
        if fault == "spin":
            time.sleep(SPIN_SECONDS)
    if fault == "memory":
        raise MemoryError("can't allocate memory")


@dataclass(frozen=True)
class Toy(Backend[Softmax]):
    """torch.softmax, behind a fault."""

    families = ("softmax",)
    cpu_flops_max: float = float("inf")
    fault: str = field(kw_only=True)
    dry: bool = field(kw_only=True)

    def prepare(self, workload: Softmax, inputs: Tensors) -> Prepared:
        """The call on copies of the inputs."""
        import torch

        def call(x: torch.Tensor) -> torch.Tensor:
            self.strike(x)
            return torch.softmax(x, dim=-1)

        own = tuple(tensor.clone() for tensor in inputs)
        return Prepared(call, own, convert=lambda given: given, outputs=lambda out: {"out": out})

    def strike(self, x: Any) -> None:
        """Break, in a call that is checked; what is marked `late` only in the graph that is timed."""
        import torch

        fault, _, late = self.fault.partition(" ")
        waits = bool(late) and not self.dry and not torch.cuda.is_current_stream_capturing()
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "abort":
            os.abort()
        elif fault and self.dry:
            in_words(fault)
        elif fault:
            on_gpu(fault, x, harmless=waits)


def pytest_attnperf_register_backends(registry: Registry) -> None:
    """Every backend of the file."""
    given = json.loads(FILE.read_text())
    for name, fault in given["backends"].items():
        registry.add(Toy(name, fault, given["dry"]))
