"""Reads what a call returned and wrote, and compares it with the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness import poison
from pytest_attnperf.correctness.metrics import MismatchError, compare_output
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.records import ErrorFigures, Tolerance
from pytest_attnperf.workloads.returned import detach_tensor

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Prepared
    from pytest_attnperf.correctness.own_inputs import OwnInputs
    from pytest_attnperf.correctness.references import Expected, References


class Results:
    """Reads and compares the results of one prepared backend.

    references   shared by all judges of a process
    tolerance    the backend's tolerance
    unnamed      outputs that were returned but that the reference does not name, so that they are not judged
    strided      outputs that are not contiguous, with their strides
    """

    def __init__(self, prepared: Prepared, own: OwnInputs, references: References, tolerance: Tolerance) -> None:
        self._prepared = prepared
        self._own = own
        self._references = references
        self._tolerance = tolerance
        self.unnamed: tuple[str, ...] = ()
        self.strided: dict[str, tuple[int, ...]] = {}

    def judge(
        self, check: str, raw: Any, expected: Expected, written: dict[int, torch.Tensor]
    ) -> tuple[list[str], list[ErrorFigures]]:
        """Returns (problems in words: missing outputs, wrong type, shape or memory; error figures of each comparable
        output).

        check     name of the check, with which every problem starts
        written   copies of what the call wrote in place, by number of the input
        """
        found, outputs = self._read_outputs(check, raw, expected, self._own.name_outputs(expected.sealed, written))
        figures, mismatches = self._compare_outputs(check, outputs, expected)
        return found + mismatches, figures

    def select_outputs(self, raw: Any, expected: Expected) -> Outputs:
        """Converts `raw`, what a call returned, with `Prepared.outputs`; returns only outputs that the reference
        names."""
        found = self._prepared.outputs(raw)
        return {name: found[name] for name in expected.sealed if name in found}

    def _read_outputs(self, check: str, raw: Any, expected: Expected, written: Outputs) -> tuple[list[str], Outputs]:
        """Returns (problems in words, the outputs that can be compared, by name); sets `unnamed` and `strided`.

        written   copies of what the call wrote in place, by name of the output
        """
        import torch

        found: list[str] = []
        if written.keys() != expected.sealed.keys() and not has_results(raw):
            advice = (
                "return the tensors that it has written, or name the inputs that it writes to in in_place=(...)"
                if raw is None
                else "its work may be done when it is read, which is not timed; return the tensors that the kernel has "
                "written"
            )
            found.append(f"{check}: the call returned {_format_kind(raw)}, which holds no plain torch.Tensor: {advice}")
        converted = self._prepared.outputs(raw)
        _require_named_outputs(converted)
        self.unnamed = tuple(sorted(converted.keys() - expected.sealed.keys()))
        usable: Outputs = {}
        for name in expected.sealed:
            output = detach_tensor(converted.get(name))
            if overridden := _describe_overridden(name, converted.get(name)):
                found.append(f"{check}: {overridden}")
            elif type(output) is torch.Tensor:
                found += [f"{check}: {text}" for text in _list_unfinished(name, output)]
                usable[name] = output.resolve_conj().resolve_neg()
            elif output is not None:
                found.append(
                    f"{check}: output {name!r} is {_format_kind(output)}, not a plain torch.Tensor: it may "
                    f"compute when it "
                    "is read"
                )
            elif name in converted and name not in written:
                why = "does call() end without return?" if raw is None else "outputs() gives None for it"
                found.append(f"{check}: output {name!r} is None: {why}")
            elif name not in written:
                gave = ", ".join(sorted(converted)) or "nothing"
                found.append(
                    f"{check}: output {name!r} is missing; the backend gave {gave}; return the reference's outputs"
                )
        self.strided = {name: out.stride() for name, out in usable.items() if not out.is_contiguous()}
        found += [
            f"{check}: {text}"
            for name, output in usable.items()
            for text in self._list_memory_problems(name, output, written)
        ]
        usable.update(written)
        return found, {name: usable[name] for name in expected.sealed if name in usable}

    def _list_memory_problems(self, name: str, output: torch.Tensor, written: Outputs) -> list[str]:
        """Returns a problem, in words, if an output lies in memory of a reference or an input, or is not what was
        written in place."""
        if self._references.has_memory_of(output):
            return [f"output {name!r} is the judge's own memory, not a result; return memory that the call has written"]
        if name in written:
            same = poison.is_bit_equal(output, written[name])
            return (
                []
                if same
                else [
                    f"output {name!r} is not what the call wrote in place, shape {tuple(written[name].shape)}: it is a "
                    "copy, or other memory; return a view of the part of the input that is written"
                ]
            )
        if written and self._own.has_memory_of(output):
            return [f"output {name!r} lies in the memory of an input; only {', '.join(map(repr, written))} may"]
        return []

    def _compare_outputs(
        self, check: str, outputs: Outputs, expected: Expected
    ) -> tuple[list[ErrorFigures], list[str]]:
        figures: list[ErrorFigures] = []
        found: list[str] = []
        with expected.reveal() as reference:
            for name, output in outputs.items():
                yardstick = expected.yardsticks[name]
                try:
                    figures.append(compare_output(check, name, output, reference[name], yardstick, self._tolerance))
                except MismatchError as error:
                    found.append(f"{check}: {error}")
        return figures, found


def _describe_overridden(name: str, output: Any) -> str:
    """Returns a problem, in words, if a plain tensor or parameter overrides methods or attributes of torch by itself,
    so that reading it runs other code; else ''. Attributes with other names are harmless: libraries attach some."""
    import torch

    if type(output) not in (torch.Tensor, torch.nn.Parameter):
        return ""
    own = [each for each in object.__getattribute__(output, "__dict__") if hasattr(torch.Tensor, each)]
    if not own:
        return ""
    return (
        f"output {name!r} is a tensor on which the call has replaced {', '.join(own)}: it may compute when it is read; "
        "return the tensor as torch made it"
    )


def _list_unfinished(name: str, output: torch.Tensor) -> list[str]:
    """Returns problems, in words, if torch has only noted a negation or conjugation that the reader must carry out."""
    bits = {"conj": output.is_conj(), "neg": output.is_neg()}
    return [
        f"output {name!r} has torch's {bit} bit: its elements are computed when it is read, which is not timed; end "
        f"the call with .resolve_{bit}()"
        for bit, is_set in bits.items()
        if is_set
    ]


def has_results(raw: Any) -> bool:
    """Returns whether what a call returned holds a plain tensor at any depth, or is a number."""
    return isinstance(raw, (int, float)) or any(True for _ in poison.tensors_in(raw))


def _format_kind(value: object) -> str:
    if value is None:
        return "None"
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")


def _require_named_outputs(converted: object) -> None:
    """Raises CaseFailedError if what `Prepared.outputs` returned is not a dict of outputs by name."""
    if not isinstance(converted, dict):
        kind = type(converted).__name__
        raise CaseFailedError(f"outputs() of what prepare() returned gave {kind}; return e.g. {{'out': tensor}}")
