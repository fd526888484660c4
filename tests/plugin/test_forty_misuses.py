"""What a test may do wrong, all in one run: each failure is one sentence that names the value and what to write."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

LINE_MOST = 360
"""Most characters of a sentence: three lines of 120 columns."""

COMMON = """
import numpy, pytest, torch
from pytest_attnperf.correctness import assert_within_budget

W = ["softmax-r4-c8-f32"]
PAIR = {"family": "softmax", "workloads": W}
LOW = torch.linspace(1, 2, 64).reshape(8, 8).half()
TRUE, PLAIN = LOW.double() ** 2, LOW ** 2

def make(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(16, 16, generator=generator), torch.randn(16, 16, generator=generator)

def plain(a, b):
    return torch.relu(a @ b)

def clamped(a, b):
    return (a @ b).clamp(min=0)

def gate(attnperf, name="mine", fn=plain, reference=plain, inputs=make, **more):
    attnperf.gate(name, fn, reference=reference, inputs=inputs, **more)

@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

def broken(value):
    out = PLAIN.clone()
    out[0, 0] = value
    return out
"""

CONFTEST = """
from dataclasses import dataclass
from pytest_attnperf.backends import Backend, Prepared

@dataclass(frozen=True)
class Mine(Backend):
    name: str = "mine.softmax"
    families = ("softmax",)
    cpu_flops_max: float = 1e9

    def prepare(self, workload, inputs):
        return Prepared(
            call=lambda x: x.softmax(-1), tensors=inputs, convert=lambda new: new, outputs=lambda y: {"out": y}
        )

def pytest_attnperf_register_backends(registry):
    registry.add(Mine())
"""

MARKED = {
    "unknown_family": ("family='softmx', workloads=W", "unknown family 'softmx'; known: softmax, "),
    "unknown_backend": ("**PAIR, backends=['mine.softmx']", "unknown backend 'mine.softmx'; known: mine.softmax"),
    "no_family": ("workloads=W", "the attnperf marker needs family=..., e.g. family='prefill'"),
    "no_workloads": ("family='softmax'", r"needs workloads=\[...\] next to family='softmax'"),
    "text_for_list": ("family='softmax', workloads=W[0]", r"a text; give a list: workloads=\[...\]"),
    "wrong_switch": ("**PAIR, timed='no'", "has timed='no'; allowed: True or False"),
    "positional": ("'softmax', W", "has positional arguments; known keywords: .*family.*workloads"),
}
"""Name -> the marker's arguments, and what is said of them."""

RUNS = {
    "run_without_arguments": ("", "missing a required argument: 'backend'; call it with \\(backend, workload\\)"),
    "run_swapped": ("workload, backend", "backend is a Softmax, but must be a backend, and a workload comes second"),
    "run_names": (
        "'mine.softmax', 'softmax-r4-c8'",
        "backend is 'mine.softmax', but must be a backend: take both",
    ),
    "run_id": ("backend, workload.id", "workload is 'softmax-r4-c8-f32', but must be a workload: take both from the"),
    "run_none": ("backend, None", "workload is None, but must be a workload: take both from the test's own arguments"),
    "run_keyword": ("backend, worklaod=workload", r"unknown argument 'worklaod' \(did you mean 'workload'\?\)"),
    "run_twice": (
        "backend, workload); attnperf.run(backend, workload",
        "was called twice in one test; .*parametrise",
    ),
}
"""Name -> arguments of `attnperf.run`, and what is said of them."""

GATES = {
    "inputs_tensor": ("gate(attnperf, inputs=make(0)[0])", "inputs is a Tensor, but must be a function: .*inputs.seed"),
    "inputs_dict": (
        "gate(attnperf, inputs=lambda seed: {'a': 1})",
        "must be a tensor or a tuple.*; it is a dict",
    ),
    "inputs_none": ("gate(attnperf, inputs=lambda seed: None)", "must be a tensor or a tuple of tensors; it is None"),
    "inputs_empty": ("gate(attnperf, inputs=lambda seed: ())", "must be a tensor or a tuple of tensors; it is empty"),
    "inputs_numpy": ("gate(attnperf, inputs=lambda seed: numpy.ones(3))", "must be a tensor or .*; it is a ndarray"),
    "inputs_two": ("gate(attnperf, inputs=plain)", r"takes \(a, b\): missing .*'b'; it is called with a seed"),
    "reference_missing": (
        "attnperf.gate('a', plain, inputs=make)",
        r"'reference'; call it with \(name, fn, refer",
    ),
    "reference_none": (
        "gate(attnperf, reference=lambda a, b: None)",
        "returned None for 'out'; it must return a",
    ),
    "reference_one": ("gate(attnperf, reference=lambda a: a)", r"takes \(a\): too many .*inputs\(\) makes 2 tensor"),
    "fn_one": ("gate(attnperf, fn=lambda a: a)", r"fn of 'mine' takes \(a\): too many .*inputs\(\) makes 2 tensor"),
    "fn_called": ("gate(attnperf, fn=plain(*make(0)))", r"fn is a Tensor, but must be a function: fn\(\*tensors\)"),
    "name_swapped": ("gate(attnperf, plain, 'mine')", "name and fn are swapped: name is a function, fn is 'mine'"),
    "name_none": ("gate(attnperf, None)", "name is None, but must be a name of letters, digits, .*e.g. 'my_kernel'"),
    "name_odd": ("gate(attnperf, 'my kernel/1')", "name is 'my kernel/1', but must be a name of letters, digits,"),
    "too_many": (
        "attnperf.gate('a', plain, plain, make)",
        r"too many positional arguments; call it with",
    ),
    "tolerance": ("gate(attnperf, tolerance=0.01)", r"tolerance is 0.01, but must be .* e.g. Tolerance\(3.0, "),
    "flops": ("gate(attnperf, flops='1e9')", "flops is '1e9', but must be a number of at least 0, e.g. 1e9, or None"),
    "bytes": ("gate(attnperf, bytes_min=-1)", "bytes_min is -1, but must be a number of at least 0, e.g. 1e9, or None"),
    "times": ("gate(attnperf, times='fwd')", "times is 'fwd', but must be one of 'both', 'forward', 'backward'"),
    "times_alone": ("gate(attnperf, times='forward')", "times is 'forward', which needs backward=True"),
    "cache_state": ("gate(attnperf, cache_state='warm')", "cache_state is 'warm', but must be one of 'hot', 'cold'"),
    "contiguous": ("gate(attnperf, contiguous='yes')", "contiguous is 'yes', but must be True or False"),
    "backward": ("gate(attnperf, backward='both')", "backward is 'both', but must be True or False"),
    "in_place": ("gate(attnperf, in_place='x')", "in_place of 'test_in_place' names 'x'; the inputs are a, b"),
    "in_place_number": ("gate(attnperf, in_place=0)", r"in_place is 0, but must be .*, e.g. \('a', 'b'\)"),
    "pattern": ("gate(attnperf, kernels='*')", r"kernels= takes regular expressions, and '\*' is not one; re.escape"),
    "gate_twice": ("gate(attnperf, fn=clamped)\n    gate(attnperf)", "called twice in one test; .*: parametrise it"),
    "never": (
        "pass",
        r"ended without calling attnperf.run\(\) or attnperf.gate\(\): call one of them once",
    ),
}
"""Name -> body of a test with the fixture `attnperf`, and what is said of it."""

OTHERS = {
    "timer_called": (
        "gpu_timer",
        "gpu_timer(plain(*make(0)))",
        r"fn is a Tensor, .*gpu_timer\(fn, a, b\), and not",
    ),
    "timer_text": ("gpu_timer", "gpu_timer('x')", "fn is a str, but must be a function, which is called many times"),
    "timer_device": ("gpu_timer", "gpu_timer(plain, *make(0), device='gpu')", "device 'gpu' is unknown; known: 'cuda'"),
    "timer_no_gpu": (
        "gpu_timer",
        "gpu_timer(plain, *make(0), device='cuda')",
        "torch finds no GPU here; .*'cpu'",
    ),
    "timer_tuple": (
        "gpu_timer",
        "gpu_timer(plain, make(0))",
        r"takes \(a, b\): missing .*'b'; pass its arguments one",
    ),
    "timer_blocks": ("gpu_timer", "gpu_timer(plain, *make(0), blocks=0)", "blocks is 0, but must be a whole number of"),
    "timer_block_us": (
        "gpu_timer",
        "gpu_timer(plain, *make(0), block_us='1')",
        "block_us is '1', but must be micro",
    ),
    "timer_without": ("gpu_timer", "gpu_timer(lambda: 1)", "no tensor among the arguments, .*; pass the tensors"),
    "without_marker": (
        "attnperf, backend, workload",
        "attnperf.run(backend, workload)",
        "provided by @pytest.mark.att",
    ),
    "by_name": (
        "request",
        "gate(request.getfixturevalue('attnperf'))",
        "name the fixture `attnperf` in the argument",
    ),
}
"""Name -> fixtures, body, and what is said."""

BUDGETS = {
    "budget_swapped": ("TRUE, PLAIN, PLAIN", r"compute it in fp32 or fp64.*the order is \S+\(got, reference, plain\)"),
    "budget_swapped_plain": ("PLAIN, PLAIN, TRUE", r"the order is assert_within_budget\(got, reference, plain\)"),
    "budget_shape": ("PLAIN[:3], TRUE, PLAIN", r"has shape \(3, 8\), expected \(8, 8\); return every element"),
    "budget_shapes": ("PLAIN, TRUE[:3], PLAIN", r"is \(3, 8\) on cpu, the plain computation \(8, 8\) on cpu"),
    "budget_list": ("[1, 2], TRUE, PLAIN", "holds 'out0', 'out1', .*give all three as a tensor, or all as a list"),
    "budget_text": ("'x', TRUE, PLAIN", "output 'out' is a str, not a torch.Tensor; pass a tensor"),
    "budget_numpy": ("PLAIN, TRUE.numpy(), PLAIN", "is a ndarray, not a torch.Tensor; return a tensor"),
    "budget_nan": ("broken(float('nan')), TRUE, PLAIN", r"holds 1 NaN among 64 elements .* first at \(0, 0\)"),
    "budget_nan_truth": ("PLAIN, TRUE * float('nan'), PLAIN", "holds NaN or Inf: .*use inputs it is finite on"),
    "budget_nothing": ("(), (), ()", "both must hold the same outputs, at least one"),
    "budget_tolerance": ("PLAIN, TRUE, PLAIN, tolerance=0.01", "tolerance is 0.01, but must be a factor .*Tolerance"),
}  # fmt: skip
"""Name -> arguments of `assert_within_budget`, whose traceback ends in the test's own line, and what is said."""

SAYS = {
    **{name: says for table in (MARKED, RUNS, GATES, BUDGETS) for name, (_, says) in table.items()},
    **{name: says for name, (_, _, says) in OTHERS.items()},
}

RIGHT = """
@pytest.mark.attnperf(**PAIR)
def test_right(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""


def _write_tests() -> str:
    """The file with a test for each entry above, and one without a mistake."""
    tests = [COMMON, RIGHT]
    head = "def test_{name}(attnperf, backend, workload):\n    attnperf.run({arguments})\n"
    for name, (marker, _) in MARKED.items():
        tests.append(f"@pytest.mark.attnperf({marker})\n" + head.format(name=name, arguments="backend, workload"))
    for name, (arguments, _) in RUNS.items():
        tests.append(f"@pytest.mark.attnperf(**PAIR, label={name!r})\n" + head.format(name=name, arguments=arguments))
    tests += [f"def test_{name}(attnperf):\n    {body}\n" for name, (body, _) in GATES.items()]
    tests += [f"def test_{name}({fixtures}):\n    {body}\n" for name, (fixtures, body, _) in OTHERS.items()]
    tests += [f"def test_{name}():\n    assert_within_budget({given})\n" for name, (given, _) in BUDGETS.items()]
    return "\n".join(tests)


_SAID: dict[str, str] = {}
"""What `said` gives, of the run that the first of these tests made."""


@pytest.fixture
def said(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, torch_cases: object) -> dict[str, str]:
    """Name -> text of its failure, from one run of all."""
    if not _SAID:
        for name in ("CI", "PYTEST_ADDOPTS"):
            monkeypatch.delenv(name, raising=False)
        pytester.makeini("[pytest]\n")
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(test_misused=_write_tests())
        words = ("-p", "no:randomly", "--attnperf-device=cpu", "--junitxml=report.xml", "test_misused.py")
        result = pytester.runpytest_subprocess(*words)
        _SAID.update(_read(pytester.path / "report.xml"))  # first: no later test is to run them again
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.assert_outcomes(passed=1, failed=len(SAYS) - len(MARKED), errors=len(MARKED))
    return _SAID


def _read(report: Path) -> dict[str, str]:
    """The text of each failure or error, without the lines that say how to see it again."""
    found = {}
    for case in ET.parse(report).iter("testcase"):
        text = "".join(part.text or "" for part in case if part.tag in ("failure", "error"))
        name = case.get("name", "").removeprefix("test_").partition("[")[0]
        found[name] = text.partition("\nreproduce with")[0]
    return found


@pytest.mark.parametrize("name", SAYS)
def test_a_misuse_is_one_sentence(name: str, said: dict[str, str]) -> None:
    """It has the value and what to write, at most three lines of 120 columns, and no line of this package's code."""
    text = said[name]
    lines = [line for line in text.splitlines() if not line.startswith(("ERROR: ", ">")) and line.strip()]
    if name in BUDGETS:
        lines = [line.removeprefix("E   ").strip() for line in lines if line.startswith("E ")]
    assert len(lines) == 1, text
    assert re.search(SAYS[name], lines[0]), lines[0]
    assert len(lines[0]) <= LINE_MOST, lines[0]
    assert "Traceback" not in text
    assert "pytest_attnperf/" not in text


def test_the_others_of_the_file_run(said: dict[str, str]) -> None:
    """A test without a mistake passes beside them."""
    assert said["right"] == ""
