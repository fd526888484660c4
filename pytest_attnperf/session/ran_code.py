"""What the machine code of launched kernels says: its hash for the launch identity, and what it can and cannot do.

A worker sends the code objects of the kernels that a case launched; reading them needs packages that a worker may lack,
so that they are read here, once, and dropped.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.measure.ran_code import OBJECT_BYTES_MOST, OBJECT_ID_DIGITS
from pytest_attnperf.records import FinalReport, Launch
from pytest_attnperf.records.code import KernelCode

REMEMBERED = 32
"""Kernels that are not taken apart again, which takes 0.3 s: cases of other shapes often launch the same."""

Read = Callable[[bytes, str], str | None]
"""(code object, name of the kernel) -> its ISA hash, None where it cannot be read."""

Analyse = Callable[[bytes, Launch], KernelCode | None]
"""(code object, launch) -> what is known of the kernel, None where nothing is."""


def isa_hash(data: bytes, name: str) -> str | None:
    """The ISA hash of a kernel; None where the object cannot be read or holds several kernels, none of that name."""
    from pytest_attnperf.codeobject.objects import read_object, select_kernel

    source = _source(name)
    try:
        contents = read_object(data, source)
        # A profiler's name of a C++ kernel is not its symbol; where there is one kernel only, it is what was launched.
        wanted = "" if len(contents.kernels) == 1 else name
        return select_kernel(contents, wanted, source).code.isa_hash or None
    except CodeObjectError:
        return None


def analysed(data: bytes, launch: Launch) -> KernelCode | None:
    """A launched kernel with its instructions, as far as they can be decoded here; None where `isa_hash` gives none."""
    return _analysed(data, launch.name, math.prod(launch.block))


@functools.lru_cache(maxsize=REMEMBERED)
def _analysed(data: bytes, name: str, threads: int) -> KernelCode | None:
    from pytest_attnperf.codeobject.analysis import Analyser
    from pytest_attnperf.codeobject.objects import read_object

    source = _source(name)
    try:
        wanted = "" if len(read_object(data, source).kernels) == 1 else name
        return Analyser().analyse(data, source, kernel=wanted, threads=threads)
    except CodeObjectError:
        return None


def _source(name: str) -> str:
    return f"the code object of {name}, as it was launched"


@dataclass(frozen=True)
class CodeReader:
    """How code objects are read."""

    isa_hash: Read = isa_hash
    analyse: Analyse = analysed


READER = CodeReader()


def with_isa(final: FinalReport, read: Read | None = None) -> FinalReport:
    """The report with the ISA hash of every launch whose object came with it, and without objects and their ids.

    read   READER's where None is given

    An object that is damaged, too large or not what its id says is no object: its launches stay unknown.
    """
    read = READER.isa_hash if read is None else read
    objects = _objects(final)
    calls: defaultdict[Launch, float] = defaultdict(float)
    for launch in final.launches:
        data = objects.get(launch.object_id)
        found = None if data is None else read(data, launch.name)
        known = replace(launch, object_id="", isa_hash=found or launch.isa_hash, calls=0.0)
        calls[known] += launch.calls  # two objects of one machine code, made from other paths, are one kind of work
    launches = tuple(replace(launch, calls=round(count, 4)) for launch, count in calls.items())
    return replace(final, launches=launches, code={})


def kernel_codes(final: FinalReport, analyse: Analyse | None = None) -> dict[str, KernelCode]:
    """What is known of the launched kernels, by ISA hash.

    final     as it came from the worker, with its objects
    analyse   READER's where None is given
    """
    analyse = READER.analyse if analyse is None else analyse
    objects = _objects(final)
    found = (analyse(objects[launch.object_id], launch) for launch in final.launches if launch.object_id in objects)
    return {code.isa_hash: code for code in found if code is not None}


def launched(launches: Iterable[Launch], codes: Mapping[str, KernelCode]) -> tuple[KernelCode, ...]:
    """What is known of these launches' kernels: each once for every size it was launched with, without source lines.

    launches   with their ISA hashes
    codes      what is known of kernels, by ISA hash
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


def _objects(final: FinalReport) -> dict[str, bytes]:
    """The objects of a report by id."""
    return dict(_sound(final))


def _sound(final: FinalReport) -> Iterator[tuple[str, bytes]]:
    for identity, text in final.code.items():
        try:
            data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), OBJECT_BYTES_MOST)
        except (binascii.Error, ValueError, zlib.error):
            continue
        if hashlib.sha256(data).hexdigest()[:OBJECT_ID_DIGITS] == identity:
            yield identity, data
