"""KernelBench's problems as gated cases: a file with `Model`, and a candidate's with `ModelNew`.

    from pytest_attnperf.problems import kernelbench

    @pytest.mark.parametrize("problem", kernelbench.list_problems("KernelBench/level1", "candidates"), ids=str)
    def test_candidate(attnperf, problem):
        problem.gate(attnperf)

https://github.com/ScalingIntelligence/KernelBench. Both models get the parameters and buffers that `Model` has for a
seed: they are inputs of the case beside those of `get_inputs()`, so that the judge may draw, widen and plant them.
Models run in training mode, as there. The code of both files is executed in the worker: read it before.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import unittest
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure.function_file import find_function, load_file
from pytest_attnperf.problems.source_modules import clean_name

if TYPE_CHECKING:
    from types import ModuleType

    import torch

    from pytest_attnperf.plugin.fixtures import CaseHandle

BYTES_MOST = 8 << 30
"""Inputs and parameters of a problem; the judge keeps about six copies of them."""

DTYPES = ("float32", "float16", "bfloat16")

SAMPLE = re.compile(r"level_(\d+)_problem_(\d+)_sample_\d+.*")
"""File names of KernelBench's own runs; a problem's file begins with its number, in a folder 'level1'."""

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Buffers that a layer in training mode writes to, and does not read: each call gets copies."""


@dataclass(frozen=True)
class ModelProblem:
    """A problem's file and a candidate's; str() of it is the test's id.

    signed      elements of inputs that `torch.rand` drew lie in [-1, 1): they can be planted, and a lost relu shows
    constants   values of the problem's global names, such as batch_size, in the place of its own
    dtype       of floating-point inputs and parameters
    """

    problem: Path
    candidate: Path
    signed: bool = False
    dtype: str = "float32"
    constants: Mapping[str, Any] = field(default_factory=dict)
    bytes_most: int = BYTES_MOST

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype is {self.dtype!r}; it must be one of {', '.join(DTYPES)}")

    def __str__(self) -> str:
        names = (clean_name(self.problem.stem), clean_name(self.candidate.stem))
        return "-".join(dict.fromkeys(names))

    def gate(self, attnperf: CaseHandle, **options: Any) -> None:
        """Proves the candidate right; with `--attnperf` also measures and gates it. `options` are those of
        `attnperf.gate`. Skips the test, which makes the case UNSUPPORTED, where this cannot be judged here."""
        models = _Models(self)
        if reason := models.unsupported_reason():
            raise unittest.SkipTest(reason)
        attnperf.gate(
            clean_name(self.candidate.stem), models.call, reference=models.reference, inputs=models.make_inputs,
            **{"contiguous": True, **options},
        )  # fmt: skip


@dataclass
class _Models:
    """The functions that `attnperf.gate` takes, for one problem. Both files are imported when it is made."""

    problem: ModelProblem
    names: tuple[str, ...] = ()
    _numbers: dict[int, Any] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        self._plain = _load(self.problem.problem)
        self._own = _load(self.problem.candidate)
        if unknown := [name for name in self.problem.constants if not hasattr(self._plain, name)]:
            raise UsageError(f"{self.problem.problem} has no constant {unknown[0]!r}")
        for name, value in self.problem.constants.items():
            setattr(self._plain, name, value)
        self._model = self._build(self._plain, "Model", 0)
        self._candidate = self._build(self._own, "ModelNew", 0)
        self.names = tuple(name for name, one in self._model.state_dict().items() if not _is_statistic(name))
        self._candidate_names = tuple(name for name in self._candidate.state_dict() if not _is_statistic(name))

    def unsupported_reason(self) -> str:
        """Returns why this problem cannot be judged here; '' if it can."""
        import torch

        if any(isinstance(one, torch.nn.modules.dropout._DropoutNd) and one.p > 0 for one in self._model.modules()):
            return "the model has a dropout of more than 0: right results differ from call to call"
        wanted = [tuple(self._model.state_dict()[name].shape) for name in self.names]
        found = [tuple(self._candidate.state_dict()[name].shape) for name in self._candidate_names]
        if wanted != found:
            return (
                f"ModelNew has parameters and buffers {list(self._candidate_names)} not in the shapes and the order of "
                f"Model's {list(self.names)}: it cannot be given the same values"
            )
        size = sum(
            one.numel() * one.element_size()
            for one in (*self._model.state_dict().values(), *self._find_tensors().values())
        )
        if size > self.problem.bytes_most:
            return (
                f"inputs and parameters have {size / 2**30:.3g} GiB, more than {self.problem.bytes_most / 2**30:.3g} "
                "GiB; raise bytes_most, or give smaller constants"
            )
        return ""

    def make_inputs(self, seed: int) -> tuple[torch.Tensor, ...]:
        """Returns the tensors of get_inputs(), then parameters and buffers of a model that is built with this seed."""
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(seed)
        given = list(find_function(self._plain, "get_inputs", str(self.problem.problem))())
        self._numbers = {n: one for n, one in enumerate(given) if not isinstance(one, torch.Tensor)}
        self._count = len(given)
        own = [_sign(one) if self.problem.signed else one for one in given if isinstance(one, torch.Tensor)]
        state = self._build(self._plain, "Model", seed).state_dict()
        return tuple(self._convert(one).to(device) for one in (*own, *(state[name] for name in self.names)))

    @property
    def reference(self) -> Callable[..., Any]:
        """`Model` as a function of these tensors."""

        def compute(*tensors: torch.Tensor) -> Any:
            return self._run(self._model, self.names, tensors)

        return self._with_names(compute, self.problem.problem)

    @property
    def call(self) -> Callable[..., Any]:
        """`ModelNew` as a function of these tensors."""

        def compute(*tensors: torch.Tensor) -> Any:
            return self._run(self._candidate, self._candidate_names, tensors)

        return self._with_names(compute, self.problem.candidate)

    def _run(self, model: Any, names: tuple[str, ...], tensors: tuple[torch.Tensor, ...]) -> Any:
        import torch

        count = len(tensors) - len(names)
        left = iter(tensors[:count])
        given = [self._numbers[n] if n in self._numbers else next(left) for n in range(self._count)]
        state = dict(zip(names, tensors[count:], strict=True))
        widest = next((one.dtype for one in tensors if one.is_floating_point()), None)
        for name, one in model.state_dict().items():
            if _is_statistic(name):
                dtype = widest if one.is_floating_point() else one.dtype
                state[name] = one.to(tensors[0].device, dtype, copy=True)
        return torch.func.functional_call(model, state, tuple(given))

    def _build(self, module: ModuleType, name: str, seed: int) -> Any:
        """Returns the model of a module, built with the problem's own arguments after torch was seeded."""
        import torch

        path = self.problem.problem if name == "Model" else self.problem.candidate
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            arguments = find_function(self._plain, "get_init_inputs", str(self.problem.problem))()
            return find_function(module, name, str(path))(*arguments)

    def _convert(self, tensor: torch.Tensor) -> torch.Tensor:
        import torch

        dtype: torch.dtype = getattr(torch, self.problem.dtype)
        return tensor.detach().to(dtype) if tensor.is_floating_point() else tensor.detach()

    def _find_tensors(self) -> dict[int, torch.Tensor]:
        """Returns by number the tensors of get_inputs() on torch's meta device, where they take no memory; none of a
        function that cannot run so, whose inputs are then not bounded."""
        import torch

        try:
            with torch.device("meta"):
                given = find_function(self._plain, "get_inputs", str(self.problem.problem))()
            return {number: one for number, one in enumerate(given) if isinstance(one, torch.Tensor)}
        except Exception:  # any, because it is foreign code
            return {}

    def _with_names(self, function: Callable[..., Any], path: Path) -> Callable[..., Any]:
        """Names a function for baselines, and its parameters for messages: those of forward(), then the state's."""
        tensors = self._find_tensors()
        forward = [name for n, name in enumerate(inspect.signature(self._model.forward).parameters) if n in tensors]
        state = [re.sub(r"\W", "_", name) for name in self.names]
        if len(forward) == len(tensors) > 0 and len({*forward, *state}) == len(forward) + len(state):
            kind = inspect.Parameter.POSITIONAL_ONLY
            parameters = [inspect.Parameter(name, kind) for name in (*forward, *state)]
            function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        function.__module__, function.__qualname__ = "kernelbench", clean_name(path.stem)
        return function


def list_problems(
    problems: str | os.PathLike[str],
    candidates: str | os.PathLike[str],
    *,
    signed: bool = False,
    dtype: str = "float32",
    constants: Mapping[str, Any] | None = None,
    bytes_most: int = BYTES_MOST,
) -> list[ModelProblem]:
    """Returns every candidate with its problem, in the order of the candidates' names.

    problems     folder of files with `Model`, `get_inputs` and `get_init_inputs`, at any depth
    candidates   folder of files with `ModelNew`: named as the problem's file, or level_1_problem_23_sample_0_kernel.py

    Others are those of `ModelProblem`. Raises UsageError for a missing folder, a candidate without a problem, and where
    there is no candidate.
    """
    known = _list_files(problems)
    found = []
    for path in sorted(_list_files(candidates)):
        matching = [one for one in known if one.stem == path.stem or _is_sample_of(path, one)]
        if len(matching) != 1:
            raise UsageError(
                f"{path} fits {len(matching)} problems of {problems}; name it as its problem's file, or "
                "level_LEVEL_problem_NUMBER_sample_0_kernel.py"
            )
        found.append(ModelProblem(matching[0], path, signed, dtype, constants or {}, bytes_most))
    if not found:
        raise UsageError(f"{candidates} has no Python file; a candidate is a file with ModelNew")
    return found


def _list_files(folder: str | os.PathLike[str]) -> list[Path]:
    root = Path(folder).resolve()
    if not root.is_dir():
        raise UsageError(f"{root} is no folder of Python files")
    return sorted(path for path in root.rglob("*.py") if path.is_file() and not path.name.startswith(("_", ".")))


def _is_sample_of(candidate: Path, problem: Path) -> bool:
    matched = SAMPLE.fullmatch(candidate.stem)
    if matched is None:
        return False
    level, number = matched.groups()
    return problem.name.startswith(f"{number}_") and problem.parent.name == f"level{level}"


def _load(path: Path) -> ModuleType:
    digest = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:8]
    return load_file(str(path), f"kernelbench_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}_{digest}")


def _sign(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of [0, 1) with its values spread over [-1, 1); any other unchanged."""
    import torch

    if not tensor.is_floating_point() or tensor.numel() < 64 or not 0 <= float(tensor.min()) <= float(tensor.max()) < 1:
        return tensor
    uniform = abs(float(tensor.mean()) - 0.5) < 0.15 and abs(float(torch.var(tensor)) - 1 / 12) < 0.04
    return tensor * 2 - 1 if uniform else tensor


def _is_statistic(name: str) -> bool:
    return name.rpartition(".")[2] in STATISTICS
