"""Checks that what ran is what a backend declares: kernels, operators, copies and streams of one call. Pure Python.

Libraries fall back silently: to another backend, to the host, to a second stream that nothing waits for. The result is
then right, but the time belongs to something else. Only a list of what ran shows that.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.backends import Declares
from pytest_attnperf.records import Launch

NAME_LIMIT = 100
"""Largest number of characters of a kernel's name in a message; template arguments may have thousands."""

LISTED_MOST = 8

NEAR = 0.8
"""Least similarity of a name that ran and a pattern that was probably meant to match it."""

CALLS_APART = 0.02
"""Counts per call that differ by less are equal: what runs in every n-th call does not fit evenly into blocks."""

_CROSSING = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost", re.IGNORECASE)
"""Copies between host and device, named by CUPTI ('Memcpy DtoH (Device -> Pageable)') or ROCm ('CopyDeviceToHost')."""


@dataclass(frozen=True)
class Trace:
    """What one call ran, as far as it was observed.

    launches        kernels, copies and memory sets on a GPU where `on_gpu`; else torch's operators, without views
    operators       names of all torch operators that were dispatched, including composite ones; None if not observed
    other_streams   launches on another stream than the one the call was made on
    branches        a graph captured from the call contains work that may run in parallel
    """

    launches: tuple[Launch, ...]
    operators: frozenset[str] | None = None
    other_streams: tuple[Launch, ...] = ()
    branches: bool = False
    on_gpu: bool = False


def list_problems(trace: Trace, declares: Declares, backend: str) -> list[str]:
    """Returns, in words, why the call's time would not be the backend's: copies between host and device, other streams,
    and kernels or operators other than `declares` says; [] if nothing is wrong."""
    crossings = [] if declares.host_sync else _list_crossings(trace)
    return [*crossings, *_list_stream_problems(trace), *_list_undeclared(trace, declares, backend)]


def list_differences(now: Sequence[Launch], stored: Sequence[Launch]) -> list[str]:
    """Lists what ran now but not when the baseline was recorded, and the reverse; empty when nothing differs. A kernel
    under another name counts as renamed where its machine code is known to be the same. Machine code that is unknown on
    one side (`isa_hash` '') is not compared."""
    ours, theirs = _group_by_name(now), _group_by_name(stored)
    names = _find_renamed(ours, theirs)
    gone = [launches for name, launches in theirs.items() if name not in ours and name not in names.values()]
    added = [launches for name, launches in ours.items() if name not in theirs and name not in names]
    found = [f"no longer runs {_format_launch(launches[0])}" for launches in gone]
    found += [f"runs {_format_launch(launches[0])}, which it did not" for launches in added]
    for name, old in names.items():
        changes = _describe_changes(
            f"{shorten_name(name[1])} (renamed, it was {shorten_name(old[1])})", ours[name], theirs[old]
        )
        found += changes or [f"{shorten_name(old[1])} is renamed to {shorten_name(name[1])}, the same machine code"]
    return found + [
        change
        for name in ours
        if name in theirs
        for change in _describe_changes(shorten_name(name[1]), ours[name], theirs[name])
    ]


Work = tuple[str, str, tuple[int, ...], tuple[int, ...], int]
"""Kind of work; its machine code, or the name of a copy or set; grid, block and shared memory of its launch."""


def compute_launch_identity(launches: Iterable[Launch]) -> tuple[tuple[Work, float], ...] | None:
    """Returns the launch identity: each kind of work with its calls, in a fixed order, without kernel names.

    A kernel is identified by ISA hash, grid, block and shared memory (LDS). The static part of the shared memory
    belongs to the code, so only the dynamic part may differ. None where nothing ran, where the code of any kernel is
    not known, and where anything but kernels, copies and memory sets ran.
    """
    calls: dict[Work, float] = {}
    for launch in launches:
        code = launch.isa_hash if launch.kind == "kernel" else launch.name
        if not code or launch.kind not in ("kernel", "copy", "set"):
            return None
        work = (launch.kind, code, launch.grid, launch.block, launch.shared_bytes)
        calls[work] = calls.get(work, 0.0) + launch.calls
    return tuple(sorted(calls.items())) or None


def is_launch_unchanged(now: Iterable[Launch], before: Iterable[Launch]) -> bool:
    """Returns whether both sides ran the same machine code, launched in the same way, equally often (within 2 %). False
    also if the machine code of a kernel is not known."""
    ours, theirs = compute_launch_identity(now), compute_launch_identity(before)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return False
    pairs = zip(ours, theirs, strict=True)
    return all(work == old_work and _is_as_often(calls, old_calls) for (work, calls), (old_work, old_calls) in pairs)


def per_call(launches: Iterable[Launch], calls: int = 1) -> tuple[Launch, ...]:
    """Returns each different launch once, with `calls` as its number of launches / `calls`, in a fixed order."""
    counts: Counter[Launch] = Counter()
    for launch in launches:
        counts[replace(launch, calls=1.0)] += 1
    return tuple(sorted(replace(one, calls=round(count / calls, 4)) for one, count in counts.items()))


def shorten_name(name: str) -> str:
    """Returns the name, or, above NAME_LIMIT characters, its beginning and end around '...'."""
    half = NAME_LIMIT // 2
    return name if len(name) <= NAME_LIMIT else f"{name[:half]}...{name[-half:]}"


def _list_crossings(trace: Trace) -> list[str]:
    crossed = [launch for launch in trace.launches if launch.kind == "copy" and _CROSSING.search(launch.name)]
    if not crossed:
        return []
    return [
        f"the call copied {_format_bytes(crossed)} between host and device ({_join_launches(crossed)}): work "
        f"ran on the CPU, or the "
        "GPU waited for the host, as for .item() or .cpu(); inputs must be on the device before the call, and results "
        "stay there. A function that must wait is gated with host_sync=True, and timed by the host's clock"
    ]


def _list_stream_problems(trace: Trace) -> list[str]:
    if trace.branches:
        return [
            "the call uses another stream besides the one it was made on: its captured graph holds work that may run "
            "in parallel; launch on torch.cuda.current_stream()"
        ]
    if not trace.other_streams:
        return []
    return [
        f"the call ran {_join_launches(trace.other_streams)} on another stream than the one it was made on, so "
        f"that a timer "
        "may not see this work: launch on torch.cuda.current_stream()"
    ]


def _list_undeclared(trace: Trace, declares: Declares, backend: str) -> list[str]:
    found = []
    ran_there = [launch.name for launch in trace.launches if launch.kind in ("kernel", "operator")]
    kernels = ran_there if trace.on_gpu else []
    operators = sorted(trace.operators or ())
    if trace.on_gpu:
        found += [
            _describe_missing(backend, "kernel", want, kernels)
            for want in declares.kernels
            if not _has_match(want, kernels)
        ]
    if trace.operators is not None:
        wanted = [want for want in declares.operators if not _has_match(want, operators)]
        found += [_describe_missing(backend, "operator", want, ran_there) for want in wanted]
    for never in declares.never:
        ran = [name for name in (*kernels, *operators) if re.search(never, name)]
        if ran:
            found.append(
                f"{backend} declares that nothing named {never!r} runs, but {shorten_name(ran[0])} did: another "
                "implementation was used than the one it is named after"
            )
    return found


def _describe_missing(backend: str, kind: str, want: str, ran: Sequence[str]) -> str:
    names = list(dict.fromkeys(shorten_name(name) for name in ran))
    more = f" and {len(names) - LISTED_MOST} more" if len(names) > LISTED_MOST else ""
    listed = ", ".join(names[:LISTED_MOST]) or "nothing that was seen"
    near = difflib.get_close_matches(want, set(ran), 1, NEAR)
    meant = f", e.g. to {shorten_name(near[0])!r}" if near else ""
    return (
        f"{backend} declares the {kind} {want!r}, but it did not run; what ran is {listed}{more}: a silent fallback "
        f"to another implementation, or correct `declares`{meant}"
    )


def _has_match(pattern: str, names: Iterable[str]) -> bool:
    return any(re.search(pattern, name) for name in names)


_Name = tuple[str, str]
_ByName = dict[_Name, list[Launch]]


def _group_by_name(launches: Iterable[Launch]) -> _ByName:
    found: _ByName = {}
    for launch in launches:
        found.setdefault((launch.kind, launch.name), []).append(launch)
    return found


def _find_renamed(ours: _ByName, theirs: _ByName) -> dict[_Name, _Name]:
    """Returns {our name: their name} of kernels that each side lacks under the other's name and whose known code is
    equal. Names that share one machine code with another name are left out, because the match is ambiguous."""
    found: dict[_Name, _Name] = {}
    added = [name for name in ours if name not in theirs]
    gone = [name for name in theirs if name not in ours]
    for name in added:
        codes = _collect_codes(ours[name])
        same = [old for old in gone if codes and _collect_codes(theirs[old]) == codes]
        if len(same) == 1 and sum(_collect_codes(ours[other]) == codes for other in added) == 1:
            found[name] = same[0]
    return found


def _describe_changes(shown: str, ours: list[Launch], theirs: list[Launch]) -> list[str]:
    """Describes how the launches of one kernel differ: in calls or else in shapes, and in machine code; [] if not."""
    codes, old_codes = _collect_codes(ours), _collect_codes(theirs)
    same_code, other_code = bool(codes) and codes == old_codes, bool(codes and old_codes) and codes != old_codes
    compiled = [f"{shown} was compiled to other machine code"] if other_code else []
    now, before = sum(launch.calls for launch in ours), sum(launch.calls for launch in theirs)
    if not _is_as_often(now, before):
        same = ": the same machine code" if same_code else ""
        return [f"runs {shown} {now:g} times a call, {before:g} before{same}", *compiled]
    shapes, old_shapes = {_format_shape(launch) for launch in ours}, {_format_shape(launch) for launch in theirs}
    if shapes != old_shapes:
        same = f": the same machine code, launched with another {_what_differs(ours, theirs)}" if same_code else ""
        text = f"launches {shown} with {'; '.join(sorted(shapes))}, before with {'; '.join(sorted(old_shapes))}{same}"
        return [text, *compiled]
    return compiled


def _collect_codes(launches: Iterable[Launch]) -> frozenset[str]:
    """Returns the set of ISA hashes of the launches; empty if any of them is unknown ('')."""
    codes = frozenset(launch.isa_hash for launch in launches)
    return frozenset() if "" in codes else codes


def _what_differs(ours: Iterable[Launch], theirs: Iterable[Launch]) -> str:
    """Returns which of 'grid', 'block' and 'size of shared memory' differ between the launches, joined by 'and'; or
    'combination of grids and blocks' if none does alone."""
    one, other = list(ours), list(theirs)
    parts = {
        "grid": {launch.grid for launch in one} != {launch.grid for launch in other},
        "block": {launch.block for launch in one} != {launch.block for launch in other},
        "size of shared memory": {launch.shared_bytes for launch in one} != {launch.shared_bytes for launch in other},
    }
    return " and ".join(part for part, differs in parts.items() if differs) or "combination of grids and blocks"


def _is_as_often(now: float, before: float) -> bool:
    return abs(now - before) <= CALLS_APART * max(now, before)


def _format_shape(launch: Launch) -> str:
    if launch.kind != "kernel":
        return f"{launch.grid[0]} bytes" if launch.grid else "an unknown size"
    return f"grid {launch.grid}, block {launch.block}, {launch.shared_bytes} bytes of shared memory"


def _format_launch(launch: Launch) -> str:
    return shorten_name(launch.name)


def _join_launches(launches: Sequence[Launch]) -> str:
    counts: Counter[str] = Counter()
    for launch in launches:
        counts[shorten_name(launch.name)] += max(1, round(launch.calls))
    parts = [f"{count} x {name}" for name, count in counts.items()]
    more = f" and {len(parts) - LISTED_MOST} more" if len(parts) > LISTED_MOST else ""
    return ", ".join(parts[:LISTED_MOST]) + more


def _format_bytes(copies: Sequence[Launch]) -> str:
    total = sum(copy.grid[0] * max(1, round(copy.calls)) for copy in copies if copy.grid)
    return f"{total} bytes" if total else "data"
