"""Reads Chrome traces of torch.profiler (Kineto), of CUDA and ROCm: kernels, copies, memory sets, and host calls.

A file may be cut short, edited, or no trace at all: whatever cannot be used is a Problem or a ProfileError, never a
traceback. Times in a trace are microseconds with a fraction; their text is kept, because a float may lose nanoseconds.
"""

from __future__ import annotations

import gzip
import json
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.records.profiles import Agent, KernelShape, Problem, ProfileSource, Size3, StatsRow
from pytest_attnperf.records.regular_file import open_regular, read_regular
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.spreads import compute_spread
from pytest_attnperf.tools.profilers.timed_rows import LONGEST_NS

FORM = "torch.profiler"
TEXT_BYTES_MOST = 1 << 29
"""Most bytes of an unpacked trace: as Python objects it takes six times as much memory."""

FEWER = "; profile fewer steps (torch.profiler.schedule)"

GPU_KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set"}
OPERATORS = "cpu_op"
GZIP_MAGIC = b"\x1f\x8b"
RUNTIME = frozenset({"cuda_runtime", "cuda_driver"})
"""Categories of the runtime's functions; HIP's (hipLaunchKernel) have the same names on ROCm."""

OPERATOR = "torch operator: "
"""Prefix of an operator's name, which separates it from the runtime's functions."""

HIP_FIELD = "maxSharedMemoryPerMultiProcessor"
"""Name of a device property that only HIP has; CUDA's differs."""

AMD_NAMES = ("AMD", "RADEON", "INSTINCT")
NS_MOST = 2**63 - 1
SIZE_MOST = 2**63 - 1
PROBLEMS_MOST = 5
"""Most kinds of unusable events that are reported, with their count and the first of each."""

HOST_NOTE = (
    "times of operators and of the runtime's functions exclude the calls within them; they include waiting for the GPU "
    "and the profiler's own cost"
)


def read_chrome_trace(path: Path) -> Profile:
    """Reads a trace of `export_chrome_trace`, also packed with gzip; at most TEXT_BYTES_MOST of text.

    Raises ProfileError for a file that cannot be read, is too large, is cut short, or holds no events."""
    try:
        whole = json.loads(_read_text(path), parse_float=str)
    except (ValueError, RecursionError) as error:
        raise ProfileError(
            f"{path} is not whole JSON ({_shorten_error(error)}); a trace is complete once export_chrome_trace "
            f"has returned"
        ) from error
    events = whole.get("traceEvents") if isinstance(whole, dict) else whole
    if not isinstance(events, list):
        raise ProfileError(
            f"{path} has no list 'traceEvents'; give a Chrome trace of torch.profiler "
            "(prof.export_chrome_trace('trace.json'))"
        )
    about = whole if isinstance(whole, dict) else {}
    return _Reader(str(path), path.name, about).read_events(events)


HostCall = tuple[int, int, str]
"""(start, end, name), times in nanoseconds."""


class _Reader:
    """Reads events one by one. `where` names the source in problems."""

    def __init__(self, where: str, name: str, about: Mapping[str, Any]) -> None:
        self._where = where
        self._name = name
        self._about = about
        self._builder = DispatchesBuilder()
        self._host: dict[tuple[object, object], list[HostCall]] = defaultdict(list)
        self._wrong: Counter[str] = Counter()
        self._first: dict[str, str] = {}
        self._devices: set[str] = set()
        self._whole_us = True

    def read_events(self, events: list[Any]) -> Profile:
        """Returns the profile of all events of a Chrome trace. Raises ProfileError if none is usable."""
        for event in events:
            self._add_event(event)
        if not self._builder and not self._host:
            raise ProfileError(
                f"{self._where} holds {len(events)} events, and none of them is a kernel, a copy, a memory set or a "
                f"host function that could be used{self._first_problem()}; was it recorded with activities=[CPU, CUDA]?"
            )
        dispatches = self._builder.build()
        rows = len(dispatches) + sum(map(len, self._host.values()))
        host = own_times(self._host.values())
        return Profile(
            name=self._name,
            sources=(ProfileSource(self._where, FORM, self._format_version(), rows),),
            dispatches=dispatches,
            stats=tuple(StatsRow("api", name, compute_spread(times)) for name, times in sorted(host.items())),
            agents=_list_agents(self._about.get("deviceProperties"), self._devices),
            problems=self._list_problems(),
            notes=self._list_notes(),
        )

    def _add_event(self, event: Any) -> None:
        category = event.get("cat") if isinstance(event, Mapping) else None
        if not isinstance(category, str):
            return
        category = category.lower()  # older releases write 'Kernel' and 'Memcpy'
        category = {"memcpy": "gpu_memcpy", "memset": "gpu_memset", "runtime": "cuda_runtime"}.get(category, category)
        if category not in GPU_KINDS and category != OPERATORS and category not in RUNTIME:
            return
        name, times = event.get("name"), self._parse_times(event)
        if times is None:
            return
        if not isinstance(name, str) or not name:
            self._report_odd_event("no name", event)
        elif category in GPU_KINDS:
            shape = self._make_shape(name, GPU_KINDS[category], event)
            queue = self._builder.queue_number_of(_name_stream(event))
            self._builder.add(self._builder.number_of(shape), *times, queue)
        else:
            thread = (str(event.get("pid")), str(event.get("tid")))
            self._host[thread].append((*times, OPERATOR + name if category == OPERATORS else name))

    def _parse_times(self, event: Mapping[str, Any]) -> tuple[int, int] | None:
        """Returns start and end in ns; None for an event without duration, and for unusable times, which it reports."""
        if event.get("ph", "X") != "X":
            return None
        start, length = _parse_nanoseconds(event.get("ts")), _parse_nanoseconds(event.get("dur"))
        if start is None or length is None:
            self._report_odd_event("no usable 'ts' or 'dur'", event)
            return None
        if not 0 <= length <= LONGEST_NS or not -NS_MOST <= start <= NS_MOST - length:
            self._report_odd_event("a negative or impossible duration", event)
            return None
        self._whole_us = self._whole_us and length % 1000 == 0
        return start, start + length

    def _make_shape(self, name: str, kind: str, event: Mapping[str, Any]) -> KernelShape:
        args = event.get("args")
        args = args if isinstance(args, Mapping) else {}
        agent = _device_name(args.get("device"))
        self._devices.add(agent)
        if kind != "kernel":
            return KernelShape(name, kind, agent, bytes=_parse_whole_number(args.get("bytes")))
        block, grid = _parse_size3(args.get("block")), _parse_size3(args.get("grid"))
        items = None if block is None or grid is None else (grid[0] * block[0], grid[1] * block[1], grid[2] * block[2])
        return KernelShape(
            name,
            agent=agent,
            workgroup=block,
            grid_items=items,
            lds_bytes=_parse_whole_number(args.get("shared memory")),
            vgprs=_parse_whole_number(args.get("registers per thread")),
        )

    def _report_odd_event(self, what: str, event: Mapping[str, Any]) -> None:
        self._wrong[what] += 1
        shown = {key: event.get(key) for key in ("name", "ts", "dur")}
        self._first.setdefault(what, repr(shown)[:160])

    def _list_problems(self) -> tuple[Problem, ...]:
        return tuple(
            Problem(
                self._where, f"{count} events have {what}, the first of them {self._first[what]}", "the others count"
            )
            for what, count in self._wrong.most_common(PROBLEMS_MOST)
        )

    def _first_problem(self) -> str:
        return "".join(f"; {problem.text}" for problem in self._list_problems()[:1])

    def _list_notes(self) -> tuple[str, ...]:
        notes = [HOST_NOTE] if self._host else []
        if len(self._builder) and self._whole_us:
            notes.append("times are whole microseconds: this release of torch writes no fraction")
        if not self._builder:
            notes.append("no kernel, copy or memory set is in the trace: only host calls")
        return tuple(notes)

    def _format_version(self) -> str:
        """Returns the versions of CUDA or HIP in the trace as text, '' without any; torch's own is not in it."""
        known = {
            "cuda_driver_version": "CUDA driver",
            "cuda_runtime_version": "CUDA runtime",
            "hip_runtime_version": "HIP",
        }
        said = [f"{label} {self._about[key]}" for key, label in known.items() if isinstance(self._about.get(key), int)]
        return ", ".join(said)


def own_times(threads: Iterable[list[HostCall]]) -> dict[str, array[int]]:
    """Returns name -> ns of every call, each without the calls within it. `threads` has the calls of each thread."""
    found: dict[str, array[int]] = defaultdict(lambda: array("q"))
    for calls in threads:
        around: list[tuple[int, str, int]] = []  # end, name, place in the name's column
        for start, end, name in sorted(calls, key=lambda call: (call[0], -call[1])):
            while around and around[-1][0] <= start:
                around.pop()
            if around:
                # With different clocks a call may seem to outlast the one around it; then all of that is subtracted.
                outer_end, outer, place = around[-1]
                found[outer][place] -= min(end, outer_end) - start
            around.append((end, name, len(found[name])))
            found[name].append(end - start)
    return found


def _read_text(path: Path) -> str:
    """Returns the file's unpacked text. Raises ProfileError if it cannot be read or is too large."""
    try:
        with open_regular(path, ProfileError) as raw:
            packed = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            data = gzip.GzipFile(fileobj=raw).read(TEXT_BYTES_MOST + 1) if packed else b""
        data = data if packed else read_regular(path, TEXT_BYTES_MOST, ProfileError, FEWER)
    except EOFError as error:
        raise ProfileError(f"{path}: the packed file is cut short; copy or export it again") from error
    except (OSError, zlib.error) as error:
        raise ProfileError(f"{path} cannot be read: {_shorten_error(error)}") from error
    if len(data) > TEXT_BYTES_MOST:
        raise ProfileError(f"{path} holds more than {TEXT_BYTES_MOST:,} bytes of text{FEWER}")
    return data.decode("utf-8", errors="replace")


def _list_agents(devices: object, used: set[str]) -> tuple[Agent, ...]:
    """Returns the devices in the trace's list and, by number alone, those that only events name (`used`)."""
    listed = (
        [_make_agent(device) for device in devices if isinstance(device, Mapping)] if isinstance(devices, list) else []
    )
    named = {agent.name for agent in listed}
    return (*listed, *(Agent(name) for name in sorted(used - named) if name))


def _make_agent(device: Mapping[str, Any]) -> Agent:
    product = device.get("name")
    return Agent(
        name=_device_name(device.get("id")),
        arch=_read_arch(device),
        product=product if isinstance(product, str) else "",
        compute_units=_parse_whole_number(device.get("numSms")),
        wave_size=_parse_whole_number(device.get("warpSize")),
    )


def _read_arch(device: Mapping[str, Any]) -> str:
    """Returns a device's architecture: 'sm_90' on NVIDIA, 'gfx942' on AMD if the trace names it, else ''.

    AMD's major and minor lack digits. A field of HIP, the product's name and the wave size tell vendors apart."""
    for key in ("gcnArchName", "gcnArch"):
        said = device.get(key)
        if isinstance(said, str) and said.startswith("gfx"):
            return said.partition(":")[0]
    major, minor = _parse_whole_number(device.get("computeMajor")), _parse_whole_number(device.get("computeMinor"))
    product = str(device.get("name") or "").upper()
    amd = HIP_FIELD in device or device.get("warpSize") == 64 or any(name in product for name in AMD_NAMES)
    return "" if amd or not major or minor is None else f"sm_{major}{minor}"


def _name_stream(event: Mapping[str, Any]) -> str:
    """Returns 'stream 7' by the event's arguments or, without one there, by its thread; '' if both are unknown."""
    args = event.get("args")
    found = _parse_whole_number(args.get("stream")) if isinstance(args, Mapping) else None
    found = _parse_whole_number(event.get("tid")) if found is None else found
    return "" if found is None else f"stream {found}"


def _device_name(number: object) -> str:
    whole = _parse_whole_number(number)
    return "" if whole is None else str(whole)


def _parse_size3(sizes: object) -> Size3 | None:
    if not isinstance(sizes, list) or len(sizes) != 3:
        return None
    x, y, z = (_parse_whole_number(size) for size in sizes)
    return None if not x or not y or not z else (x, y, z)


def _parse_whole_number(value: object) -> int | None:
    """Returns a trace's value if it is a whole number from 0 to 2^63 - 1, None otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= SIZE_MOST else None


def _parse_nanoseconds(us: object) -> int | None:
    """Converts a trace's microseconds to nanoseconds: a number, or its text with a fraction. None for anything else."""
    if isinstance(us, bool) or not isinstance(us, (int, float, str)):
        return None
    try:
        exact = Decimal(str(us)) * 1000
        return int(exact.to_integral_value()) if exact.is_finite() and abs(exact) <= NS_MOST else None
    except InvalidOperation:
        return None


def _shorten_error(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
