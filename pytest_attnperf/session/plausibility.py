"""Detects implausible results: times below the device's floor, several times faster than stored, or fast on repeated
inputs only, and kernels whose machine code cannot do what they are timed for.

A wrong measurement and a kernel that skips work look alike: faster than before. Such a case must pass more checks than
others; one that fails them is SUSPICIOUS.

A worker sends the code objects of the kernels that a case launched. Reading them needs packages that a worker may lack,
so they are read here, once, and dropped. Their hashes go into the launch identity. What a case has loaded is
disassembled by other cores while the case is proven.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import math
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_attnperf.codeobject.instructions import is_store
from pytest_attnperf.correctness.what_ran import is_launch_unchanged, list_differences, shorten_name
from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.measure.ran_code import OBJECT_BYTES_MOST, OBJECT_ID_DIGITS
from pytest_attnperf.records import Launch, Rotation, Verdict
from pytest_attnperf.records.code import KernelCode, KernelObject
from pytest_attnperf.records.final_report import FinalReport
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.results import CaseResult
from pytest_attnperf.roofline.floors import compute_floor as floor_of
from pytest_attnperf.roofline.floors import judge_time
from pytest_attnperf.stats.summaries import is_slower_rotated

CHANGED = "what ran has changed since the baseline"

JUMP = 3.0
"""Factor faster than stored from which a case is checked again: few honest changes of one kernel reach it."""

SLOWED, OF_STORED = 1.5, 0.9
"""A gain over the stored time comes from remembered results where the call is SLOWED times slower on changing inputs,
and takes at least the share OF_STORED of the stored time there: the gain is then gone."""

CHANGES_SHOWN = 5

_CHANGE_OF_TIME = frozenset({Verdict.SLOWER, Verdict.UNDECIDED, Verdict.ENVIRONMENT, Verdict.FASTER})

_AMD = "gfx"
_NO_MATRIX = re.compile(r"gfx([678]\d\d|90[0-69c]|10\d\d)")
"""AMD architectures without matrix instructions: all before gfx908 (MFMA) and gfx11 (WMMA)."""


def judge_by_floor(base: CaseResult, spec: DeviceSpec | None) -> CaseResult:
    """Returns the result as SUSPICIOUS if faster than the shortest time possible on the device, with a note if close to
    it. Unchanged if that is not known."""
    if base.median_us is None or base.figures is None or spec is None:
        return base
    floor = floor_of(base.figures, spec)
    if floor is None:
        return base
    plausibility = judge_time(base.median_us, floor)
    if plausibility.kind == "impossible":
        return mark_suspicious(base, NoteKind.BELOW_FLOOR, plausibility.text)
    if plausibility.kind == "near_floor":
        return replace(base, notes=(*base.notes, Note(NoteKind.NEAR_FLOOR, f"near the floor: {plausibility.text}")))
    return base


def is_jump(base: CaseResult) -> bool:
    """Returns whether the case is at least JUMP times as fast as the stored time; False without a ratio."""
    return base.ratio is not None and base.ratio * JUMP <= 1


def is_gain(base: CaseResult) -> bool:
    """Returns whether the case is FASTER, or at least JUMP times as fast as stored: it is then measured again."""
    return base.verdict is Verdict.FASTER or is_jump(base)


def gains_by_memory(base: CaseResult, rotation: Rotation) -> bool:
    """Returns whether a case is fast only while its inputs stay the same, because it keeps results of earlier calls."""
    least_us = rotation.rotating_us - rotation.noise_us
    gone = base.ratio is not None and least_us * base.ratio >= OF_STORED * rotation.same_us
    return is_slower_rotated(rotation) or (gone and least_us > SLOWED * rotation.same_us)


def may_gain_by_memory(base: CaseResult, rotation: Rotation) -> bool:
    """Returns whether `gains_by_memory` cannot be excluded: it would be true if changing the inputs added no noise."""
    return gains_by_memory(base, replace(rotation, noise_us=0.0))


def judge_by_rotation(base: CaseResult, rotation: Rotation | None) -> CaseResult:
    """Returns the result as SUSPICIOUS if the case is fast only while its inputs stay the same."""
    if rotation is None or not gains_by_memory(base, rotation):
        return base
    return mark_suspicious(
        base,
        NoteKind.REMEMBERS,
        f"remembers its results: {format_time(rotation.same_us)} per call while the inputs stay the same, "
        f"{format_time(rotation.rotating_us)} when they change before every call; the time does not include the whole "
        "work",
    )


def judge_by_gain(base: CaseResult, rotation: Rotation | None) -> CaseResult:
    """Returns the result of a faster case, measured again on new inputs: SUSPICIOUS if it is fast only on unchanged
    inputs, UNDECIDED if noise hides that; else as it was, with a note if it is JUMP times as fast as stored."""
    judged = judge_by_rotation(base, rotation)
    if judged.verdict is Verdict.SUSPICIOUS or rotation is None:
        return judged
    if may_gain_by_memory(base, rotation):
        why = (
            f"whether it remembers its results is not known: {format_time(rotation.same_us)} per call while the inputs "
            f"stay the same, {format_time(rotation.rotating_us)} when they change before every call, which may be "
            f"{format_time(rotation.noise_us)} too large on this busy machine; run it again"
        )
        return replace(base, verdict=Verdict.UNDECIDED, summary=why, reasons=(why, *base.reasons))
    if not base.ratio or not is_jump(base):
        return judged
    note = (
        f"{1 / base.ratio:.3g} times faster than stored: right again on new inputs in another process, and "
        f"{format_time(rotation.rotating_us)} a call when they change before every call"
    )
    return replace(base, notes=(*base.notes, note))


def with_changes(base: CaseResult, stored: Sequence[Launch]) -> CaseResult:
    """Adds notes on how the launches differ from those of the baseline; unchanged if either are not known."""
    if not stored or not base.launches:
        return base
    note = unchanged_note(base.verdict, base.launches, stored, "as when the baseline was recorded")
    changes = list_differences(base.launches, stored)
    if note:
        said = note
    elif changes and not is_launch_unchanged(base.launches, stored):
        more = f"; and {len(changes) - CHANGES_SHOWN} more" if len(changes) > CHANGES_SHOWN else ""
        said = Note(NoteKind.CHANGED, f"{CHANGED}: {'; '.join(changes[:CHANGES_SHOWN])}{more}")
    elif base.verdict is Verdict.SLOWER:
        text = "the same work was launched as when the baseline was recorded: the code of a kernel, or the machine"
        said = Note(NoteKind.SAME_LAUNCHES, text)
    else:
        return base
    return replace(base, notes=(*base.notes, said))


def unchanged_note(verdict: Verdict, now: Sequence[Launch], before: Sequence[Launch], when: str) -> Note | None:
    """Returns a note that the same machine code was launched though the time changed; None if the verdict is not one
    of a changed time, or the code is not known to be the same.

    when   ends the comparison: 'as on the base side'
    """
    if verdict not in _CHANGE_OF_TIME or not is_launch_unchanged(now, before):
        return None
    renamed = "".join(f"; {change}" for change in list_differences(now, before)[:CHANGES_SHOWN])
    return Note(
        NoteKind.UNCHANGED,
        f"unchanged: the same machine code was launched in the same way {when}, so the change of time is due to "
        f"noise, the machine, or the values passed to it, not the kernel's code{renamed}",
    )


def find_suspicious_code(launches: Sequence[Launch], codes: Mapping[str, KernelCode], *, matrix: bool) -> Note | None:
    """Returns why the machine code of AMD kernels cannot be what a case is timed for; None where it may be.

    codes    known kernels, by ISA hash; one that was not decoded completely is ignored
    matrix   the backend promises matrix instructions in some kernel of a call
    """
    kernels = [launch for launch in launches if launch.kind == "kernel"]
    known = [code for launch in kernels if (code := codes.get(launch.isa_hash)) is not None and _is_whole(code)]
    for code in known:
        if not any(count and is_store(name) for name, count in code.instructions.items()):
            return Note(
                NoteKind.NO_STORE,
                f"{shorten_name(code.name)} writes no result: its machine code for {code.arch} "
                f"({sum(code.instructions.values())} instructions) holds no store of any kind",
            )
    able = known and len(known) == len(kernels) and not any(_NO_MATRIX.fullmatch(code.arch) for code in known)
    if not matrix or not able or any(code.instructions.get("matrix") for code in known):
        return None
    names = ", ".join(dict.fromkeys(shorten_name(code.name) for code in known))
    return Note(
        NoteKind.NO_MATRIX,
        f"the backend promises matrix instructions, but none of the kernels of a call has one for {known[0].arch}: "
        f"{names}",
    )


def judge_by_code(base: CaseResult, codes: Mapping[str, KernelCode], *, matrix: bool) -> CaseResult:
    """Returns the result as SUSPICIOUS if `find_suspicious_code` gives a reason, else unchanged."""
    problem = find_suspicious_code(base.launches, codes, matrix=matrix)
    return base if problem is None else mark_suspicious(base, problem.kind, problem.text)


def _is_whole(code: KernelCode) -> bool:
    """Returns whether the code of a kernel is complete, so that missing instructions are really absent: an AMD kernel,
    decoded to the end, that calls nothing."""
    unclear = code.instructions.get("call", 0) + code.instructions.get("other", 0)
    return code.arch.startswith(_AMD) and bool(code.instructions) and not code.undecoded and not unclear


def mark_suspicious(base: CaseResult, kind: NoteKind, text: str) -> CaseResult:
    """Returns the result as SUSPICIOUS, with `text` as summary and only reason."""
    return replace(base, verdict=Verdict.SUSPICIOUS, summary=text, reasons=(Note(kind, text),))


ANALYSED = Path(".attnperf") / "cache" / "code"
"""Folder of a tree's cache of analysed kernels, both launched ones and ones compiled without a GPU."""

REMEMBERED = 32
"""Number of kernels kept in memory. An analysis takes 0.3 s, and cases often launch the same kernels."""

Read = Callable[[bytes, str], str | None]
"""Takes (code object, name of the kernel) and returns its ISA hash; None where it cannot be read."""

Analyse = Callable[[bytes, Launch], KernelCode | None]
"""Takes (code object, launch) and returns what is known of the kernel; None where nothing is."""


def isa_hash(data: bytes, name: str) -> str | None:
    """Returns the hash of a kernel's machine code in the code object `data`; None if it is unreadable, or has several
    kernels, none of that name."""
    from pytest_attnperf.codeobject.objects import read_object, select_kernel

    source = _describe_object(name)
    try:
        contents = read_object(data, source)
        # A profiler's name of a C++ kernel is not its symbol; where there is one kernel only, it is what was launched.
        wanted = "" if len(contents.kernels) == 1 else name
        return select_kernel(contents, wanted, source).code.isa_hash or None
    except CodeObjectError:
        return None


def analyse_launch(data: bytes, launch: Launch) -> KernelCode | None:
    """Returns what is known of a launched kernel, with its decoded instructions; None if its code object cannot be read
    or does not have it."""
    known = data, launch.name, math.prod(launch.block)
    begun = _ahead.pop(known, None)
    return _analyse_object(*known) if begun is None else begun.result()


CORES_LEAST = 4
"""Fewest cores for reading ahead: with fewer it would slow down the case that is being proven."""

_ahead: dict[tuple[bytes, str, int], Future[KernelCode | None]] = {}


@functools.cache
def _reader_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2), thread_name_prefix="attnperf-code")


def read_ahead(kernels: Iterable[KernelObject]) -> None:
    """Starts to analyse these kernels in threads, so that `analyse_launch` finds them ready; cancels what an earlier
    call started. With fewer than CORES_LEAST CPU cores, it only cancels."""
    for begun in _ahead.values():
        begun.cancel()
    _ahead.clear()
    if (os.cpu_count() or 1) < CORES_LEAST:
        return
    for kernel in kernels:
        data = _unpack_object(kernel.data)
        if data is not None:
            known = data, kernel.name, kernel.threads
            _ahead[known] = _reader_pool().submit(_analyse_object, *known)


def remember_under(folder: Path) -> None:
    """Sets the folder in whose files analysed kernels are kept, so that the next run need not analyse them."""
    global _memory
    _memory = folder


_memory: Path | None = None


@functools.lru_cache(maxsize=REMEMBERED)
def _analyse_object(data: bytes, name: str, threads: int) -> KernelCode | None:
    from pytest_attnperf.codeobject.analysis import Analyser
    from pytest_attnperf.codeobject.objects import read_object

    source = _describe_object(name)
    try:
        wanted = "" if len(read_object(data, source).kernels) == 1 else name
        return Analyser(_memory).analyse(data, source, kernel=wanted, threads=threads)
    except CodeObjectError:
        return None


def _describe_object(name: str) -> str:
    return f"the code object of {name}, as it was launched"


@dataclass(frozen=True)
class CodeReader:
    """Two functions that read code objects: one returns a kernel's ISA hash, one what is known of the kernel."""

    isa_hash: Read = isa_hash
    analyse: Analyse = analyse_launch


READER = CodeReader()


def with_isa_hashes(final: FinalReport, read: Read | None = None) -> FinalReport:
    """Returns the report with ISA hashes of launches whose code object came with it, without the objects and their ids.

    read   computes a kernel's ISA hash; None: READER's

    Ignores an object that is damaged, too large or does not match its id: its launches stay unknown.
    """
    read = READER.isa_hash if read is None else read
    objects = _decode_objects(final)
    calls: defaultdict[Launch, float] = defaultdict(float)
    for launch in final.launches:
        data = objects.get(launch.object_id)
        found = None if data is None else read(data, launch.name)
        known = replace(launch, object_id="", isa_hash=found or launch.isa_hash, calls=0.0)
        calls[known] += launch.calls  # two objects of one machine code, made from other paths, are one kind of work
    launches = tuple(replace(launch, calls=round(count, 4)) for launch, count in calls.items())
    return replace(final, launches=launches, code={})


def kernel_codes(final: FinalReport, analyse: Analyse | None = None) -> dict[str, KernelCode]:
    """Returns ISA hash -> what is known of the launched kernel.

    final     the worker's report, with its code objects
    analyse   analyses a kernel; None: READER's
    """
    analyse = READER.analyse if analyse is None else analyse
    objects = _decode_objects(final)
    found = (analyse(objects[launch.object_id], launch) for launch in final.launches if launch.object_id in objects)
    return {code.isa_hash: code for code in found if code is not None}


def list_launched_kernels(launches: Iterable[Launch], codes: Mapping[str, KernelCode]) -> tuple[KernelCode, ...]:
    """Returns the known kernels of these launches: one for each launch size, without source lines.

    launches   with their ISA hashes
    codes      known kernels, by ISA hash
    """
    found: dict[tuple[str, int, int], KernelCode] = {}
    for launch in launches:
        code = codes.get(launch.isa_hash)
        if launch.kind != "kernel" or code is None:
            continue
        # CUDA's graphs and its profiler count static shared memory, too; ROCm's profiler does not.
        static = 0 if code.arch.startswith("gfx") else code.lds_static_bytes
        threads = math.prod(launch.block) if launch.block else 0
        dynamic = max(launch.shared_bytes - static, 0)
        known = replace(code, threads=threads, lds_dynamic_bytes=dynamic, lines=())
        found.setdefault((launch.isa_hash, threads, dynamic), known)
    return tuple(found.values())


def _decode_objects(final: FinalReport) -> dict[str, bytes]:
    """Returns id -> code object of a report, without objects that are damaged or do not match their id."""
    return dict(_sound_objects(final))


def _sound_objects(final: FinalReport) -> Iterator[tuple[str, bytes]]:
    for identity, text in final.code.items():
        data = _unpack_object(text)
        if data is not None and hashlib.sha256(data).hexdigest()[:OBJECT_ID_DIGITS] == identity:
            yield identity, data


def _unpack_object(text: str) -> bytes | None:
    """Returns a code object from base64 of compressed bytes; None if it is damaged."""
    try:
        return zlib.decompressobj().decompress(base64.b64decode(text, validate=True), OBJECT_BYTES_MOST)
    except (binascii.Error, ValueError, zlib.error):
        return None
