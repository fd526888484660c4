"""What a look's machine code makes of its case, through the judge: hashes are stored, objects are not."""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.records import Fingerprint, Launch, Verdict
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.plausibility import CodeReader
from pytest_attnperf.session.settings import RunMode

if TYPE_CHECKING:
    from tests.session.conftest import Bench

HONEST = {"matrix": 16, "global_store_16B": 4}


def ran(source: str, name: str = "forward", grid: int = 8) -> dict[str, Any]:
    """The report of a kernel that was compiled from this."""
    data = source.encode()
    identity = hashlib.sha256(data).hexdigest()[:32]
    launch = Launch(name, grid=(grid, 1, 1), block=(128, 1, 1), object_id=identity)
    code = {identity: base64.b64encode(zlib.compress(data)).decode()}
    return {"final": {"launches": (launch,), "code": code, "matrix": True}}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the analyser finds in every kernel: change it in place. The hash of an object is its text before a blank."""
    found = dict(HONEST)

    def analyse(data: bytes, launch: Launch) -> KernelCode:
        isa, block = data.decode().split()[0], 128
        return KernelCode(
            launch.name, "gfx942", 8, 0, 8, 8, 0, 0, 0, 0, 0, 0, block, block, 64, None, False, 64, isa, dict(found)
        )

    reader = CodeReader(lambda data, name: data.decode().split()[0], analyse)
    monkeypatch.setattr(plausibility, "READER", reader)
    return found


@pytest.fixture
def amd(bench: Bench, counts: dict[str, int]) -> Bench:
    """Both sides run on an AMD GPU; the case is stored."""
    bench.pool.machine = bench.base.machine = Fingerprint({"arch": "gfx942", "product": "fake1"}, {"driver": "1"})
    bench.record(**ran("a1 in one folder"))
    return bench


def test_baselines_hold_hashes_and_no_objects(amd: Bench) -> None:
    """A stored launch has its ISA hash; neither its object nor the object's id is in the file or in the result."""
    (entry,) = amd.store.load("fake", "fake1", "prefill").values()
    (launch,) = entry.entry.launches
    assert (launch.isa_hash, launch.object_id) == ("a1", "")
    (path,) = amd.store.roots[0].rglob("prefill.json")
    assert '"isa_hash":"a1"' in path.read_text()
    assert "object_id" not in path.read_text()


def test_unchanged_code_is_no_cause_of_a_slowdown(amd: Bench) -> None:
    """The same machine code from another folder is SLOWER all the same, and said to be unchanged."""
    result = amd.judge(time_us=110.0, **ran("a1 in another folder"))
    assert (result.verdict, result.fails) == (Verdict.SLOWER, True)
    (note,) = result.notes
    assert note.startswith("unchanged: the same machine code was launched in the same way as when the baseline was")
    assert amd.judge(**ran("a1 in another folder")).notes == ()


def test_other_code_is_named(amd: Bench) -> None:
    """Another compilation, and the same one with another grid, are changes also where the time is the same."""
    (note,) = amd.judge(**ran("b2")).notes
    assert note == "what ran has changed since the baseline: forward was compiled to other machine code"
    (note,) = amd.judge(**ran("a1", grid=4)).notes
    assert note.endswith(": the same machine code, launched with another grid")


def test_pairs_of_unchanged_code_are_named(amd: Bench) -> None:
    """Against a base side, too; a base side of other code is a difference, and equal times need no word."""
    amd.against_base(**ran("a1 there"))
    result = amd.judge(time_us=110.0, **ran("a1 here"))
    assert result.verdict is Verdict.SLOWER
    assert result.notes[-1].startswith("unchanged: the same machine code was launched in the same way as on the base")
    amd.against_base(**ran("a1 there", name="old name"), everything=True)
    same = amd.judge(**ran("a1 here"))
    assert (same.verdict, same.against, same.notes) == (Verdict.SAME, "main (4f2c1ab)", ())
    amd.against_base(**ran("b2"))
    other = amd.judge(time_us=110.0, **ran("a1 here"))
    assert other.notes[-1] == "what ran differs from the base side: forward was compiled to other machine code"


@pytest.mark.parametrize("mode", [RunMode.GATE, RunMode.UPDATE])
@pytest.mark.parametrize(
    ("lost", "text"),
    [("global_store_16B", "forward writes no result"), ("matrix", "the backend promises matrix instructions")],
)
def test_code_that_cannot_be_right_is_suspicious(
    amd: Bench, counts: dict[str, int], mode: RunMode, lost: str, text: str
) -> None:
    """A measured kernel without a store, or without the matrix instructions that were promised, is neither gated nor
    recorded, however right its result looked."""
    del counts[lost]
    result = amd.judge(mode, **ran("a1"))
    assert (result.verdict, result.fails) == (Verdict.SUSPICIOUS, True)
    assert result.summary.startswith(text)
    assert result.launches[0].isa_hash == "a1"


def test_nvidia_kernels_are_not_judged_by_their_code(bench: Bench, counts: dict[str, int]) -> None:
    """The rule is one of AMD's code objects: on other devices nothing is taken apart."""
    del counts["global_store_16B"]
    assert bench.judge(**ran("a1")).verdict is Verdict.NO_BASELINE


def test_what_is_not_timed_is_not_judged_by_its_code(amd: Bench, counts: dict[str, int]) -> None:
    """A run that only proves says RIGHT of a right result, and INCORRECT stays INCORRECT."""
    del counts["global_store_16B"]
    assert amd.judge(RunMode.CHECK, **ran("a1")).verdict is Verdict.RIGHT
    assert amd.judge(fault="wrong", **ran("a1")).verdict is Verdict.INCORRECT


def test_a_timed_case_says_what_its_kernels_are(bench: Bench, counts: dict[str, int]) -> None:
    """Registers and instructions of what ran are in the result on every device, as launched, without source lines."""
    (code,) = bench.judge(**ran("a1")).code
    assert (code.isa_hash, code.threads, code.instructions, code.lines) == ("a1", 128, counts, ())


def test_what_is_not_timed_is_not_taken_apart(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that only proves asks no disassembler."""

    def analyse(data: bytes, launch: Launch) -> KernelCode:
        raise AssertionError(f"{launch.name} was taken apart")

    monkeypatch.setattr(plausibility, "READER", CodeReader(lambda data, name: "a1", analyse))
    result = bench.judge(RunMode.CHECK, **ran("a1"))
    assert (result.verdict, result.code) == (Verdict.RIGHT, ())
    assert result.launches[0].isa_hash == "a1"
