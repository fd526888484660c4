"""FlashInfer-Bench's problems (flashinfer-trace), and SOL-ExecBench's, as gated cases.

    from pytest_attnperf.problems import flashinfer_bench

    @pytest.mark.parametrize("problem", flashinfer_bench.list_problems("flashinfer-trace"), ids=str)
    def test_solution(attnperf, problem):
        problem.gate(attnperf)

A problem is a definition with one of its workloads and one of its solutions. The definition's reference is the one that
the judge computes truth and budget with; its tolerances are not used. The code of definitions and solutions is executed
in the worker, as any code of a test: read it before, or use `attnperf judge`.
"""

from __future__ import annotations

import fnmatch
import functools
import inspect
import os
import unittest
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.problems.attention_layout import AttentionLayout, find_attention
from pytest_attnperf.problems.source_modules import clean_name, load_function
from pytest_attnperf.problems.trace_export import write_trace
from pytest_attnperf.problems.trace_inputs import InputMaker, Values, find_dtype
from pytest_attnperf.problems.trace_schema import TraceDefinition, TraceSolution, TraceWorkload
from pytest_attnperf.problems.trace_set import TraceSet, read_trace_set

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.plugin.fixtures import CaseHandle

__all__ = ["TraceProblem", "list_problems", "write_trace"]

RUN = ("python", "triton", "pytorch")
"""Languages of solutions that can be run: Python that imports what it needs."""

BYTES_MOST = 8 << 30
"""Inputs and outputs of a problem; the judge keeps about six copies of them."""

REFERENCE = "reference"
"""Name of the solution that is the definition's own reference."""

RANDOM_OPERATIONS = ("sampling",)
"""op_type of problems whose right results differ from call to call."""

UUID_LETTERS = 8


@dataclass(frozen=True)
class TraceProblem:
    """A definition, one of its workloads and one of its solutions; str() of it is the test's id.

    file        the JSON file of the definition; `solution_file` that of the solution
    solution    None for the definition's own reference
    fault       why it cannot be used: gating it then is an error
    bytes_most  beyond this many bytes of inputs and outputs it is UNSUPPORTED
    """

    id: str
    root: Path
    fault: str = ""
    definition: TraceDefinition | None = None
    workload: TraceWorkload | None = None
    file: Path = Path()
    solution: TraceSolution | None = None
    solution_file: Path = Path()
    bytes_most: int = BYTES_MOST

    def __str__(self) -> str:
        return self.id

    @property
    def backend(self) -> str:
        """Name of the solution, in letters that a backend may have."""
        return clean_name(self.solution.name if self.solution else REFERENCE)

    def gate(self, attnperf: CaseHandle, **options: Any) -> None:
        """Proves the solution right on the workload; with `--attnperf` also measures and gates it. `options` are those
        of `attnperf.gate`, e.g. `costs` or `host_sync`. Skips the test, which makes the case UNSUPPORTED, where this
        cannot be judged here."""
        if not self.fault and (reason := self.unsupported_reason()):
            raise unittest.SkipTest(reason)
        case = _Case(self)
        usual = {"contiguous": True, "non_finite": case.attention.log_sums if case.attention else ()}
        attnperf.gate(self.backend, case.call, reference=case.reference, inputs=case.inputs, **{**usual, **options})

    def unsupported_reason(self) -> str:
        """Returns why this problem cannot be judged here, and what it takes; '' if it can."""
        definition, spec = self.definition, self.solution.spec if self.solution else None
        assert definition is not None
        assert self.workload is not None
        if definition.op_type in RANDOM_OPERATIONS:
            return f"{definition.op_type} draws random numbers: results have a distribution, which is not judged here"
        if spec is not None and spec.language not in RUN:
            return (
                f"the solution is written in {spec.language[:40]!r}, which must be compiled for a GPU"
                f"{f' and bound by {spec.binding[:40]!r}' if spec.binding else ''}: load it in a test of your own, and "
                f"gate it with attnperf.gate; run here are {', '.join(RUN)}"
            )
        size = definition.count_bytes(definition.sizes(self.workload.axes))
        if size > self.bytes_most:
            return (
                f"inputs and outputs have {size / 2**30:.3g} GiB, more than {self.bytes_most / 2**30:.3g} GiB; raise "
                "bytes_most of list_problems()"
            )
        try:
            for tensor in (*definition.inputs.values(), *definition.outputs.values()):
                find_dtype(tensor.dtype)
        except UnsupportedError as error:
            return str(error)
        return ""


@dataclass
class _Case:
    """The functions that `attnperf.gate` takes, for one problem. Code is loaded at their first call."""

    problem: TraceProblem
    attention: AttentionLayout | None = field(init=False, default=None)
    _numbers: Values = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.problem.definition is not None:
            self.attention = find_attention(self.problem.definition)

    @property
    def definition(self) -> TraceDefinition:
        """The problem's definition. Raises UsageError for a problem that cannot be used."""
        if self.problem.definition is None:
            raise UsageError(self.problem.fault)
        return self.problem.definition

    @functools.cached_property
    def maker(self) -> InputMaker:
        """Makes the inputs; loads the definition's own function for them, if it has one."""
        definition, name = self.definition, self.definition.custom_inputs_entrypoint
        custom = self._load_reference(name) if name else None
        assert self.problem.workload is not None
        return InputMaker(definition, self.problem.workload, self.problem.root, custom)

    @property
    def inputs(self) -> Callable[..., Any]:
        """The function that makes the tensors: one that plants keys if the problem is an attention that is recognised,
        else one whose tensors the judge plants."""

        def make_planted(seed: int, planted: bool) -> tuple[torch.Tensor, ...]:
            return self._make_tensors(seed, planted)

        def make_drawn(seed: int) -> tuple[torch.Tensor, ...]:
            return self._make_tensors(seed, False)

        return _name(make_planted if self.attention else make_drawn, "inputs", self.problem)

    @property
    def reference(self) -> Callable[..., Any]:
        """The definition's reference as a function of the tensors, with results by name in the definition's dtypes."""

        def compute(*tensors: torch.Tensor) -> dict[str, Any]:
            named = self._name_outputs(self._reference(*self._complete(tensors)), REFERENCE)
            wanted = {name: find_dtype(one.dtype) for name, one in self.definition.outputs.items()}
            return {name: value.to(wanted[name]) if hasattr(value, "to") else value for name, value in named.items()}

        return self._with_names(_name(compute, REFERENCE, self.problem))

    @property
    def call(self) -> Callable[..., Any]:
        """The solution as a function of the tensors, with results by name."""

        def compute(*tensors: torch.Tensor) -> dict[str, Any]:
            given = self._complete(tensors)
            if solution is None or not solution.spec.destination_passing_style:
                return self._name_outputs(self._solution(*given), self.problem.backend)
            outputs = self._allocate(tensors)
            self._solution(*given, *outputs.values())
            return outputs

        solution = self.problem.solution
        return self._with_names(_name(compute, self.problem.backend, self.problem))

    @functools.cached_property
    def _reference(self) -> Callable[..., Any]:
        return self._load_reference("run")

    @functools.cached_property
    def _solution(self) -> Callable[..., Any]:
        if (solution := self.problem.solution) is None:
            return self._load_reference("run")
        sources = {one.path: one.content for one in solution.sources}
        return load_function("solution", solution.name, self.problem.solution_file, sources, solution.spec.entry_point)

    def _load_reference(self, function: str) -> Callable[..., Any]:
        sources = {f"{REFERENCE}.py": self.definition.reference}
        return load_function(
            "definition", self.definition.name, self.problem.file, sources, f"{REFERENCE}.py::{function}"
        )

    def _make_tensors(self, seed: int, planted: bool) -> tuple[torch.Tensor, ...]:
        import torch

        values = self.maker.make(seed, "cuda" if torch.cuda.is_available() else "cpu")
        if planted and self.attention:
            values = self.attention.plant(values, seed)
        self._numbers = {name: one for name, one in values.items() if not isinstance(one, torch.Tensor)}
        return tuple(one for one in values.values() if isinstance(one, torch.Tensor))

    def _complete(self, tensors: Iterable[torch.Tensor]) -> list[Any]:
        """Returns all inputs in the definition's order: the tensors, with the numbers between them."""
        left = iter(tensors)
        return [self._numbers[name] if name in self._numbers else next(left) for name in self.definition.inputs]

    def _with_names(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Gives a function the inputs' names as parameters, by which the judge names tensors. They are known once
        inputs were made, so the signature is found when it is asked for."""
        kind = inspect.Parameter.POSITIONAL_ONLY
        numbers, inputs = self._find_numbers(), self.problem.definition.inputs if self.problem.definition else ()
        parameters = [inspect.Parameter(name, kind) for name in inputs if name not in numbers]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return function

    def _find_numbers(self) -> set[str]:
        """Returns the names of inputs that are Python numbers, or None."""
        definition, workload = self.problem.definition, self.problem.workload
        if definition is None or workload is None:
            return set()
        given = {name: one.type for name, one in workload.inputs.items()}
        return {
            name
            for name, one in definition.inputs.items()
            if one.shape is None or (one.optional and name not in given) or given.get(name) == "scalar"
        }

    def _name_outputs(self, returned: Any, who: str) -> dict[str, Any]:
        """Returns results by the definition's names. Raises UsageError for other names, or another number of them."""
        names = list(self.definition.outputs)
        if isinstance(returned, dict):
            if missing := [name for name in names if name not in returned]:
                raise UsageError(f"{who} returned no {', '.join(missing)}; it returned {', '.join(map(str, returned))}")
            return {name: returned[name] for name in names}
        parts = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if len(parts) != len(names):
            raise UsageError(f"{who} returned {len(parts)} results; the definition has {', '.join(names)}")
        return dict(zip(names, parts, strict=True))

    def _allocate(self, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Returns memory for the outputs, in the definition's shapes and dtypes, on the tensors' device."""
        import torch

        device = tensors[0].device if tensors else None
        return {
            name: torch.empty(shape, dtype=dtype, device=device) for name, (shape, dtype) in self._output_specs.items()
        }

    @functools.cached_property
    def _output_specs(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        assert self.problem.workload is not None
        sizes = self.definition.sizes(self.problem.workload.axes)
        return {
            name: (self.definition.shape_of(one, sizes), find_dtype(one.dtype))
            for name, one in self.definition.outputs.items()
        }


def list_problems(
    folder: str | os.PathLike[str],
    *,
    definitions: str = "*",
    solutions: str = "*",
    references: bool = False,
    bytes_most: int = BYTES_MOST,
) -> list[TraceProblem]:
    """Returns every solution of a folder on every workload of its definition, in the order of their names.

    folder        has definitions/, workloads/ and solutions/, or is the folder of one problem (definition.json,
                  workload.jsonl, solution.json); a relative one is below the current folder
    definitions   pattern of names, e.g. 'gqa_*'; `solutions` likewise
    references    also take each definition's own reference as a solution, named 'reference'
    bytes_most    problems whose inputs and outputs have more bytes are UNSUPPORTED

    A file that cannot be used is a problem whose test fails with the reason. Raises UsageError if the folder does not
    exist, or if it has no problem.
    """
    found = read_trace_set(folder)
    problems = [
        problem
        for name in sorted(found.definitions)
        if fnmatch.fnmatchcase(name, definitions)
        for problem in _list_of_definition(found, name, solutions, references, bytes_most)
    ]
    faults = [
        TraceProblem(f"fault-{clean_name(one.where)}", found.root, f"{one.where}: {one.why}") for one in found.faults
    ]
    if not problems and not faults:
        raise UsageError(
            f"{found.root} has no problem: {len(found.definitions)} definitions, "
            f"{sum(map(len, found.workloads.values()))} workloads, {sum(map(len, found.solutions.values()))} solutions "
            f"(definitions={definitions!r}, solutions={solutions!r}); references=True takes references as solutions"
        )
    return _with_unique_ids([*problems, *faults])


def _list_of_definition(
    found: TraceSet, name: str, solutions: str, references: bool, bytes_most: int
) -> Iterable[TraceProblem]:
    file, definition = found.definitions[name]
    own: list[tuple[Path, TraceSolution | None]] = [(file, None)] if references else []
    known = sorted(found.solutions.get(name, ()), key=lambda pair: pair[1].name)
    own += [pair for pair in known if fnmatch.fnmatchcase(pair[1].name, solutions)]
    for workload in found.workloads.get(name, ()):
        for solution_file, solution in own:
            yield TraceProblem(
                _make_id(definition, workload, solution), found.root, "", definition, workload, file, solution,
                solution_file, bytes_most,
            )  # fmt: skip


def _make_id(definition: TraceDefinition, workload: TraceWorkload, solution: TraceSolution | None) -> str:
    """Returns e.g. 'gemm_n128_k2048-M6-6ba7c7de-mine': definition, up to two sizes, the uuid's beginning, solution."""
    sizes = [f"{axis}{size}" for axis, size in sorted(workload.axes.items())] if len(workload.axes) <= 2 else []
    name = solution.name if solution else REFERENCE
    return "-".join(map(clean_name, (definition.name, *sizes, workload.uuid[:UUID_LETTERS], name)))


def _with_unique_ids(problems: list[TraceProblem]) -> list[TraceProblem]:
    """Returns the problems; of two with one id the later one says so when it is gated."""
    seen: set[str] = set()
    unique = []
    for number, problem in enumerate(problems):
        if problem.id in seen:
            fault = problem.fault or f"two problems have the id {problem.id}: rename a solution, or change a uuid"
            problem = TraceProblem(f"{problem.id}-again{number}", problem.root, fault)
        seen.add(problem.id)
        unique.append(problem)
    return unique


def _name(function: Callable[..., Any], name: str, problem: TraceProblem) -> Callable[..., Any]:
    """Gives a function a name that baselines store: the same for every version of this package."""
    function.__module__ = "flashinfer_bench"
    function.__qualname__ = f"{problem.definition.name if problem.definition else problem.id}.{name}"
    return function
