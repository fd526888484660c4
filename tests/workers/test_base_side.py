from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, Role
from pytest_attnperf.testing.project import WORKLOAD, FakeProject
from pytest_attnperf.workers.base_side import BaseSide, base_plan, resolve_base_side
from pytest_attnperf.workers.base_spec import BaseKind
from pytest_attnperf.workers.conversation import BlockPlan, OpenRequest
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.pool import WorkerPool

if TYPE_CHECKING:
    from tests.workers.conftest import GitRepository

SUITE = "suites/test_a.py"
Resolve = Callable[..., BaseSide]


@pytest.fixture
def plan(repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaunchPlan:
    """The working tree's plan, in a repository whose only commit holds the suite."""
    repository.commit(suites__test_a_py="", **{"pytest.ini": "[pytest]\n"})
    monkeypatch.chdir(repository.path)
    root = repository.path
    return LaunchPlan(
        files=[str(root / SUITE)],
        rootdir=root,
        scratch=tmp_path / "scratch",
        role=Role.INTERPRET,
        config_file=root / "pytest.ini",
        extra_environment={"MINE": "1"},
    )


@pytest.fixture
def resolve(plan: LaunchPlan, tmp_path: Path) -> Resolve:
    """Resolve an option's value against the plan, or against a variation of it."""

    def resolved(text: str, other: LaunchPlan = plan, build: str = "") -> BaseSide:
        return resolve_base_side(text, other, build=build, cache_root=tmp_path / "cache")

    return resolved


def test_a_revision_becomes_a_tree(repository: GitRepository, plan: LaunchPlan, resolve: Resolve) -> None:
    """The plan of its workers runs the same files, settings and options from the tree of the commit."""
    commit = repository.commit(suites__test_a_py="changed")
    side = resolve("HEAD~1")
    assert side.kind is BaseKind.REV
    assert side.label == f"HEAD~1 ({repository.git('rev-parse', 'HEAD~1')[:8]})"
    assert side.commit != commit
    assert side.missing_files == ()
    assert side.notes == ()
    base = base_plan(plan, side)
    assert base.rootdir == side.root
    assert base.files == (str(base.rootdir / SUITE),)
    assert Path(base.files[0]).read_text() == ""
    assert base.config_file == base.rootdir / "pytest.ini"
    assert (base.python, base.scratch, base.role) == (plan.python, plan.scratch, plan.role)
    assert not base.rootdir.is_relative_to(repository.path)


def test_a_revisions_builds_are_its_own_and_kept(repository: GitRepository, plan: LaunchPlan, resolve: Resolve) -> None:
    """Two revisions compile into different folders; the same one finds what an earlier run compiled."""
    repository.commit()
    first, again, other = resolve("HEAD"), resolve("main"), resolve("HEAD~1")
    assert first.environment == again.environment
    assert first.environment["TORCH_EXTENSIONS_DIR"] != other.environment["TORCH_EXTENSIONS_DIR"]
    environment = base_plan(plan, first).make_environment({}, "base0-1", None)
    assert environment["TORCH_EXTENSIONS_DIR"] == first.environment["TORCH_EXTENSIONS_DIR"]
    assert environment["MINE"] == "1"
    assert not {"AITER_JIT_DIR", "TRITON_CACHE_DIR"} & environment.keys()


def test_a_tree_that_holds_aiter_builds_its_own(repository: GitRepository, resolve: Resolve) -> None:
    """Where aiter itself is under test its modules are kept apart; an installed one is the same on both sides."""
    repository.commit(aiter__jit__core_py="")
    assert "AITER_JIT_DIR" in resolve("HEAD").environment


def test_a_rootdir_below_the_top_is_found_in_the_tree(
    repository: GitRepository, plan: LaunchPlan, resolve: Resolve
) -> None:
    """The side's root is the folder of the tree that matches the rootdir; imports from beside it move, too."""
    repository.commit(bench__suites__test_a_py="")
    below = replace(plan, rootdir=repository.path / "bench", files=[SUITE], config_file=None)
    side = resolve("HEAD", below)
    assert side.root is not None
    assert (side.root.name, side.root.parent.name) == ("bench", "tree")
    inherited = {"PYTHONPATH": str(repository.path / "python")}
    path = base_plan(below, side).make_environment(inherited, "w", None)["PYTHONPATH"].split(":")
    assert path[1:] == [str(side.root), str(side.root.parent / "python")]
    assert base_plan(below, side).config_file == Path(os.devnull), "pytest.ini above the rootdir is not the tree's"
    with pytest.raises(UsageError, match="has no folder bench, where the suite's rootdir is; name a revision"):
        resolve("HEAD~1", below)


def test_what_one_side_lacks_is_named(repository: GitRepository, plan: LaunchPlan, resolve: Resolve) -> None:
    """A new suite file exists on one side only; a revision without any of the files is empty, and no error."""
    new = repository.path / "suites/test_new.py"
    repository.commit(suites__test_new_py="")
    side = resolve("HEAD~1", both := replace(plan, files=[*plan.files, str(new)]))
    assert side.missing_files == ("suites/test_new.py",)
    assert [Path(file).name for file in base_plan(both, side).files] == ["test_a.py"]
    assert not side.empty
    alone = resolve("HEAD~1", replace(plan, files=[str(new)]))
    assert alone.empty
    assert alone.missing_files == ("suites/test_new.py",)


def test_a_directory_is_a_side(repository: GitRepository, plan: LaunchPlan, resolve: Resolve, tmp_path: Path) -> None:
    """A copy without git history works; its build folders belong to the run, because nothing says what is in it."""
    copy = tmp_path / "copy"
    (copy / "suites").mkdir(parents=True)
    (copy / SUITE).touch()
    side = resolve("../copy")
    assert (side.kind, side.root, side.commit) == (BaseKind.DIR, copy, "unknown")
    assert side.label == "../copy (no git history)"
    assert Path(side.environment["TORCH_EXTENSIONS_DIR"]).is_relative_to(plan.scratch)
    assert base_plan(plan, side).files == (str(copy / SUITE),)


def test_a_directory_with_history_says_its_commit(repository: GitRepository, resolve: Resolve) -> None:
    """Another worktree is named by its commit, '+dirty' behind it where it differs."""
    repository.git("worktree", "add", "--quiet", "--detach", "../base")
    commit = repository.git("rev-parse", "HEAD")
    assert resolve("../base").label == f"../base ({commit[:8]})"
    (repository.path.parent / "base" / SUITE).write_text("changed")
    side = resolve("../base")
    assert (side.commit, side.label) == (f"{commit}+dirty", f"../base ({commit[:8]}+dirty)")


def test_the_working_tree_itself_is_a_control(plan: LaunchPlan, resolve: Resolve) -> None:
    """The same code on both sides is allowed, called so, and never built."""
    side = resolve(".", build="touch built")
    assert side.label == ". (the working tree itself: same-code control)"
    assert side.notes == ("the build command was not run: the directory is the working tree",)
    base = base_plan(plan, side)
    assert (base.rootdir, base.files, base.config_file) == (plan.rootdir, plan.files, plan.config_file)
    assert not (plan.rootdir / "built").exists()


def test_a_directory_without_the_suite_is_an_error(
    repository: GitRepository, plan: LaunchPlan, resolve: Resolve
) -> None:
    """The error says how to name a revision of that name, or which folder below it would do."""
    with pytest.raises(UsageError, match=r"the directory .*suites lacks the suite: .* or use rev:suites for a"):
        resolve("suites")
    repository.commit(bench__suites__test_a_py="")
    repository.git("worktree", "add", "--quiet", "--detach", "../base")
    below = replace(plan, rootdir=repository.path / "bench", files=[SUITE])
    (repository.path.parent / "base" / SUITE).unlink()
    with pytest.raises(UsageError, match=r"; use --attnperf-against=../base/bench$"):
        resolve("../base", below)


def test_a_directory_that_is_a_branch_too_is_said(repository: GitRepository, resolve: Resolve) -> None:
    """The directory wins, and a note says how to mean the branch."""
    repository.write(nightly__suites__test_a_py="")
    assert resolve("nightly").notes == ()
    repository.git("branch", "nightly")
    assert "to use the revision of this name: --attnperf-against=rev:nightly" in resolve("nightly").notes[0]


def test_an_interpreter_runs_the_same_tree(plan: LaunchPlan, resolve: Resolve) -> None:
    """Files and settings stay; the interpreter, its programs on PATH and the build folders change."""
    side = resolve(sys.executable, build="make")
    assert (side.kind, side.python, side.root) == (BaseKind.PYTHON, sys.executable, plan.rootdir)
    assert "the build command was not run" in side.notes[0]
    base = base_plan(plan, side)
    assert (base.python, base.files, base.config_file, base.moved) == (
        sys.executable,
        plan.files,
        plan.config_file,
        None,
    )
    assert base.extra_environment["PATH"].split(":")[0] == str(Path(sys.executable).parent)


def test_a_command_is_returned_as_words(plan: LaunchPlan, resolve: Resolve) -> None:
    """A command has a plan of another type, and asking for this one is a mistake of the caller."""
    side = resolve("sh -c 'attnperf worker'")
    assert (side.kind, side.command, side.root) == (BaseKind.COMMAND, ("sh", "-c", "attnperf worker"), None)
    assert side.label == "command sh -c 'attnperf worker'"
    with pytest.raises(ValueError, match="use CommandPlan"):
        base_plan(plan, side)


def test_a_container_is_called_by_its_image(resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict against a container names the image and not the whole command, which workers are started by."""
    (tmp_path / "docker").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    side = resolve("command:docker run -i --gpus all rocm/pytorch:6.4 attnperf worker --rootdir /src")
    assert side.label == "image rocm/pytorch:6.4 (docker)"
    assert side.command is not None
    assert side.command[:3] == ("docker", "run", "-i")


def test_nothing_fits(resolve: Resolve) -> None:
    """The error lists every kind with the reason why the value is none, in one line."""
    said = r"--attnperf-against=mian is neither a directory, an interpreter, a command nor a revision: no directory: .*"
    with pytest.raises(UsageError, match=f"^{said}; no interpreter: .*; no command: .*; no revision: .*close: main"):
        resolve("mian")
    with pytest.raises(UsageError, match=r"^--attnperf-against=mian: no commit 'mian'"):
        resolve("rev:mian")


def test_outside_git_a_directory_is_advised(plan: LaunchPlan, resolve: Resolve, tmp_path: Path) -> None:
    """A tree without history cannot name a revision."""
    with pytest.raises(UsageError, match=r"is not in a git repository; copy the base tree .*--attnperf-against=DIR"):
        resolve("main", replace(plan, rootdir=tmp_path))


def test_a_revision_is_built_once(repository: GitRepository, resolve: Resolve, tmp_path: Path) -> None:
    """Once per commit and command, with the environment of its workers; another command has a tree of its own."""
    count = tmp_path / "count"
    command = f"echo $TORCH_EXTENSIONS_DIR:$PYTHONPATH >> {count} && touch built.so"
    first, second = resolve("HEAD", build=command), resolve("main", build=command)
    assert first.root is not None
    assert first.root == second.root
    (line,) = count.read_text().splitlines()
    assert line.split(":")[0] == first.environment["TORCH_EXTENSIONS_DIR"]
    assert line.split(":")[2] == str(first.root)
    assert (first.root / "built.so").exists()
    other = resolve("HEAD", build="true")
    assert other.root is not None
    assert not (other.root / "built.so").exists()
    assert not (repository.path / "built.so").exists()


def test_a_failed_build_is_tried_again(resolve: Resolve, tmp_path: Path) -> None:
    """The error names the side; the next run begins with a clean tree."""
    command = f"test ! -e left && touch left && test -e {tmp_path}/ready"
    with pytest.raises(UsageError, match=r"^base side HEAD \([0-9a-f]{8}\): the build command .* exit status 1"):
        resolve("HEAD", build=command)
    (tmp_path / "ready").touch()
    assert resolve("HEAD", build=command).root is not None


def test_a_directory_is_built_every_time(resolve: Resolve, plan: LaunchPlan, tmp_path: Path) -> None:
    """Nothing tells cheaply whether its files changed; its log lies with the run's."""
    (tmp_path / "copy/suites").mkdir(parents=True)
    (tmp_path / "copy" / SUITE).touch()
    for _ in range(2):
        resolve("../copy", build="echo built | tee -a ../count")
    assert (tmp_path / "count").read_text() == "built\nbuilt\n"
    assert (plan.scratch / "base-build.log").read_text() == "built\n"


@pytest.fixture
def base_pool(
    attnperf_project: FakeProject,
    repository_in: Callable[[Path], GitRepository],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[WorkerPool]:
    """Workers of a commit whose backend takes 100 us. The project has no pytest settings but holds a copy of this
    package, as this repository does; its tree is made below a folder with settings that no session survives."""
    cache = tmp_path_factory.mktemp("cache")
    (cache / "pytest.ini").write_text("[pytest]\nrequired_plugins = no-such-plugin\n")
    repository = repository_in(attnperf_project.path)
    (repository.path / "tox.ini").unlink()
    repository.write(**{"pytest_attnperf/__init__.py": "raise ImportError('an old harness')\n"})
    attnperf_project.backend("fake.a", time_us=100.0)
    repository.commit("base")
    attnperf_project.backend("fake.a", time_us=200.0)
    plan = LaunchPlan(
        files=[str(repository.path / "suites/test_prefill.py")],
        rootdir=repository.path,
        scratch=tmp_path_factory.mktemp("scratch"),
        role=Role.INTERPRET,
        passed_options=("--attnperf-device=cpu",),
    )
    side = resolve_base_side("HEAD", plan, cache_root=cache)
    pool = WorkerPool(base_plan(plan, side), prefix="base", held=side)
    yield pool
    pool.shutdown()


def test_workers_of_a_revision_run_its_code(base_pool: WorkerPool) -> None:
    """A real worker on the tree of a commit serves that commit's backend, with this harness and not the copy there, and
    without the settings of a folder above."""
    opening = OpenRequest(CaseKey("prefill", "fake.a", WORKLOAD), None, 1, 2, 30.0)
    with base_pool.case_at(0, opening) as case:
        case.open()
        assert case.check().right
        block_us = case.measure_blocks(BlockPlan(max_blocks=3)).block_us[0]
        final = case.finish()
        case.close()
    assert block_us == pytest.approx(100.0, rel=0.05)
    assert {"conftest.py", "suites/test_prefill.py"} <= final.sources.keys()
    assert final.foreign_sources == ()
