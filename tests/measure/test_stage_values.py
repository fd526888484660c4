from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_attnperf.backends import Pipeline, Stage, Values
from pytest_attnperf.measure.cold_cache import ColdSize
from pytest_attnperf.measure.stage_timing import KeptStage, cold_copies, run_stages

Run = Callable[[Values], Values]


def pipeline(*runs: Run, inputs: tuple[str, ...] = ("x", "w")) -> Pipeline:
    """Stages named by number."""
    return Pipeline(inputs, tuple(Stage(str(number), run) for number, run in enumerate(runs)), ("out",))


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    """Two inputs of 1 KiB."""
    return torch.arange(256.0).reshape(16, 16), torch.eye(16)


def kept_of(run: Run, inputs: tuple[torch.Tensor, ...]) -> KeptStage:
    """A stage behind one that has made y."""
    stages, _ = run_stages(pipeline(lambda v: {"y": v["x"] * 2, "rows": v["w"][4:8]}, run), inputs)
    return stages[1]


def test_every_value_is_kept_as_its_stage_found_it() -> None:
    """A name that is replaced is what it was for the stage before, and a name that is freed is gone behind it."""
    stages = (Stage("a", lambda v: {"x": v["x"] + 1}), Stage("b", lambda v: {"out": v["x"] * 2}, ("x",)))
    x = torch.zeros(2)
    kept, results = run_stages(Pipeline(("x",), (*stages, Stage("c", lambda v: {})), ("out",)), (x,))
    assert [one.before.get("x", x).tolist() for one in kept] == [[0, 0], [1, 1], [0, 0]]
    assert "x" not in kept[2].before
    assert results[0].tolist() == [2, 2]


def test_what_a_stage_gives_again_goes_where_later_stages_read() -> None:
    """Other values fill the memory of the first; a view of that memory is left alone."""
    kept = kept_of(lambda v: {"out": v["y"] + v["x"], "half": v["y"][:8]}, tensors())
    kept.before["x"].zero_()
    kept.store_values(kept.run())
    assert torch.equal(kept.gave["out"], kept.before["y"])
    assert kept.in_place
    assert not kept_of(lambda v: {"out": v["y"] + 1}, tensors()).in_place


@pytest.mark.parametrize(
    "read",
    [
        lambda v: {"out": v["rows"] * 1},
        lambda v: {"out": v.get("rows") * 1},
        lambda v: {"out": dict(**v)["rows"] * 1},
        lambda v: {"out": dict(v.items())["rows"] * 1},
    ],
)
def test_inputs_that_are_read_are_copied_and_views_of_them_move(read: Run) -> None:
    """However a stage asks for rows of an input, each copy holds the same rows at another address."""
    x, w = tensors()
    kept = kept_of(read, (x, w))
    copies = cold_copies(kept, (x, w), ColdSize(8 * 1024, "assumed"))
    assert copies is not None
    assert copies.note == "assumed"
    assert len(copies.others) in (3, 7)  # 8 KiB of w, or of x and w where everything is gone through
    before = w.clone()
    w.zero_()
    assert torch.equal(copies.calls[0]()["out"], before[4:8])


def test_what_earlier_stages_made_is_not_copied() -> None:
    """A stage that reads no input, or so little that too many copies would be needed, has no copies."""
    x, w = tensors()
    assert cold_copies(kept_of(lambda v: {"out": v["y"] * 1}, (x, w)), (x, w), ColdSize(8192)) is None
    assert cold_copies(kept_of(lambda v: {"out": v["w"] * 1}, (x, w)), (x, w), ColdSize(2001 * 1024)) is None
    reads_both = cold_copies(kept_of(lambda v: {"out": v["y"] @ v["w"]}, (x, w)), (x, w), ColdSize(4096))
    assert reads_both is not None
    x.zero_()
    assert torch.equal(reads_both.calls[0]()["out"], torch.arange(256.0).reshape(16, 16) * 2)
