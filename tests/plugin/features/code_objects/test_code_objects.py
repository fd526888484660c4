"""What a user types to gate compiled kernels: on prebuilt code objects, so that no compiler is needed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.testing.project import full_results

OBJECTS = Path(__file__).parents[3] / "data" / "code_objects"

SUITE = """
import pytest

@pytest.mark.attnperf_code{settings}
def test_code_object(code_object, kernel_build):
    code_object.gate(kernel_build)
"""

CONFTEST = """
from pathlib import Path
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, ObjectFile

HERE = Path(__file__).parent

class Prebuilt(Kernel):
    def __init__(self, name, files, matrix=False):
        super().__init__(name, ("hip.saxpy",))
        self.__dict__.update(_files=files, _matrix=matrix)

    def unsupported_reasons(self, arch):
        return [] if arch in ("gfx942", "gfx1100") else ["not built for it"]

    def builds(self, arch):
        return [
            KernelBuild(self.name, config, arch, ObjectFile(HERE / file, kernel, compiler="clang 22.1.8"),
                        settings={{"TILE": config}}, matrix=self._matrix, where="conftest.py")
            for config, file, kernel in self._files if arch in file
        ]

def pytest_attnperf_register_kernels(kernels):
    kernels.add({kernels})
"""

SAXPY = 'Prebuilt("hip.saxpy", [("plain", "saxpy.gfx942.co", ""), ("plain", "saxpy.gfx1100.co", "")])'


BROKEN_AND_WHOLE = (("hip.broken", "mfma.gfx942.co"), ("hip.saxpy", "saxpy.gfx942.co"))

BACKENDS = """
from pytest_attnperf.backends import Backend

class B(Backend):
    families = ("gemm",)
    def prepare(self, workload, inputs): ...

def pytest_attnperf_register_backends(registry): registry.add(B("hip.saxpy"), B("hip.other"))
"""


class CodeProject:
    """A folder with a code-object suite over prebuilt objects."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester, self.path = pytester, pytester.path
        monkeypatch.delenv("CI", raising=False)
        monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
        pytester.makeini("[pytest]\n")
        self.suite()
        self.kernels(SAXPY)

    def suite(self, settings: str = "") -> None:
        """Write the suite; `settings` is the marker's argument list."""
        (self.path / "suites").mkdir(exist_ok=True)
        (self.path / "suites" / "test_code_objects.py").write_text(SUITE.format(settings=settings))

    def kernels(self, text: str) -> None:
        """Register these kernels, and copy the objects they name."""
        for file in OBJECTS.glob("*.co"):
            if file.name in text:
                shutil.copy(file, self.path / file.name)
        (self.path / "conftest.py").write_text(CONFTEST.format(kernels=text))

    def run(self, *args: str) -> pytest.RunResult:
        """Type `pytest suites/ ARGS`."""
        return self.pytester.runpytest_subprocess("-p", "no:randomly", *args, "suites/", timeout=120)

    def results(self) -> list[dict[str, Any]]:
        """The compiled kernels in .attnperf/results.json."""
        loaded: list[dict[str, Any]] = full_results(self.path / ".attnperf" / "results.json")["code"]
        return loaded

    def replace(self, name: str, by: str) -> None:
        """Put another object under a file's name."""
        shutil.copy(OBJECTS / by, self.path / name)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> CodeProject:
    """One kernel, on gfx942 and gfx1100."""
    return CodeProject(pytester, monkeypatch)


def test_a_skip_mark_leaves_the_run_whole(project: CodeProject) -> None:
    """A kernel that a mark skips is UNSUPPORTED with its reason, and a finding where one is stored."""
    project.run("--update-baselines")
    suite = project.path / "suites/test_code_objects.py"
    marked = "@pytest.mark.skip(reason='not today')\n@pytest.mark.attnperf_code"
    suite.write_text(suite.read_text().replace("@pytest.mark.attnperf_code", marked))
    result = project.run("--attnperf")
    assert {found["verdict"] for found in project.results()} == {"UNSUPPORTED"}
    result.stdout.fnmatch_lines(["finding: * stored code objects for gfx942 were not compiled here: *not today"])
    result.stdout.no_fnmatch_line("*incomplete*")


def test_recorded_then_unchanged(project: CodeProject) -> None:
    """What --update-baselines stores for the default architecture is found again, and called unchanged."""
    recorded = project.run("--update-baselines")
    recorded.assert_outcomes()
    recorded.stdout.fnmatch_lines(["*baseline written: baselines/gfx942/code_objects.json", "*1 recorded*"])
    again = project.run("--attnperf", "--attnperf-strict")
    again.assert_outcomes(passed=1)
    again.stdout.fnmatch_lines(
        ["gfx942", "SAME, unchanged*hip.saxpy plain*", "code objects: 1 same (1 unchanged) on gfx942"]
    )
    (result,) = project.results()
    assert (result["verdict"], result["unchanged"]) == ("SAME", True)
    assert result["code"]["isa_hash"] == result["stored"]["isa_hash"]


def test_gated_without_timing(project: CodeProject) -> None:
    """A plain run, which times nothing, holds code objects against their baseline all the same."""
    project.run("--update-baselines")
    project.replace("saxpy.gfx942.co", by="spills.gfx942.co")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*WORSE: code_objects/hip.saxpy/plain/gfx942*", "*spills * VGPR*"])


def test_the_architectures_that_are_asked_for(project: CodeProject) -> None:
    """`--attnperf-arch` takes a list; without it gfx942; an unknown one is a usage error that lists the known."""
    ids = project.run("--collect-only", "-q", "--attnperf-arch=gfx1100,gfx942").stdout.str()
    assert "test_code_object[hip.saxpy-plain-gfx1100]" in ids
    assert "test_code_object[hip.saxpy-plain-gfx942]" in ids
    assert "gfx1100" not in project.run("--collect-only", "-q").stdout.str()
    wrong = project.run("--attnperf-arch=gfx9000")
    wrong.stderr.fnmatch_lines(["*--attnperf-arch=gfx9000: *gfx9000*gfx942*"])
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR


def test_no_baseline_is_no_pass(project: CodeProject) -> None:
    """Without an entry the kernel has a category of its own, the command that records one, and fails strict runs."""
    result = project.run("--attnperf", "--attnperf-strict")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*NO_BASELINE: code_objects/hip.saxpy*pytest --update-baselines*", "*1 no baseline*"])


def test_spills_are_recorded_with_a_reason_only(project: CodeProject) -> None:
    """--update-baselines refuses a kernel that spills; with --attnperf-accept it stores the reason, which holds."""
    project.kernels('Prebuilt("hip.spills", [("one", "spills.gfx942.co", "")])')
    refused = project.run("--update-baselines")
    refused.assert_outcomes(failed=1)
    refused.stdout.fnmatch_lines(["*not recorded: *", "*--attnperf-accept=REASON*"])
    assert not (project.path / "baselines").exists()
    project.run("--update-baselines", "--attnperf-accept=a test of spills").stdout.fnmatch_lines(["*1 recorded*"])
    assert '"accepted": "a test of spills"' in (project.path / "baselines/gfx942/code_objects.json").read_text()
    project.run("--attnperf").assert_outcomes(passed=1)


def test_a_kernel_without_stores_is_suspicious(project: CodeProject) -> None:
    """The kernel that computes and writes nothing fails whatever is stored."""
    project.kernels('Prebuilt("hip.empty", [("one", "no_store.gfx942.co", "")])')
    result = project.run("--attnperf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*SUSPICIOUS: code_objects/hip.empty/one/gfx942*", "*no store of any kind*"])


def test_promised_matrix_instructions_are_asked_for(project: CodeProject) -> None:
    """A kernel that promises MFMA and holds none is SUSPICIOUS; one that holds them is not."""
    project.kernels(
        'Prebuilt("hip.without", [("one", "saxpy.gfx942.co", "")], True), '
        'Prebuilt("hip.with", [("one", "mfma.gfx942.co", "")], True)'
    )
    result = project.run("--attnperf")
    result.assert_outcomes(failed=1)
    verdicts = {one["key"]["backend"]: one["verdict"] for one in project.results()}
    assert verdicts == {"hip.without": "SUSPICIOUS", "hip.with": "NO_BASELINE"}


def test_a_broken_object_is_an_error_and_the_rest_runs(project: CodeProject) -> None:
    """A truncated file fails its own item, naming the file; the others keep their verdicts."""
    broken, whole = ('Prebuilt("{}", [("one", "{}", "")])'.format(*names) for names in BROKEN_AND_WHOLE)
    project.kernels(f"{broken}, {whole}")
    path = project.path / "mfma.gfx942.co"
    path.write_bytes(path.read_bytes()[:700])
    result = project.run("--attnperf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ERROR: code_objects/hip.broken/one/gfx942*"])
    assert {one["verdict"] for one in project.results()} == {"ERROR", "NO_BASELINE"}


def test_an_object_of_another_architecture_is_an_error(project: CodeProject) -> None:
    """Both architectures are named."""
    project.replace("saxpy.gfx942.co", by="saxpy.gfx1100.co")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*compiled for gfx1100, not for gfx942*"])


def test_a_kernel_that_is_not_there(project: CodeProject) -> None:
    """The error lists what the object holds."""
    project.kernels('Prebuilt("hip.saxpy", [("one", "saxpy.gfx942.co", "no_such")])')
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*has no kernel 'no_such'; it has: *"])


def test_the_filters_of_timed_cases(project: CodeProject) -> None:
    """One workload, or backends that launch no registered kernel, leave code objects out; their own does not."""
    project.run("--attnperf-workload=b=1,s=64,h=1,d=16,f16").assert_outcomes(deselected=1)
    with (project.path / "conftest.py").open("a") as conftest:
        conftest.write(BACKENDS)
    project.run("--attnperf-backend=hip.other", "--collect-only").stdout.fnmatch_lines(["*1 deselected*"])
    project.run("--attnperf-backend=hip.saxpy").stdout.fnmatch_lines(["*1 no baseline*"])


def test_xdist_gives_the_same_verdicts(project: CodeProject, other_plugins: None) -> None:
    """With -n1 the results travel from xdist's worker, and are merged into baselines once."""
    project.run("--update-baselines", "-n1").stdout.fnmatch_lines(["*baseline written: baselines/gfx942/*"])
    project.run("--attnperf", "-n1").stdout.fnmatch_lines(["*1 same (1 unchanged)*"])


def test_a_removed_kernel_is_a_finding(project: CodeProject) -> None:
    """An entry that nothing compiles any more is named, and fails a strict run of everything."""
    project.kernels(SAXPY.replace('[("plain"', '[("gone", "saxpy.gfx942.co", ""), ("plain"', 1))
    project.run("--update-baselines")
    project.kernels(SAXPY)
    result = project.run("--attnperf", "--attnperf-strict")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["finding: hip.saxpy/gone has a code object stored for gfx942 and is not compiled*"])


def test_markers_select_and_loosen(project: CodeProject) -> None:
    """-m selects compiled kernels; the marker's own policy is stored, and loosening it later is a finding."""
    project.run("-m", "not attnperf_code").assert_outcomes(deselected=1)
    project.run("--update-baselines")
    project.suite("(code_fail_on=[], code_growth=50)")
    result = project.run("--attnperf", "--attnperf-strict")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["finding: *policy loosened since the baseline: growth_percent 1 -> 50*"])
    project.suite("(cod_fail_on=[])")
    project.run().stdout.fnmatch_lines(["*the attnperf_code marker has unknown keywords*known: code_fail_on*"])


def test_junit_says_what_was_found(project: CodeProject) -> None:
    """Registers, hash and verdict are properties of the test."""
    project.run("--attnperf", "--junitxml=out.xml")
    text = (project.path / "out.xml").read_text()
    assert 'name="attnperf.verdict" value="NO_BASELINE"' in text
    assert 'name="attnperf.isa_hash"' in text
    assert 'name="attnperf.vgprs"' in text


def test_code_object_outside_a_compile_worker(project: CodeProject) -> None:
    """A test that fetches the fixture by another way is told what to request, instead of passing on nothing."""
    (project.path / "suites" / "test_code_objects.py").write_text(
        "def test_hidden(request):\n    request.getfixturevalue('code_object').gate(None)\n"
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*code_object.gate() was called outside a compile worker*"])


def test_settings_to_try(project: CodeProject) -> None:
    """A setting that no kernel has is an error that lists what there is; what is compiled already has none."""
    result = project.run("--attnperf-code-set=TILE=4")
    assert result.ret != 0
    result.stderr.fnmatch_lines(["*--attnperf-code-set: no kernel has a setting TILE; they have none*"])
    project.run("--attnperf-code-set=TILE").stderr.fnmatch_lines(["*'TILE' is not NAME=VALUE*"])


def test_report_shows_code_objects(project: CodeProject) -> None:
    """`attnperf report` prints the table of a stored run, and says by its exit status that a kernel failed."""
    project.kernels('Prebuilt("hip.empty", [("one", "no_store.gfx942.co", "")])')
    project.run("--attnperf")
    report = project.pytester.run(sys.executable, "-m", "pytest_attnperf.cli", "report", ".attnperf/results.json")
    assert report.ret == 1
    report.stdout.fnmatch_lines(["code_objects", "gfx942", "SUSPICIOUS*hip.empty one*", "code objects: 1 suspicious*"])


def test_shuffled_collection_is_put_back(project: CodeProject, other_plugins: None) -> None:
    """pytest-randomly shuffles; kernels are compiled, judged and listed in the order that they are declared in."""
    project.kernels('Prebuilt("hip.saxpy", [(c, "saxpy.gfx942.co", "") for c in "abcdefgh"])')
    project.pytester.runpytest_subprocess(
        *("--attnperf", "--attnperf-tier=nightly", "-p", "randomly", "-p", "no:xdist", "suites/"), timeout=120
    )
    assert [one["key"]["workload"] for one in project.results()] == list("abcdefgh")


def test_a_change_cannot_bring_its_own_baseline(project: CodeProject) -> None:
    """With --attnperf-against the base side's stored kernels are read before this tree's, timed or not."""
    project.run("--update-baselines")
    base = project.path.parent / f"{project.path.name}-base"
    shutil.copytree(project.path, base)
    project.replace("saxpy.gfx942.co", by="spills.gfx942.co")
    project.run("--update-baselines", "--attnperf-accept=mine")
    project.run("--attnperf").assert_outcomes(passed=1)
    project.run("--attnperf", f"--attnperf-against={base}").assert_outcomes(failed=1)
