"""Records what one call does: torch's operators, and on a GPU kernels, copies and streams.

There are two ways, because one affects later times. torch's profiler (Kineto) sees everything, but every kernel timed
afterwards in the process is slower, on an H200 by up to 0.6 %, even if only the host was profiled. So it is used when
nothing more is timed. torch's older profiler sees only operators and costs nothing afterwards
(`benchmarks/profiler_residue.py` measures both). A timed graph's content is read from the graph (`graph_nodes`).
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness.what_ran import Trace, per_call
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.records import Launch

if TYPE_CHECKING:
    from torch.autograd.profiler import profile

Call = Callable[[], Any]

KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set"}
"""Categories of GPU work in a Kineto trace, on CUDA and ROCm alike."""

NS_PER_US = 1e3

_used: list[bool] = []
"""Not empty once Kineto was used in this process."""

_MOVES_NOTHING = re.compile(
    "aten::(view|view_as|reshape|_reshape_alias|_unsafe_view|transpose|permute|movedim|swapaxes|t|slice|select|narrow|"
    "expand|expand_as|unsqueeze|squeeze|as_strided|detach|alias|flatten|unflatten|unbind|split|chunk|result_type|to|"
    "resolve_conj|resolve_neg|lift_fresh|empty|empty_like|empty_strided|new_empty|new_empty_strided|resize_)"
)
"""Operators that make views or allocate: which of them run depends on the torch version and is irrelevant."""


@dataclass(frozen=True)
class Recording:
    """Kineto's events for some work, and torch's own total of it.

    events         of a Chrome trace; numbers with a fraction are text, as written: a float may lose nanoseconds
    own_total_ns   device time of all kernels, copies and memory sets; on a CPU the self time of all operators. torch
                   sums it from the records that the events were written from. It shows that no event was lost or
                   misread, but not whether the durations are right
    """

    events: list[dict[str, Any]]
    own_total_ns: int


def record_operators(call: Call) -> Trace:
    """Makes one call and returns the torch operators that it dispatched, on CPU or GPU; does not affect later times."""
    from torch.autograd.profiler_legacy import profile as operator_profile

    with operator_profile() as profiler:  # type: ignore[no-untyped-call]
        call()
    names = [event.name for event in profiler.function_events or () if event.name.startswith("aten::")]
    working = (Launch(name, "operator") for name in names if not _MOVES_NOTHING.fullmatch(name))
    return Trace(launches=per_call(working), operators=frozenset(names))


def record_gpu_work(call: Call) -> Trace:
    """Makes one call under Kineto and returns what ran on the GPU; nothing may be timed in the process afterwards.

    The first kernel is a marker, which shows the stream on which the call is made.
    """
    import torch

    marker = torch.zeros(1, device="cuda")

    def marked_call() -> None:
        marker.fill_(1.0)
        call()

    return make_trace(profile_events(marked_call))


def profile_events(work: Call) -> list[dict[str, Any]]:
    """Runs `work`, waits for it, and returns Kineto's events of its GPU work in the form of a Chrome trace.

    No timer but the profiler's own may be used in the process afterwards.
    """
    return _export_events(_run_under_kineto(work, "cuda"))


def record_profile(work: Call, torch_device: str) -> Recording:
    """Records what `work` does on 'cuda' or 'cpu' with Kineto; nothing may be timed in the process afterwards.
    Raises CaseFailedError if this torch has no Kineto."""
    import torch

    if not torch._C._autograd.kineto_available():
        raise CaseFailedError(
            f"torch {torch.__version__} was built without Kineto, its profiler of kernels; install another"
        )
    profiler = _run_under_kineto(work, torch_device)
    return Recording(_export_events(profiler, parse_float=str), own_total_ns(profiler, torch_device))


def _run_under_kineto(work: Call, torch_device: str) -> profile:
    _used.append(True)
    _wait_for_device(torch_device)
    with _make_profiler(torch_device) as profiler:
        work()
        _wait_for_device(torch_device)
    recorded: profile = profiler
    return recorded


def _wait_for_device(torch_device: str) -> None:
    if torch_device == "cuda":
        import torch

        torch.cuda.synchronize()


def own_total_ns(profiler: Any, torch_device: str) -> int:
    """Returns the nanoseconds of all GPU work, or on a CPU of all operators, by the profiler's own sums."""
    own = [average for average in profiler.key_averages() if not getattr(average, "is_user_annotation", False)]
    if torch_device == "cpu":
        return round(sum(float(average.self_cpu_time_total) for average in own) * NS_PER_US)
    on_device = [average for average in own if "CPU" not in str(average.device_type)]
    return round(sum(_self_device_us(average) for average in on_device) * NS_PER_US)


def _self_device_us(average: Any) -> float:
    """Returns an entry's self time on the device in microseconds; older torch releases call the device cuda."""
    new = getattr(average, "self_device_time_total", None)
    return float(average.self_cuda_time_total if new is None else new)


def was_profiler_used() -> bool:
    """Tells whether Kineto was used in this process, which slows what runs afterwards."""
    return bool(_used)


def make_trace(events: Iterable[dict[str, Any]]) -> Trace:
    """Returns what Kineto's events show: launches, operators, and launches on other streams than the call's.
    The earliest kernel is left out: `record_gpu_work` launches it to mark the call's stream."""
    every = list(events)
    found = sorted((event for event in every if event.get("cat") in KINDS), key=lambda event: float(event["ts"]))
    work = [(parse_launch(event), _read_stream(event)) for event in found[1:]]
    ours = _read_stream(found[0]) if found else None
    return Trace(
        launches=per_call(launch for launch, _ in work),
        operators=frozenset(event["name"] for event in every if event.get("cat") == "cpu_op"),
        other_streams=per_call(launch for launch, stream in work if stream != ours),
        on_gpu=True,
    )


def _make_profiler(torch_device: str) -> profile:
    # Not torch.profiler: importing that loads Inductor, which takes 2 s.
    from torch.autograd.profiler import profile

    return profile(use_cpu=True, use_device="cuda" if torch_device == "cuda" else None, use_kineto=True)


def _export_events(profiler: profile, parse_float: Callable[[str], Any] = float) -> list[dict[str, Any]]:
    """Returns the profile's events as of a Chrome trace, the only form that holds grids, blocks and streams."""
    handle, name = tempfile.mkstemp(suffix=".json", prefix="attnperf-trace-")
    os.close(handle)
    path = Path(name)
    try:
        profiler.export_chrome_trace(str(path))  # type: ignore[no-untyped-call]
        whole = json.loads(path.read_text(errors="replace"), parse_float=parse_float)
        events: list[dict[str, Any]] = whole["traceEvents"]
    finally:
        path.unlink(missing_ok=True)
    return events


def _read_stream(event: dict[str, Any]) -> object:
    return event.get("args", {}).get("stream", event.get("tid"))


def parse_launch(event: dict[str, Any]) -> Launch:
    """Returns the kernel, copy or memory set that an event of Kineto describes; its category must be in KINDS."""
    args, kind = event.get("args", {}), KINDS[event["cat"]]
    if kind != "kernel":
        return Launch(event["name"], kind, grid=(int(args.get("bytes", 0)),))
    return Launch(
        event["name"],
        kind,
        grid=tuple(int(size) for size in args.get("grid", ())),
        block=tuple(int(size) for size in args.get("block", ())),
        shared_bytes=int(args.get("shared memory", 0)),
    )
