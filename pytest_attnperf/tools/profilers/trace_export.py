"""Writes a profile as a trace in the Trace Event Format ("Chrome trace JSON"), which ui.perfetto.dev opens.

A process per device, a thread per stream, a complete event ('X') per dispatch with its family as the category, and a
thread of the passes above those of their device. Times are microseconds since the first dispatch, with three digits.
Where dispatches of one stream overlap, further threads of it take the later ones: events of one thread never overlap.
"""

from __future__ import annotations

import gzip
import heapq
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.counters import plain_name
from pytest_attnperf.records.profiles import Agent, KernelShape, ProfileSummary
from pytest_attnperf.reports.run.profile_figures import format_size, tell_apart
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.profilers.analysed_profile import AnalysedProfile, format_device, format_lane
from pytest_attnperf.tools.profilers.kernel_columns import NAMELESS

SUFFIXES = (".json", ".json.gz")
NAME_LIMIT = 160
FULL_LIMIT = 8000
NS_PER_US = 1e3
FIRST_THREAD = 1000
"""Threads are numbered from here on, through all processes, because a viewer may take equal numbers for one thread."""

Event = dict[str, Any]


def check_trace_name(path: Path) -> None:
    """Raises UsageError unless the file's name ends as a trace's must."""
    if not path.name.lower().endswith(SUFFIXES):
        raise UsageError(f"--trace {path}: the name must end in {' or '.join(SUFFIXES)}")


def write_trace(path: Path, analysed: AnalysedProfile) -> int:
    """Writes the trace of a profile to `path`, packed if its name ends in .gz; returns the number of its dispatches.
    Raises UsageError for another ending, and if the profile has no start times."""
    check_trace_name(path)
    try:
        data = encode_trace(analysed)
    except UsageError as error:
        raise UsageError(f"--trace {path}: {error}") from error
    write_atomically(path, gzip.compress(data, mtime=0) if path.name.lower().endswith(".gz") else data)
    return len(analysed.profile.dispatches)


def encode_trace(analysed: AnalysedProfile) -> bytes:
    """Returns the trace of a profile as JSON. Raises UsageError if the profile has no start times."""
    if not len(analysed.profile.dispatches):
        raise UsageError(
            f"{one_line(analysed.summary.name)} holds no dispatch with a start time, only sums or counters; give a "
            "kernel trace (rocprofv3 --kernel-trace, or export_chrome_trace of torch.profiler)"
        )
    encode = msgspec.json.encode
    events = b",\n".join(encode(event) for event in list_events(analysed))
    about = encode({"displayTimeUnit": "ns", "otherData": _describe_profile(analysed)})
    return about[:-1] + b',"traceEvents":[\n' + events + b"\n]}\n"


def list_events(analysed: AnalysedProfile) -> Iterator[Event]:
    """Yields the names of processes and threads, then all events ordered by their start, a pass before its
    dispatches."""
    threads = _TraceThreads(analysed)
    dispatches = list(_list_dispatches(analysed, threads))
    passes = list(_list_passes(analysed, threads))
    yield from threads.list_names()
    yield from heapq.merge(passes, dispatches, key=lambda event: event["ts"])


class _TraceThreads:
    """Numbers of processes and threads. A stream whose dispatches overlap has several threads."""

    def __init__(self, analysed: AnalysedProfile) -> None:
        self._agents = {agent.name: agent for agent in analysed.profile.agents}
        self._processes: dict[str, int] = {}
        self._names: list[tuple[int, int, str, int]] = []
        self._lanes: dict[tuple[str, str], list[tuple[int, int]]] = {}

    def find_process(self, device: str) -> int:
        """Returns a device's process; a new one gets the next number, from 1."""
        return self._processes.setdefault(device, len(self._processes) + 1)

    def add_thread(self, device: str, name: str, place: int) -> int:
        """Returns a new thread of a device, shown in the order of `place`."""
        thread = FIRST_THREAD + len(self._names)
        self._names.append((self.find_process(device), thread, name, place))
        return thread

    def find_free(self, device: str, lane: str, start_ns: int, end_ns: int) -> int:
        """Returns the first thread of a stream that is free from `start_ns` on, and takes it until `end_ns`."""
        threads = self._lanes.setdefault((device, lane), [])
        for place, (thread, until) in enumerate(threads):
            if until <= start_ns:
                threads[place] = thread, end_ns
                return thread
        name = f"{lane} ({len(threads) + 1})" if threads else lane
        thread = self.add_thread(device, one_line(name), len(self._names) + 1)
        threads.append((thread, end_ns))
        return thread

    def list_names(self) -> Iterator[Event]:
        """Yields metadata events: names and order of all processes and threads."""
        for device, process in self._processes.items():
            named = {"ph": "M", "pid": process, "tid": 0, "ts": 0}
            yield {**named, "name": "process_name", "args": {"name": _name_device(device, self._agents)}}
            yield {**named, "name": "process_sort_index", "args": {"sort_index": process}}
        for process, thread, name, place in self._names:
            named = {"ph": "M", "pid": process, "tid": thread, "ts": 0}
            yield {**named, "name": "thread_name", "args": {"name": name}}
            yield {**named, "name": "thread_sort_index", "args": {"sort_index": place}}


def _name_device(device: str, agents: Mapping[str, Agent]) -> str:
    agent = agents.get(device)
    about = " ".join(filter(None, (agent.product, agent.arch))) if agent is not None else ""
    return one_line(f"{format_device(device)}: {about}" if about else format_device(device))


def _list_dispatches(analysed: AnalysedProfile, threads: _TraceThreads) -> Iterator[Event]:
    dispatches = analysed.profile.dispatches
    names = _name_kernels(analysed)
    families = [one_line(family.replace(",", ";")).strip() or NAMELESS for family in analysed.find_families()]
    about = [_describe_shape(shape, analysed.summary) for shape in dispatches.shapes]
    first = dispatches.start_ns[0]
    for index, queue, start, end in zip(
        dispatches.shape, dispatches.queue, dispatches.start_ns, dispatches.end_ns, strict=True
    ):
        shape = dispatches.shapes[index]
        lane = format_lane(shape, dispatches.queues[queue], with_device=False)
        yield {
            "ph": "X",
            "name": names[shape.name],
            "cat": families[index],
            "pid": threads.find_process(shape.agent),
            "tid": threads.find_free(shape.agent, lane, start, end),
            "ts": _to_us(start - first),
            "dur": _to_us(end - start),
            "args": about[index],
        }


def _list_passes(analysed: AnalysedProfile, threads: _TraceThreads) -> Iterator[Event]:
    """Yields the passes on a thread of their own, above the streams of the device whose dispatches show them."""
    dispatches, passes = analysed.profile.dispatches, analysed.list_passes()
    if not passes:
        return
    first = dispatches.start_ns[0]
    device = dispatches.shapes[dispatches.shape[passes[0].begin]].agent
    thread = threads.add_thread(device, "passes", 0)
    for one in passes:
        yield {
            "ph": "X",
            "name": f"pass {one.number}",
            "cat": "pass",
            "pid": threads.find_process(device),
            "tid": thread,
            "ts": _to_us(one.start_ns - first),
            "dur": _to_us(one.end_ns - one.start_ns),
            "args": {"dispatches": one.end - one.begin},
        }


def _to_us(ns: int) -> float:
    return round(ns / NS_PER_US, 3)


def _name_kernels(analysed: AnalysedProfile) -> dict[str, str]:
    names = dict.fromkeys(shape.name for shape in analysed.profile.dispatches.shapes)
    return {name: short or NAMELESS for name, short in tell_apart(names, NAME_LIMIT).items()}


def _describe_shape(shape: KernelShape, summary: ProfileSummary) -> dict[str, Any]:
    """Returns what is known of a launch size: workgroups, resources, and medians of hardware counters."""
    known: dict[str, Any] = {
        "workgroup": format_size(shape.workgroup) if shape.workgroup else None,
        "workgroups": format_size(shape.grid) if shape.grid else None,
        "LDS bytes": shape.lds_bytes,
        "scratch bytes per work-item": shape.scratch_bytes,
        "VGPRs": shape.vgprs,
        "AccVGPRs": shape.accum_vgprs,
        "SGPRs": shape.sgprs,
        "bytes": shape.bytes,
    }
    items = shape.grid_items
    count = None if items is None else items[0] * items[1] * items[2]
    for one in summary.counters:
        same = one.kernel == plain_name(shape.name) and (None in (one.grid_items, count) or one.grid_items == count)
        if same and math.isfinite(one.median):
            known[one_line(f"{one.counter}, median of {one.dispatches}", NAME_LIMIT)] = one.median
    return {name: value for name, value in known.items() if value is not None}


def _describe_profile(analysed: AnalysedProfile) -> dict[str, Any]:
    """Returns where the trace is from, and the whole names of kernels whose events have shortened ones."""
    names = _name_kernels(analysed)
    full = {short: one_line(name, FULL_LIMIT) for name, short in names.items() if one_line(name, FULL_LIMIT) != short}
    return {"made by": "attnperf profile --trace", "profile": one_line(analysed.summary.name), "full names": full}
