"""Further ways to leave a stored case out, for a case of a family and for a gated function: none is green."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from pytest_attnperf.testing.project import WORKLOAD, FakeProject

OTHER = "prefill-b1-s128-h1-d16-f16"
FUNCTION = """
import pytest

def kernel(x):
    return x

def test_kernel(attnperf):
    attnperf.gate("mine", kernel, reference=kernel, inputs=kernel)
"""


@dataclass(frozen=True)
class Kind:
    """A stored case: its file, the line that declares its test, its call, and words of its key."""

    file: str
    declared: str
    call: str
    named: str
    backend: str


FAMILY = Kind(
    "test_prefill.py",
    '@pytest.mark.attnperf(family="prefill"',
    "    attnperf.run(backend, workload)",
    "prefill/fake.a",
    "fake.a",
)
GATED = Kind(
    "test_kernel.py",
    "def test_kernel(attnperf",
    '    attnperf.gate("mine", kernel, reference=kernel, inputs=kernel)',
    "kernel/gate",
    "mine",
)
KINDS = {"run": FAMILY, "gate": GATED}


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """A case of a family, a gated function, and a case that every run judges, all stored; an ordinary test beside."""
    for name in ("fake.a", "fake.b", "mine"):
        attnperf_project.backend(name, time_us=100)
    attnperf_project.suite([WORKLOAD], ", backends=['fake.a']")
    attnperf_project.suite([OTHER], ", backends=['fake.b']", name="test_more.py")
    (attnperf_project.path / "suites" / GATED.file).write_text(FUNCTION)
    attnperf_project.store_baselines()
    (attnperf_project.path / "suites/test_plain.py").write_text("def test_plain():\n    pass\n")
    return attnperf_project


Change = Callable[[FakeProject, Kind], None]


def replaced(old: Callable[[Kind], str], new: str) -> Change:
    """A change of the suite's text; '{old}' in `new` is what was there."""

    def change(project: FakeProject, kind: Kind) -> None:
        file = project.path / "suites" / kind.file
        text, before = file.read_text(), old(kind)
        assert before in text
        file.write_text(text.replace(before, new.format(old=before)))

    return change


def around(lines: str) -> Change:
    """Code in place of the call, which '{old}' stands for."""
    return replaced(lambda kind: kind.call, lines)


def mark(line: str) -> Change:
    """A decorator above the test."""
    return replaced(lambda kind: kind.declared, f"{line}\n{{old}}")


def module(lines: str) -> Change:
    """Code at the top of the file."""
    return replaced(lambda _kind: "import pytest\n", "{old}" + lines.replace("{", "{{").replace("}", "}}") + "\n")


def conftest(lines: str) -> Change:
    """Code in conftest.py; FILE is the suite's name there."""

    def change(project: FakeProject, kind: Kind) -> None:
        project.conftest(f"import pytest, unittest\nFILE = {kind.file!r}\n{lines}\n")

    return change


def broken(change: Change, **script: object) -> Change:
    """The change, over a kernel that has become slower, or as `script` says."""

    def both(project: FakeProject, kind: Kind) -> None:
        project.backend(kind.backend, **(script or {"time_us": 120}))
        change(project, kind)

    return both


def hook(name: str, do: str, decorator: str = "") -> Change:
    """A hook on the suite's item."""
    return conftest(f"{decorator}\ndef pytest_{name}:\n    if FILE in item.nodeid: {do}")


def ini(text: str) -> Change:
    """Lines of pytest.ini."""

    def change(project: FakeProject, kind: Kind) -> None:
        project.pytester.makeini(f"[pytest]\n{text.format(file=kind.file)}\n")

    return change


FIXTURE = "@pytest.fixture(autouse=True, scope='{scope}')\ndef each():\n    {do}"
FIRST, LAST = "@pytest.hookimpl(tryfirst=True)", "@pytest.hookimpl(trylast=True)"
AFTER = "@pytest.hookimpl(wrapper=True, tryfirst=True)"
SKIP, UNITTEST = "pytest.skip('x')", "raise unittest.SkipTest('x')"
SET_UP = "runtest_setup(item)"

WAYS: dict[str, Change] = {
    # in the body, which runs in a worker
    "unittest.SkipTest in the body": around("    import unittest\n    raise unittest.SkipTest('x')"),
    "pytest.exit in the body": around("    pytest.exit('x', returncode=0)"),
    "os._exit in the body": around("    import os\n    os._exit(0)"),
    "sys.exit in the body": around("    raise SystemExit(0)"),
    "skip before a call in a helper": around("    (lambda: pytest.skip('x'))()"),
    "return before the call": around("    return\n{old}"),
    "raises around the call": around("    with pytest.raises(BaseException):\n    {old}"),
    "raises around a slower call": broken(around("    with pytest.raises(BaseException):\n    {old}")),
    "suppress around a slower call": broken(
        around("    import contextlib\n    with contextlib.suppress(BaseException):\n    {old}")
    ),
    "suppress around a wrong call": broken(
        around("    import contextlib\n    with contextlib.suppress(BaseException):\n    {old}"),
        time_us=100,
        fault="wrong",
    ),
    "except around a call that raises": broken(
        around("    try:\n    {old}\n    except BaseException:\n        pass"), time_us=100, fault="raise"
    ),
    "skip after a wrong call": broken(around("{old}\n    pytest.skip('x')"), time_us=100, fault="wrong"),
    "skip after a slower call": broken(around("{old}\n    pytest.skip('x')")),
    "xfail after a slower call": broken(around("{old}\n    pytest.xfail('x')")),
    # in fixtures, of each scope
    **{
        f"{what} in a fixture of scope {scope}": module("import unittest\n" + FIXTURE.format(scope=scope, do=do))
        for scope in ("function", "module", "session")
        for what, do in (
            ("pytest.skip", SKIP),
            ("unittest.SkipTest", UNITTEST),
            ("an error", "1 / 0"),
            ("importorskip", "pytest.importorskip('not_there')"),
        )
    },
    "pytest.exit in a fixture": module(FIXTURE.format(scope="function", do="pytest.exit('x', returncode=0)")),
    "a fixture attnperf of its own": module(
        "class Handle:\n    run = gate = lambda *_, **__: None\n@pytest.fixture\ndef attnperf():\n    return Handle()"
    ),
    # in hooks
    "unittest.SkipTest in setup": hook(SET_UP, UNITTEST),
    "unittest.SkipTest in a first setup": hook(SET_UP, UNITTEST, FIRST),
    "pytest.skip in a first setup": hook(SET_UP, SKIP, FIRST),
    "pytest.skip around setup": hook(SET_UP, f"{SKIP}\n    return (yield)", AFTER),
    "pytest.exit in setup": hook(SET_UP, "pytest.exit('x', returncode=0)"),
    "pytest.skip in a first call": hook("runtest_call(item)", SKIP, FIRST),
    "unittest.SkipTest in a first call": hook("runtest_call(item)", UNITTEST, FIRST),
    "called by a hook": conftest(
        f"{FIRST}\ndef pytest_pyfunc_call(pyfuncitem):\n    return True if FILE in pyfuncitem.nodeid else None"
    ),
    "skipped in place of the call": conftest(
        f"{FIRST}\ndef pytest_pyfunc_call(pyfuncitem):\n    if FILE in pyfuncitem.nodeid: {SKIP}"
    ),
    "run by a hook": hook("runtest_protocol(item, nextitem)", "return True", FIRST),
    "a report without its result": broken(
        conftest(
            f"{AFTER}\ndef pytest_runtest_makereport(item, call):\n    report = yield\n"
            "    report.outcome = 'passed'\n    report.__dict__.pop('attnperf_result', None)\n    return report"
        )
    ),
    "no report": conftest(
        f"{FIRST}\ndef pytest_runtest_logreport(report):\n    if FILE in report.nodeid: pytest.skip('x')"
    ),
    "a skip mark added by a hook": conftest(
        "def pytest_collection_modifyitems(items):\n    [one.add_marker('skip') for one in items if FILE in one.nodeid]"
    ),
    "removed last": conftest(
        f"{LAST}\ndef pytest_collection_modifyitems(items):\n    items[:] = [x for x in items if FILE not in x.nodeid]"
    ),
    "deselected by a hook": conftest(
        "def pytest_collection_modifyitems(config, items):\n"
        "    gone = [one for one in items if FILE in one.nodeid]\n"
        "    items[:] = [one for one in items if one not in gone]\n"
        "    config.hook.pytest_deselected(items=gone)"
    ),
    "removed after collection": conftest(
        f"{FIRST}\ndef pytest_collection_finish(session):\n"
        "    session.items[:] = [one for one in session.items if FILE not in one.nodeid]"
    ),
    "a filter set by a conftest": conftest(
        "def pytest_configure(config):\n    config.option.keyword = 'not ' + FILE.removesuffix('.py')"
    ),
    "no file is collected": conftest(
        "def pytest_collect_file(file_path, parent):\n    pass\n"
        "def pytest_ignore_collect(collection_path):\n    return True if collection_path.name == FILE else None"
    ),
    # at import
    "unittest.SkipTest of a module": module("import unittest\nraise unittest.SkipTest('x')"),
    "pytest.exit of a module": module("pytest.exit('x', returncode=0)"),
    "an error of a module": module("1 / 0"),
    "a module that removes its test": replaced(
        lambda kind: kind.call, "{old}\n\n[globals().pop(name) for name in list(globals()) if name.startswith('test_')]"
    ),
    "parametrised with a skip": mark("@pytest.mark.parametrize('one', [pytest.param(1, marks=pytest.mark.skip)])"),
    "parametrised with nothing": mark("@pytest.mark.parametrize('one', [])"),
    "usefixtures of a skip": module(
        f"@pytest.fixture\ndef gone():\n    {SKIP}\npytestmark = pytest.mark.usefixtures('gone')"
    ),
    # in the ini file
    "a keyword in the ini file": ini("addopts = -k 'not {file}'"),
    "--deselect in the ini file": ini("addopts = --deselect=suites/{file}"),
    "--ignore in the ini file": ini("addopts = --ignore=suites/{file}"),
    "--ignore-glob in the ini file": ini("addopts = --ignore-glob=*{file}"),
    "python_files": ini("python_files = test_more.py"),
    "python_functions": ini("python_functions = check_*"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_no_trick_leaves_the_gate_green(project: FakeProject, way: str, kind: str) -> None:
    """The run fails under strict, whichever way the stored case is kept from its verdict."""
    (project.path / "suites" / next(one for name, one in KINDS.items() if name != kind).file).unlink(missing_ok=True)
    other = next(one for name, one in KINDS.items() if name != kind)
    project.baseline(suite=other.file.removeprefix("test_").removesuffix(".py")).unlink()
    if "parametrised" in way and kind == "run":
        file = project.path / "suites" / KINDS[kind].file
        file.write_text(file.read_text().replace("(attnperf, ", "(attnperf, one, "))
    elif "parametrised" in way:
        file = project.path / "suites" / KINDS[kind].file
        file.write_text(file.read_text().replace("(attnperf)", "(attnperf, one)"))
    WAYS[way](project, KINDS[kind])
    result = project.run("--attnperf", "--attnperf-strict")
    assert result.ret != pytest.ExitCode.OK, result.stdout.str()
