from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.problems.trace_schema import (
    TraceDefinition,
    TraceLine,
    TraceSolution,
    check_definition,
    check_solution,
    check_workload,
    evaluate_size,
    read_record,
)
from tests.problems_folder import PRODUCT, make_solution, make_workload

ESCAPE = "a\x1b[2J\nb"


def definition(**changed: Any) -> TraceDefinition:
    """That of `product`, with fields changed."""
    return read_record(json.dumps({**PRODUCT, **changed}).encode(), TraceDefinition, "d.json")


def test_a_field_of_a_later_version_is_ignored() -> None:
    """A minor version may add fields to every record."""
    one = definition()
    check_definition(one)
    assert one.sizes({"M": 3}) == {"M": 3, "N": 8, "K": 16}
    assert one.count_bytes(one.sizes({"M": 3})) == 4 * (3 * 16 + 8 * 16 + 1 + 3 * 8)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": ""}, "must have 1 to 200 letters"),
        ({"axes": {"M": {"type": "ragged"}}}, "axis 'M' has the type 'ragged'; known are const, var and expr"),
        ({"axes": {"M": {"type": "const", "value": -4}}}, "axis 'M' has the size -4; it must be between 0 and"),
        ({"inputs": {"a": {"shape": ["M", "L"], "dtype": "float32"}}}, "the axis 'L', which does not exist; .*M, N, K"),
        ({"inputs": {"a": {"shape": ["M"], "dtype": "float31"}}}, r"dtype 'float31'; known are float64, int64"),
        ({"inputs": {ESCAPE: {"shape": ["M"], "dtype": "float32"}}}, r"'a\\x1b\[2J\\nb' is no name of a parameter"),
        ({"outputs": {"a": {"shape": ["M"], "dtype": "float32"}}}, "a is an input and an output"),
        ({"outputs": {}}, "no inputs or no outputs"),
        ({"reference": "def run(:"}, "reference is not Python"),
        ({"reference": "def walk(a): pass"}, "defines no function 'run'"),
        ({"reference": "(" * 100_000}, "reference is not Python"),
    ],
)
def test_a_definition_that_cannot_be_used_says_why(changed: dict[str, Any], said: str) -> None:
    """Sizes, axes, dtypes, names and code are checked before anything is executed."""
    with pytest.raises(UsageError, match=said):
        check_definition(definition(**changed))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"axes": {}}, "gives no size of axis 'M'"),
        ({"axes": {"M": -1}}, "axis 'M' has the size -1"),
        ({"axes": {"M": 1 << 50}}, "axis 'M' has the size 1125899906842624"),
        ({"axes": {"M": 5, "Q": 2}}, "axis 'Q' does not exist in the definition; it has M, N, K"),
        ({"axes": {"M": 5, "N": 9}}, "axis 'N' is 8 in the definition, and 9 in the workload"),
        ({"inputs": {"aa": {"type": "random"}}}, r"input 'aa' is none of the definition \(did you mean 'a'\?\)"),
        ({"inputs": {"a": {"type": "http"}}}, "the type 'http'; known are random, scalar, safetensors and custom"),
        ({"inputs": {"alpha": {"type": "scalar"}}}, "scalar whose value is None"),
        ({"inputs": {"a": {"type": "custom"}}}, "the definition has no custom_inputs_entrypoint"),
        *(
            ({"inputs": {"a": {"type": "safetensors", "path": path, "tensor_key": "a"}}}, "must be relative and stay")
            for path in ("/etc/passwd", "../x", "a/../../x", "a\\..\\..\\x", "", "file://x")
        ),
    ],
)
def test_a_workload_that_does_not_fit_says_why(changed: dict[str, Any], said: str) -> None:
    """Its sizes, the names of its inputs, and paths that leave the folder."""
    line = read_record(json.dumps(make_workload(**changed)).encode(), TraceLine, "w.jsonl:1")
    with pytest.raises(UsageError, match=said):
        check_workload(line.workload, definition())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"sources": [{"path": "../main.py", "content": "x"}]},
            r"path of a source is '../main.py'; it must be relative",
        ),
        ({"sources": [{"path": "main.py", "content": "x"}] * 2}, "source 'main.py' is given twice"),
        ({"sources": []}, "entry_point is 'main.py::run'; it must be"),
        ({"name": "n" * 300}, "must have 1 to 200 letters"),
    ],
)
def test_a_solution_that_cannot_be_used_says_why(changed: dict[str, Any], said: str) -> None:
    """Its sources and its entry point."""
    one = read_record(json.dumps({**make_solution("x"), **changed}).encode(), TraceSolution, "s.json")
    with pytest.raises(UsageError, match=said):
        check_solution(one)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1]",
        b'{"name": NaN}',
        b"\xff",
        b"[" * 100_000,
        b'{"axes": {"M": 1e999}}',
        b'{"uuid": 1, "uuid": 2}',
    ],
)
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    """Cut, of another kind, with NaN, other letters than UTF-8, nested without end, or with a key twice."""
    with pytest.raises(UsageError, match=r"^d\.json: "):
        read_record(data, TraceDefinition, "d.json")


def test_the_result_of_a_run_is_no_workload() -> None:
    """A line with a solution or an evaluation is left out."""
    done = {**make_workload(), "solution": "mine", "evaluation": {"status": "PASSED"}}
    assert not read_record(json.dumps(done).encode(), TraceLine, "w").is_workload
    assert read_record(json.dumps(make_workload()).encode(), TraceLine, "w").is_workload


def test_an_axis_may_follow_from_others() -> None:
    """As in SOL-ExecBench: arithmetic of sizes."""
    assert (
        definition(axes={**PRODUCT["axes"], "H": {"type": "expr", "expression": "M * K // 4"}}).sizes({"M": 3})["H"]
        == 12
    )  # type: ignore[dict-item]
    assert evaluate_size("-(2 - 8) % 4 / 2", {}) == 1


@pytest.mark.parametrize(
    "expression",
    ["", "M", "__import__('os')", "1 / 3", "1 // 0", "9" * 60 + "* 2", "2 ** 64", "1" + "+1" * 2000, "'a' * 3"],
)
def test_an_expression_that_is_no_size_is_refused(expression: str) -> None:
    """Names that are no axes, calls, fractions, powers, and numbers without end."""
    with pytest.raises(UsageError, match="of an axis"):
        evaluate_size(expression, {})
