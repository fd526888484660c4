"""Mistakes in a new backend: the first line of its ERROR names what returned what, and what to return."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass

import pytest

HEAD = """
from dataclasses import dataclass
from pytest_attnperf.backends import Backend, Declares, Prepared

class Base(Backend):
    families = ("softmax",)
    reasons = []

    def unsupported_reasons(self, workload, device):
        return self.reasons

    def give(self, inputs, **fields):
        given = dict(call=self.call, tensors=inputs, convert=lambda new: new, outputs=lambda out: {"out": out})
        return Prepared(**{**given, **fields})

    def call(self, x):
        return x.softmax(-1)
"""
SUITE = """
import pytest

@pytest.mark.attnperf(family="softmax", workloads=["softmax-r64-c64-f32"])
def test_mine(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""
CONFTEST = """
def pytest_attnperf_register_backends(registry):
    import mine
    registry.add(*mine.BACKENDS)
"""


@dataclass(frozen=True)
class Mistake:
    """What `prepare` returns, or lines before it in the class, and what the first line of the failure says of it."""

    returned: str = "self.give(inputs)"
    lines: str = ""
    says: str = ""


PREPARED = r"\S+mine\.py:\d+: mine\.\w+\.prepare\(\) returned a Prepared whose "
MISTAKES = {
    "honest": Mistake(),
    "tensor": Mistake("self.give(inputs, tensors=inputs[0])", says=rf"{PREPARED}tensors is a Tensor; give a tuple, "),
    "converted": Mistake("self.give(inputs, convert=inputs[0])", says=rf"{PREPARED}convert is a Tensor; give a func"),
    "config": Mistake("self.give(inputs, config=None)", says=rf"{PREPARED}config is None; give a dict of texts, e\.g"),
    "declares": Mistake("self.give(inputs, declares=('a',))", says=rf"{PREPARED}declares is a tuple; give e\.g\. dec"),
    "nothing": Mistake("None", says=r"\S+mine\.py:\d+: mine\.\w+\.prepare\(\) returned NoneType; return a Prepared"),
    "new_tensor": Mistake(
        "self.give(inputs, convert=lambda new: new[0])",
        says=r"Prepared\.convert returned Tensor; return a tuple of 1, as Prepared\.tensors has",
    ),
    "reason": Mistake(lines="reasons = 'no'", says=r"\S+\.unsupported_reasons\(\) returned str; return a list of tex"),
    "no_reason": Mistake(lines="reasons = None", says=r"\S+\.unsupported_reasons\(\) returned NoneType; return a list"),
    "no_return": Mistake(
        lines="call = lambda self, x: None", says=r"output 'out' is None: does call\(\) end without return\?"
    ),
    "none_given": Mistake(
        "self.give(inputs, outputs=lambda out: {'out': None})", says=r"output 'out' is None: outputs\(\) gives None for"
    ),
    "misspelled": Mistake(
        "self.give(inputs, declares=Declares(operators=('aten::sofmax',)))",
        says=r"a silent fallback to another implementation, or correct `declares`, e\.g\. to 'aten::_?softmax'",
    ),
    "raises": Mistake("self.give(inputs, call=lambda x: x @ x[:3])", says="RuntimeError: .*cannot be multiplied"),
}  # fmt: skip

_SAID: dict[str, str] = {}
"""Failure text of each backend, from the one run that the first of these tests makes."""


@pytest.fixture
def said(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, torch_cases: object) -> dict[str, str]:
    """Backend -> failure text, '' where it passes, of one run with all of them."""
    if _SAID:
        return _SAID
    classes = (
        f"class Of{name.title()}(Base):\n    {one.lines or 'pass'}\n\n    def prepare(self, workload, inputs):\n"
        f"        return {one.returned}\n"
        for name, one in MISTAKES.items()
    )
    listed = "".join(f"Of{name.title()}('mine.{name}', 1e9), " for name in MISTAKES)
    pytester.makepyfile(mine="\n".join([HEAD, *classes, f"BACKENDS = ({listed})\n"]), test_mine=SUITE)
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\n")
    for name in ("CI", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    options = ("-p", "no:randomly", "--junitxml=report.xml", "--attnperf-device=cpu")
    assert pytester.runpytest_subprocess(*options, "test_mine.py").ret == pytest.ExitCode.TESTS_FAILED
    for case in ET.parse(pytester.path / "report.xml").iter("testcase"):
        found = re.search(r"\[mine\.(\w+)-", case.get("name", ""))
        failure = case.find("failure")
        _SAID[found[1] if found else ""] = "" if failure is None else str(failure.text)
    return _SAID


@pytest.mark.parametrize("name", MISTAKES)
def test_the_first_line_says_what_to_return(name: str, said: dict[str, str]) -> None:
    """Class, method and type are named; of its traceback only the user's files and what they call are left."""
    mistake, text = MISTAKES[name], said[name]
    assert bool(text) == bool(mistake.says), text
    assert re.search(mistake.says, text), text
    assert not re.search(r'File "\S+pytest_attnperf/(?!workloads/)', text), text
