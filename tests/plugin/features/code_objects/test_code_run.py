from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.baselines.code_store import CodeStore, code_path
from pytest_attnperf.plugin.ending import collect_errors_in, merge_code
from pytest_attnperf.plugin.features.code_objects.code_run import (
    SHOWN,
    CodeRun,
    find_not_compiled,
    find_unused_code,
    unresolved_code_lines,
)
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeResult, KernelCode
from pytest_attnperf.reports.run.code_objects import TEXT_LIMIT
from pytest_attnperf.results import RESULTS_SCHEMA, RunResult

CODE = KernelCode(
    "k", "gfx942", 96, 0, 96, 40, 0, 0, 0, 0, 8192, 56, 256, 256, 64, None, False, 9000, "a1b2", {"matrix": 64}
)
POLICY: dict[str, Any] = {"fail_on": ["occupancy"], "growth_percent": 1.0}


REGISTERED = ["hip.softmax", "hip.rope"]


def result(config: str, arch: str = "gfx942", verdict: Verdict = Verdict.RECORDED, **fields: Any) -> CodeResult:
    """One configuration of a kernel."""
    key = CaseKey("code_objects", "hip.softmax", config, arch)
    plain = CodeResult(key, f"test_code.py::test_code[{config}-{arch}]", verdict, "said", compiler="clang 22.1.8")
    return replace(plain, code=replace(CODE, arch=arch), config={"LANES": "64"}, policy=POLICY, **fields)


def run(*results: CodeResult) -> RunResult:
    """A run of these kernels and nothing else."""
    return RunResult(
        RESULTS_SCHEMA, "0.1.0", "update", "2026-01-01T00:00:00Z", "pytest", "c0ffee", None, None, (), code=results
    )


@pytest.fixture
def store(tmp_path: Path) -> CodeStore:
    """Two roots with nothing in them: what is committed, and what was recorded on this machine."""
    return CodeStore(tmp_path / "baselines", tmp_path / "local")


def stored(store: CodeStore, *results: CodeResult) -> None:
    """Store these."""
    assert merge_code(run(*results), store)[1] == []


def test_each_architecture_has_its_file(store: CodeStore) -> None:
    """What was recorded is merged by architecture into the first root, each kernel as it was judged."""
    accepted = result("b", "gfx1100", accepted="faster with it", matrix=True)
    paths, problems = merge_code(run(result("a"), accepted, result("b")), store)
    assert (paths, problems) == ([code_path(store.roots[0], arch) for arch in ("gfx1100", "gfx942")], [])
    assert list(store.load("gfx942")) == ["hip.softmax/a", "hip.softmax/b"]
    [(entry, found)] = store.load("gfx1100").items()
    kernel = found.kernel
    assert (entry, kernel.code.arch, kernel.compiler, kernel.config) == (
        "hip.softmax/b", "gfx1100", "clang 22.1.8", {"LANES": "64"},
    )  # fmt: skip
    assert (kernel.accepted, kernel.matrix, kernel.commit) == ("faster with it", True, "c0ffee")
    assert found.policy == POLICY
    assert not store.roots[1].exists()


@pytest.mark.parametrize("verdict", sorted(set(Verdict) - {Verdict.RECORDED}))
def test_nothing_else_is_stored(store: CodeStore, verdict: Verdict) -> None:
    """A kernel of any other verdict leaves the files as they were, or absent."""
    assert merge_code(run(result("a", verdict=verdict)), store) == ([], [])
    assert not store.roots[0].exists()


def test_a_partial_run_keeps_the_others(store: CodeStore) -> None:
    """Entries that were not recorded this time stay."""
    stored(store, result("a"), result("b"))
    stored(store, result("b", accepted="again"))
    assert {entry: found.kernel.accepted for entry, found in store.load("gfx942").items()} == {
        "hip.softmax/a": "", "hip.softmax/b": "again",
    }  # fmt: skip


def test_one_broken_file_does_not_stop_another(store: CodeStore) -> None:
    """An unsound file is named and left as it is; architectures before and behind it are written."""
    broken = code_path(store.roots[0], "gfx942")
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    paths, problems = merge_code(run(*(result("a", arch) for arch in ("gfx942", "gfx1100", "gfx950"))), store)
    assert paths == [code_path(store.roots[0], arch) for arch in ("gfx1100", "gfx950")]
    assert len(problems) == 1
    assert str(broken) in problems[0]
    assert broken.read_text() == "{"


def test_one_folder_that_cannot_be_written_does_not_stop_another(store: CodeStore) -> None:
    """What the file system refuses is named, too, and ends nothing."""
    store.roots[0].mkdir()
    (store.roots[0] / "gfx1100").write_text("a file where a folder should be")
    paths, problems = merge_code(run(result("a", "gfx1100"), result("a")), store)
    assert paths == [code_path(store.roots[0], "gfx942")]
    assert len(problems) == 1
    assert "baselines/gfx1100" in problems[0]


def test_a_result_under_another_architecture_is_not_stored(store: CodeStore) -> None:
    """A kernel of one architecture in the place of another's is named and not written."""
    paths, problems = merge_code(
        run(replace(result("a"), code=replace(CODE, arch="gfx90a")), result("b", "gfx950")), store
    )
    assert paths == [code_path(store.roots[0], "gfx950")]
    assert len(problems) == 1
    assert "'gfx90a'" in problems[0]


def test_a_defect_of_ours_is_no_problem_of_a_file() -> None:
    """Only what files and baselines do wrong is noted."""
    problems: list[str] = []
    with pytest.raises(ZeroDivisionError), collect_errors_in(problems):
        _ = 1 // 0
    assert problems == []


def test_entries_that_nobody_compiles_are_named(store: CodeStore) -> None:
    """A stored kernel without an item is a finding with its architecture; one that any item is about is none."""
    stored(store, result("a"), result("b"), result("c"))
    judged = run(result("a", verdict=Verdict.SAME), result("c", verdict=Verdict.UNSUPPORTED))
    assert find_unused_code(judged, store, REGISTERED) == [
        "hip.softmax/b has a code object stored for gfx942 and is not compiled any more: its kernel or configuration "
        "was removed or renamed"
    ]


def test_only_architectures_that_were_compiled_for_are_looked_at(store: CodeStore) -> None:
    """What is stored for an architecture that this run left out has not gone; each that it took is looked at."""
    stored(store, *(result(config, arch) for arch in ("gfx942", "gfx1100", "gfx950") for config in ("a", "b")))
    judged = run(*(result("a", arch, verdict=Verdict.SAME) for arch in ("gfx950", "gfx942")))
    found = find_unused_code(judged, store, REGISTERED)
    assert [finding.split(" and ")[0] for finding in found] == [
        "hip.softmax/b has a code object stored for gfx942", "hip.softmax/b has a code object stored for gfx950",
    ]  # fmt: skip
    assert find_unused_code(run(), store, REGISTERED) == []


def test_the_same_configuration_of_another_architecture_does_not_count(store: CodeStore) -> None:
    """Compiled for gfx950 only, the kernel stored for gfx942 has gone."""
    stored(store, result("a"), result("b"))
    judged = run(result("a", verdict=Verdict.SAME), result("b", "gfx950", verdict=Verdict.SAME))
    assert [finding.split(" ")[0] for finding in find_unused_code(judged, store, REGISTERED)] == ["hip.softmax/b"]


def test_a_kernel_of_another_file_has_not_gone(store: CodeStore) -> None:
    """A stored kernel that this run has no item of is one of another file while it is registered, and gone after."""
    stored(store, result("a"))
    other = replace(result("b", verdict=Verdict.SAME), key=CaseKey("code_objects", "hip.rope", "b", "gfx942"))
    assert find_unused_code(run(other), store, REGISTERED) == []
    [finding] = find_unused_code(run(other), store, ["hip.rope"])
    assert finding.startswith("hip.softmax/a has a code object stored for gfx942")


def test_what_is_stored_and_cannot_be_compiled_here_is_a_finding(store: CodeStore) -> None:
    """A compiler that is missing skips its items, but a gate without it is not silent; what was never stored is."""
    stored(store, result("a"), result("b"))
    missing = [result(name, verdict=Verdict.UNSUPPORTED, summary="triton is not installed") for name in ("a", "b", "c")]
    assert find_not_compiled(run(*missing, result("b", "gfx950", verdict=Verdict.UNSUPPORTED)), store) == [
        "2 stored code objects for gfx942 were not compiled here: triton is not installed"
    ]
    assert find_not_compiled(run(result("a", verdict=Verdict.SAME)), store) == []


def test_a_broken_file_is_a_finding_of_its_own(store: CodeStore) -> None:
    """What cannot be read is named, and does not hide what the next architecture has lost."""
    stored(store, result("a"), result("b"), result("a", "gfx1100"))
    broken = code_path(store.roots[0], "gfx1100")
    broken.write_text("{")
    judged = run(result("a", verdict=Verdict.SAME), result("a", "gfx1100", verdict=Verdict.SAME))
    first, second = find_unused_code(judged, store, REGISTERED)
    assert str(broken) in first
    assert second.startswith("hip.softmax/b has a code object stored for gfx942")


def test_what_was_not_gated_is_said() -> None:
    """The first few of each kind with their reason, and how many more; what was gated, or skipped, is not listed."""
    absent = [result(f"c{number}", verdict=Verdict.NO_BASELINE) for number in range(SHOWN + 2)]
    other = result("x", verdict=Verdict.INCOMPARABLE, summary="another compiler")
    gated = [result(verdict.value, verdict=verdict) for verdict in (Verdict.SAME, Verdict.WORSE, Verdict.UNSUPPORTED)]
    assert unresolved_code_lines(run(*gated, *absent, other)) == [
        "INCOMPARABLE: code_objects/hip.softmax/x/gfx942: another compiler",
        *(f"NO_BASELINE: code_objects/hip.softmax/c{number}/gfx942: said" for number in range(SHOWN)),
        "NO_BASELINE: 2 more code objects",
    ]
    assert unresolved_code_lines(run(*absent[:SHOWN]))[-1].endswith(f"c{SHOWN - 1}/gfx942: said")
    assert unresolved_code_lines(run(*gated)) == []


def test_a_hostile_summary_is_made_safe() -> None:
    """A compiler's name out of an edited baseline is one line without escapes, of limited length."""
    hostile = result("x", verdict=Verdict.INCOMPARABLE, summary="\x1b[2J\nSAME\r" + "x" * 100_000)
    [line] = unresolved_code_lines(run(hostile))
    assert len(line) <= TEXT_LIMIT
    assert not set(line) & set("\x1b\n\r")


def key(workload: str) -> CaseKey:
    """Of a timed case."""
    return CaseKey("softmax", "triton.softmax", workload)


class Ahead(CodeRun):
    """Counts how often compilers were to be there."""

    asked = 0

    def _ensure_session(self) -> Any:
        self.asked += 1


@pytest.mark.parametrize(("xdist", "asked"), [(False, [0, 0, 1]), (True, [0, 0, 0])])
def test_compilers_start_behind_the_last_timed_case(*, xdist: bool, asked: list[int]) -> None:
    """They compile beside cases that are only proven, and never beside one that is timed, nor in a worker of xdist."""
    config: Any = SimpleNamespace(**({"workerinput": {}} if xdist else {}))
    absent: Any = None
    run = Ahead(config, [absent], absent, (), absent, {key("a"), key("b")})
    run.before_run()
    seen = [run.asked]
    for name in "ab":
        done: Any = SimpleNamespace(key=key(name))
        run.after_case(done)
        seen.append(run.asked)
    assert seen == asked
