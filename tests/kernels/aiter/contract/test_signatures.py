from __future__ import annotations

from pathlib import Path

import pytest

from kernels.aiter.backends import ENTRY_POINTS, MODULES
from kernels.aiter.signatures import EntryPoint
from tests.kernels.aiter.contract.source import Source, absent, misfits


@pytest.mark.parametrize("point", ENTRY_POINTS, ids=lambda point: point.name)
def test_every_call_fits_this_aiter(source: Source, point: EntryPoint) -> None:
    """The function exists where the adapter looks for it, takes what it gives, and asks for nothing else.

    A function that is known to have come later, or to be gone, may be absent: the adapter says UNSUPPORTED then, or
    takes another one. One that is gone unknown to us, or takes other parameters, needs the adapter changed.
    """
    if point.period and absent(source, point):
        pytest.skip(f"{point.name} {point.period}, and is not in this tree: its backend does without or is UNSUPPORTED")
    assert misfits(source, point) == []


TREE = """
from ..jit.chip import arch, gone
from ..jit.nowhere import lost
def dense(q, k, scale, causal, sink=None, *, out=None): ...
def wide(q, **options): ...
def bare(q, new): ...
"""
NEW, OLD = "aiter.ops.new.dense", "aiter.ops.dense"


@pytest.fixture
def synthetic(tmp_path: Path) -> Source:
    """A tree with a module at its old place."""
    (tmp_path / "aiter" / "ops").mkdir(parents=True)
    (tmp_path / "aiter" / "ops" / "dense.py").write_text(TREE, encoding="utf-8")
    (tmp_path / "aiter" / "ops" / "__init__.py").touch()
    (tmp_path / "aiter" / "jit").mkdir()
    (tmp_path / "aiter" / "jit" / "chip.py").write_text("def arch(): ...", encoding="utf-8")
    return Source(tmp_path)


@pytest.mark.parametrize(
    ("point", "wrong"),
    [
        (EntryPoint(OLD, "dense", needed=("q", "k", "scale", "causal", "out")), []),
        (EntryPoint(NEW, "dense", positional=("q", "k", "scale", "causal"), old=OLD), []),
        (EntryPoint(OLD, "dense", ("q", "k", "scale", "causal"), offered=("splits",)), []),
        (EntryPoint(OLD, "wide", needed=("q", "anything")), []),
        (EntryPoint(NEW, "dense"), ["no module aiter.ops.new.dense"]),
        (EntryPoint(NEW, "dense", old="aiter.dense"), ["no module aiter.ops.new.dense or aiter.dense"]),
        (EntryPoint(OLD, "sparse"), ["aiter.ops.dense has no sparse"]),
        (
            EntryPoint(OLD, "dense", needed=("q", "k", "softmax_scale", "causal")),
            [
                "takes no softmax_scale; it takes q, k, scale, causal, sink, out",
                "asks for scale, which the adapter does not give",
            ],
        ),
        (
            EntryPoint(OLD, "dense", positional=("q", "k", "causal", "scale")),
            ["takes q, k, scale, causal in this order, not q, k, causal, scale"],
        ),
        (EntryPoint(OLD, "arch"), []),
        (EntryPoint(OLD, "gone"), ["aiter.ops.dense has no gone"]),
        (EntryPoint(OLD, "lost"), ["aiter.ops.dense has no lost"]),
        (EntryPoint(OLD, "bare", needed=("q",)), ["asks for new, which the adapter does not give"]),
    ],
)
def test_misfits_are_found(synthetic: Source, point: EntryPoint, wrong: list[str]) -> None:
    """A module or function that is gone, a renamed or new parameter and a changed order are told; a fit is none."""
    assert misfits(synthetic, point) == wrong


def test_absence_is_told_from_a_misfit(synthetic: Source) -> None:
    """A function or module that is not there is absent, whatever else a point demands; one that differs is not."""
    assert absent(synthetic, EntryPoint(OLD, "sparse"))
    assert absent(synthetic, EntryPoint(NEW, "dense"))
    assert not absent(synthetic, EntryPoint(NEW, "dense", needed=("other",), old=OLD))


def test_every_adapter_lists_what_it_calls() -> None:
    """Each module with parts has entry points, and every point demands something, but for the one without parameters.

    That no adapter takes a function out of aiter that is not listed is seen by its own tests (`only_what_is_listed`).
    """
    assert all(module.ENTRY_POINTS and module.PARTS for module in MODULES)
    assert {point.function for point in ENTRY_POINTS if not (point.needed or point.positional)} == {"get_gfx"}


def test_the_time_of_a_function_is_told() -> None:
    """From which release on, up to which, both, or always."""
    assert EntryPoint(OLD, "x").period == ""
    assert EntryPoint(OLD, "x", since="v0.1.12").period == "came with v0.1.12"
    assert EntryPoint(OLD, "x", until="v0.1.17").period == "went after v0.1.17"
    both = EntryPoint(OLD, "x", since="v0.1.12", until="v0.1.17")
    assert both.period == "came with v0.1.12 and went after v0.1.17"
