"""Code objects of a report: read by an injected reader, dropped, and never more than what their id says."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import threading
import zlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from pytest_attnperf.baselines.schema import to_plain as stored_form
from pytest_attnperf.codeobject import objects as objects_of
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records import Launch
from pytest_attnperf.records.code import KernelCode, KernelObject, SourceLine
from pytest_attnperf.records.final_report import FinalReport
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.plausibility import (
    CodeReader,
    analyse_launch,
    find_suspicious_code,
    isa_hash,
    kernel_codes,
    list_launched_kernels,
    with_isa_hashes,
)
from pytest_attnperf.workers import protocol

OBJECTS = Path(__file__).parents[1] / "data/code_objects"
ONE, OTHER = b"\x7fELF one", b"\x7fELF other"
FORWARD = Launch("forward", grid=(8, 1, 1), block=(128, 1, 1), calls=2.0)


def identity(data: bytes) -> str:
    """The id of an object."""
    return hashlib.sha256(data).hexdigest()[:32]


def packed(data: bytes) -> str:
    """As a worker sends it."""
    return base64.b64encode(zlib.compress(data)).decode()


def report(*launches: Launch, objects: tuple[bytes, ...] = (ONE, OTHER), **code: str) -> FinalReport:
    """A report with these launches and objects."""
    return FinalReport(launches=launches, code={**{identity(data): packed(data) for data in objects}, **code})


def of(data: bytes, **changed: Any) -> Launch:
    """A launch of a kernel of this object."""
    return replace(FORWARD, object_id=identity(data), **changed)


def spelled(data: bytes, name: str) -> str | None:
    """A reader whose hash says what it was asked."""
    return f"{name} of {data[5:].decode()}"


def code(isa: str, arch: str = "gfx942", name: str = "forward") -> KernelCode:
    """A kernel of this machine code."""
    return KernelCode(name, arch, 8, 0, 8, 8, 0, 0, 0, 0, 0, 0, 128, 128, 64, None, False, 64, isa)


def test_every_launch_whose_object_came_has_its_hash() -> None:
    """The reader is asked by object and name; afterwards neither objects nor their ids are left."""
    copy = Launch("Memcpy DtoD", "copy", grid=(64,))
    final = with_isa_hashes(report(of(ONE), of(OTHER, name="backward"), copy, replace(FORWARD, name="gemm")), spelled)
    assert [(launch.name, launch.isa_hash) for launch in final.launches] == [
        ("forward", "forward of one"),
        ("backward", "backward of other"),
        ("Memcpy DtoD", ""),
        ("gemm", ""),
    ]
    assert {launch.object_id for launch in final.launches} == {""}
    assert final.code == {}
    assert with_isa_hashes(final, spelled) == final


def test_objects_of_one_machine_code_are_one_kind_of_work() -> None:
    """The same kernel compiled in two folders has two objects and one hash; its calls are counted together."""
    final = with_isa_hashes(report(of(ONE), of(OTHER, calls=0.5)), lambda data, name: "a1")
    assert final.launches == (replace(FORWARD, isa_hash="a1", calls=2.5),)


def test_what_cannot_be_read_stays_unknown() -> None:
    """A reader that gives nothing leaves the launch without a hash and without an object."""
    assert with_isa_hashes(report(of(ONE)), lambda data, name: None).launches == (FORWARD,)


@pytest.mark.parametrize(
    "text",
    [
        "no base64!",
        base64.b64encode(b"no zlib").decode(),
        packed(OTHER),
        packed(ONE)[:8],
        "\u00e9",
        "",
    ],
)
def test_what_is_not_the_object_that_its_id_says_is_not_read(text: str) -> None:
    """Damaged text, text cut short and another object under the id are no object: nobody may believe their hash."""
    final = replace(report(of(ONE)), code={identity(ONE): text})
    assert with_isa_hashes(final, spelled).launches == (FORWARD,)
    assert kernel_codes(final, lambda data, launch: code("a1")) == {}


def test_an_object_beyond_the_limit_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What inflates to more than a worker may send is left alone."""
    monkeypatch.setattr(plausibility, "OBJECT_BYTES_MOST", len(ONE))
    final = with_isa_hashes(report(of(ONE), of(OTHER, name="backward")), spelled)
    assert [launch.isa_hash for launch in final.launches] == ["forward of one", ""]


def test_kernels_are_known_by_their_hash() -> None:
    """An analyser is asked once for each launch with an object; what it does not know is left out."""
    asked = []

    def analyse(data: bytes, launch: Launch) -> KernelCode | None:
        asked.append((data, launch.name))
        return code("a1") if data == ONE else None

    final = report(of(ONE), of(OTHER, name="backward"), replace(FORWARD, name="gemm"))
    assert kernel_codes(final, analyse) == {"a1": code("a1")}
    assert asked == [(ONE, "forward"), (OTHER, "backward")]


def test_the_session_reads_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no reader is given the session's own is asked."""
    monkeypatch.setattr(plausibility, "READER", CodeReader(spelled, lambda data, launch: code("a1")))
    assert with_isa_hashes(report(of(ONE))).launches[0].isa_hash == "forward of one"
    assert kernel_codes(report(of(ONE))).keys() == {"a1"}


def test_a_kernel_is_named_once_for_every_size_it_was_launched_with() -> None:
    """One entry per machine code, threads and dynamic LDS; what is unknown, and what is no kernel, is absent."""
    known = replace(code("a1"), lines=(SourceLine("k.hip", 3, "x = y;", {"global_load_4B": 1}),))
    one = replace(FORWARD, isa_hash="a1", shared_bytes=512)
    other_size = replace(one, block=(64, 1, 1))
    copy = replace(one, kind="copy")
    found = list_launched_kernels(
        [one, replace(one, grid=(1, 1, 1)), other_size, replace(one, isa_hash="b2"), copy], {"a1": known}
    )
    assert [(each.threads, each.lds_dynamic_bytes, each.lines) for each in found] == [(128, 512, ()), (64, 512, ())]


@pytest.mark.parametrize(
    ("arch", "shared_bytes", "dynamic"), [("sm_90", 1536, 512), ("sm_90", 0, 0), ("gfx942", 512, 512)]
)
def test_static_lds_is_not_counted_twice(arch: str, shared_bytes: int, dynamic: int) -> None:
    """What a launch states holds the static part on NVIDIA, and does not on AMD."""
    known = replace(code("a1", arch), lds_static_bytes=1024)
    (found,) = list_launched_kernels([replace(FORWARD, isa_hash="a1", shared_bytes=shared_bytes)], {"a1": known})
    assert (found.lds_static_bytes, found.lds_dynamic_bytes) == (1024, dynamic)


def test_an_object_is_taken_apart_once(monkeypatch: pytest.MonkeyPatch, objects: None) -> None:
    """Cases of other shapes that launch the same kernel do not wait for the disassembler again; other threads do."""
    asked: list[int] = []
    analyser: Any = sys.modules["pytest_attnperf.codeobject.analysis"]
    read = analyser.Analyser.analyse

    def analyse(self: Any, *arguments: Any, threads: int, **named: Any) -> KernelCode:
        asked.append(threads)
        found: KernelCode = read(self, *arguments, threads=threads, **named)
        return found

    monkeypatch.setattr(analyser.Analyser, "analyse", analyse)
    launches = (FORWARD, replace(FORWARD, grid=(1, 1, 1)), replace(FORWARD, block=(64, 1, 1)))
    assert all(analyse_launch(b"asked_once", launch) is not None for launch in launches)
    assert asked == [128, 64]


def test_what_a_case_has_loaded_is_taken_apart_while_it_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for it afterwards, another thread has done it; what another case had loaded is forgotten, what is no object
    is left out, and with few cores nothing is begun."""
    asked: list[tuple[bytes, str, str]] = []

    def analyse(data: bytes, name: str, threads: int) -> KernelCode:
        asked.append((data, name, threading.current_thread().name.rpartition("_")[0]))
        return code(name)

    monkeypatch.setattr(plausibility, "_analyse_object", analyse)
    monkeypatch.setattr(os, "cpu_count", lambda: plausibility.CORES_LEAST)
    plausibility.read_ahead([KernelObject("forward", 128, packed(ONE)), KernelObject("bad", 64, "no base64!")])
    assert [analyse_launch(ONE, FORWARD), analyse_launch(ONE, FORWARD)] == [code("forward")] * 2
    assert asked == [(ONE, "forward", "attnperf-code"), (ONE, "forward", "")]
    plausibility.read_ahead([KernelObject("forward", 128, packed(OTHER))])
    plausibility.read_ahead([])
    assert plausibility._ahead == {}
    monkeypatch.setattr(os, "cpu_count", lambda: plausibility.CORES_LEAST - 1)
    plausibility.read_ahead([KernelObject("forward", 128, packed(ONE))])
    assert plausibility._ahead == {}


def test_a_report_crosses_the_protocol_whole() -> None:
    """What a worker sends is what the controller reads, objects and the promise of matrix instructions included."""
    final = replace(report(of(ONE)), matrix=True)
    line = json.dumps(protocol.to_plain(final))
    assert msgspec.convert(json.loads(line), FinalReport) == final


def test_what_is_stored_holds_no_object_id() -> None:
    """Object ids mean nothing outside of a run: a stored launch has its hash and not even the field."""
    stored = stored_form(of(ONE, isa_hash="a1"))
    assert stored["isa_hash"] == "a1"
    assert "object_id" not in stored
    assert msgspec.convert(stored, Launch) == replace(FORWARD, isa_hash="a1")


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object names its kernels, separated by spaces, whose hashes are the names in capitals; 'broken' is none."""

    def read_object(data: bytes, source: str) -> Any:
        names = data.decode().split()
        if names == ["broken"]:
            raise CodeObjectError(f"{source}: no ELF file")
        kernels = tuple(SimpleNamespace(code=code(name.upper(), name=name)) for name in names)
        return SimpleNamespace(kernels=kernels)

    class Analyser:
        def __init__(self, folder: Path | None) -> None:
            """Remembers nothing."""

        def analyse(self, data: bytes, source: str, *, kernel: str, threads: int) -> KernelCode:
            found: KernelCode = objects_of.select_kernel(read_object(data, source), kernel, source).code
            return replace(found, threads=threads)

    module: Any = ModuleType("pytest_attnperf.codeobject.analysis")
    module.Analyser = Analyser
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(objects_of, "read_object", read_object)


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize(
    ("data", "name", "found"),
    [
        (b"forward", "forward", "FORWARD"),
        (b"_Z7forwardPf", "forward(float*)", "_Z7FORWARDPF"),
        (b"forward backward", "backward", "BACKWARD"),
        (b"forward backward", "other", None),
        (b"broken", "forward", None),
    ],
)
def test_objects_are_read_by_name(data: bytes, name: str, found: str | None) -> None:
    """Of several kernels the one of the launch's name; a single one is it, whatever a profiler calls it."""
    assert isa_hash(data, name) == found
    known = analyse_launch(data, replace(FORWARD, name=name))
    assert (None if known is None else (known.isa_hash, known.threads)) == (None if found is None else (found, 128))


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"PTX text"])
def test_what_is_no_object_is_unknown(data: bytes) -> None:
    """The readers of the package refuse it, which is no error of the case."""
    assert (isa_hash(data, "forward"), analyse_launch(data, FORWARD)) == (None, None)


def stored_report(file: str, name: str) -> FinalReport:
    """A report of a launch of a stored object."""
    data = (OBJECTS / file).read_bytes()
    return report(of(data, name=name), objects=(data,))


def test_stored_objects_are_read() -> None:
    """Objects of both vendors give hashes of their own, and a kernel among two is found by its name."""
    launched = [
        ("saxpy.gfx942.co", "whatever a profiler calls it"),
        ("kernels.sm_90.cubin", "saxpy"),
        ("two_kernels.gfx90a.co", "first"),
        ("two_kernels.gfx90a.co", "second"),
    ]
    hashes = [with_isa_hashes(stored_report(*each)).launches[0].isa_hash for each in launched]
    assert {len(isa) for isa in hashes} == {32}
    assert len(set(hashes)) == 4
    assert with_isa_hashes(stored_report("two_kernels.gfx90a.co", "third")).launches[0].isa_hash == ""


@pytest.mark.parametrize(
    ("file", "problem"),
    [("saxpy.gfx942.co", "none of the kernels of a call has one for gfx942: saxpy"), ("mfma.gfx942.co", "")],
)
def test_stored_objects_are_taken_apart(file: str, problem: str) -> None:
    """A kernel without matrix instructions does not keep the promise of them, its honest twin does."""
    final = stored_report(file, "any")
    (known,) = kernel_codes(final).values()
    if known.undecoded:
        pytest.skip(known.undecoded)
    text = find_suspicious_code(with_isa_hashes(final).launches, {known.isa_hash: known}, matrix=True)
    assert bool(text) == bool(problem)
    assert (text or "").endswith(problem)


def test_a_kernel_is_taken_apart_once_for_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found is kept in a file, and read by the next process, whose tools are asked for nothing."""
    data, launch = (OBJECTS / "mfma.gfx942.co").read_bytes(), replace(FORWARD, name="")
    monkeypatch.setattr(plausibility, "_memory", None)
    plausibility.remember_under(tmp_path)
    plausibility._analyse_object.cache_clear()
    first = analyse_launch(data, launch)
    assert first is not None
    assert len(list(tmp_path.glob("*.json"))) == 1
    plausibility._analyse_object.cache_clear()
    monkeypatch.setattr("pytest_attnperf.codeobject.analysis.decode_machine_code", None)
    assert analyse_launch(data, launch) == first
