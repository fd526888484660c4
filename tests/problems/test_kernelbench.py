from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.problems import kernelbench
from tests.problems_folder import CANDIDATE, write_problem


def test_inputs_are_the_tensors_and_the_state(tmp_path: Path) -> None:
    """By the seed; numbers are left where they stand, statistics of a norm are no inputs."""
    torch: Any = pytest.importorskip("torch")
    (problem, *_) = kernelbench.list_problems(*_folders(write_problem(tmp_path)), constants={"rows": 64})
    models = kernelbench._Models(problem)
    first, again, other = (models.make_inputs(seed) for seed in (1, 1, 2))
    assert [tuple(one.shape) for one in first] == [(64, 16), (16, 16), (16,), (16,), (16,)]
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[1], other[1])
    assert torch.equal(models.call(*first), models.reference(*first))


def test_a_uniform_input_gets_signs(tmp_path: Path) -> None:
    """Only with `signed`, and only what looks as torch.rand draws it."""
    torch: Any = pytest.importorskip("torch")
    folders = _folders(write_problem(tmp_path))
    for signed in (False, True):
        (problem, *_) = kernelbench.list_problems(*folders, constants={"rows": 64}, signed=signed)
        assert bool((kernelbench._Models(problem).make_inputs(0)[0] < 0).any()) is signed
    weights = torch.rand(100).softmax(0)
    assert torch.equal(kernelbench._sign(weights), weights)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"bytes_most": 1000}, "inputs and parameters have .* GiB, more than .* raise bytes_most, or give smaller"),
        ({"constants": {"rows": 1 << 40}}, "inputs and parameters have"),
    ],
)
def test_what_is_too_large_is_not_made(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    """The size is found on torch's meta device, which takes no memory."""
    import re

    pytest.importorskip("torch")
    (problem, *_) = kernelbench.list_problems(*_folders(write_problem(tmp_path)), **changed)
    assert re.match(said, kernelbench._Models(problem).unsupported_reason())


def test_a_dropout_is_unsupported(tmp_path: Path) -> None:
    """Its results differ from call to call."""
    pytest.importorskip("torch")
    folder = write_problem(tmp_path)
    path = folder / "problems" / "level1" / "7_Layer.py"
    path.write_text(path.read_text().replace("nn.BatchNorm1d(width)", "nn.Dropout(0.1)"))
    (problem, *_) = kernelbench.list_problems(*_folders(folder))
    assert "dropout of more than 0" in kernelbench._Models(problem).unsupported_reason()


def test_what_is_asked_for_must_exist(tmp_path: Path) -> None:
    """Folders, a candidate's problem, a constant, a dtype."""
    pytest.importorskip("torch")
    folder = write_problem(tmp_path)
    with pytest.raises(UsageError, match="nowhere is no folder of Python files"):
        kernelbench.list_problems(folder / "nowhere", folder / "candidates")
    (folder / "empty").mkdir()
    with pytest.raises(UsageError, match="has no Python file; a candidate is a file with ModelNew"):
        kernelbench.list_problems(folder / "problems", folder / "empty")
    with pytest.raises(UsageError, match="dtype is 'fp8'; it must be one of float32, float16, bfloat16"):
        kernelbench.list_problems(*_folders(folder), dtype="fp8")
    (problem, *_) = kernelbench.list_problems(*_folders(folder), constants={"columns": 3})
    with pytest.raises(UsageError, match=r"7_Layer\.py has no constant 'columns'"):
        kernelbench._Models(problem)
    (folder / "candidates" / "level_2_problem_7_sample_0_kernel.py").write_text(CANDIDATE)
    with pytest.raises(UsageError, match=r"sample_0_kernel\.py fits 0 problems of .*; name it as its problem's file"):
        kernelbench.list_problems(*_folders(folder))


def _folders(folder: Path) -> tuple[Path, Path]:
    return folder / "problems", folder / "candidates"
