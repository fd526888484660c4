import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import pytest_attnperf
from pytest_attnperf.records import Role
from pytest_attnperf.workers.launch import START, LaunchPlan


@pytest.fixture
def plan(tmp_path: Path) -> LaunchPlan:
    """A plan for a suite of one file."""
    return LaunchPlan(files=["suites/test_prefill.py"], rootdir=tmp_path, scratch=tmp_path / "s", role=Role.DEVICE)


def test_addopts_and_the_cache_do_not_reach_the_worker(plan: LaunchPlan) -> None:
    """`-n2`, `--lf` or `--junitxml` in addopts would act in the worker, and it would write the user's lastfailed."""
    command = plan.make_command(7, "worker0-1")
    assert command[command.index("addopts=") - 1] == "-o"
    assert any(word.startswith("cache_dir=") and "worker0-1.cache" in word for word in command)
    assert "--attnperf-worker-fd=7" in command
    assert command[-1] == "suites/test_prefill.py"


def test_the_tree_is_pinned(plan: LaunchPlan) -> None:
    """rootdir and confcutdir are the tree's, so that no conftest outside it is loaded."""
    command = plan.make_command(7, "w")
    assert f"--rootdir={plan.rootdir}" in command
    assert f"--confcutdir={plan.rootdir}" in command


def test_the_environment_is_scrubbed(plan: LaunchPlan) -> None:
    """Variables that change a pytest session are removed; everything else is kept."""
    base = {"PYTEST_ADDOPTS": "-n2", "PYTEST_XDIST_WORKER": "gw0", "HOME": "/h", "TRITON_CACHE_DIR": "/c"}
    environment = plan.make_environment(base, "w", None)
    assert "PYTEST_ADDOPTS" not in environment
    assert "PYTEST_XDIST_WORKER" not in environment
    assert environment["HOME"] == "/h"
    assert environment["TRITON_CACHE_DIR"] == "/c"


@pytest.mark.parametrize(("role", "interpreted"), [(Role.INTERPRET, "1"), (Role.DEVICE, None), (Role.COMPILE, None)])
def test_the_role_decides_whether_triton_interprets(plan: LaunchPlan, role: Role, interpreted: str | None) -> None:
    """Only the interpret role sets TRITON_INTERPRET; the others remove a stray one."""
    environment = replace(plan, role=role).make_environment({"TRITON_INTERPRET": "1"}, "w", None)
    assert environment.get("TRITON_INTERPRET") == interpreted


@pytest.mark.parametrize("role", list(Role))
def test_triton_fuses_in_every_worker_unless_told_otherwise(plan: LaunchPlan, role: Role) -> None:
    """Releases of Triton differ in the default; what stored baselines were made with is set where the user set none."""
    own = replace(plan, role=role)
    assert own.make_environment({}, "w", None)["TRITON_DEFAULT_FP_FUSION"] == "1"
    assert own.make_environment({"TRITON_DEFAULT_FP_FUSION": "0"}, "w", None)["TRITON_DEFAULT_FP_FUSION"] == "0"
    told = replace(own, extra_environment={"TRITON_DEFAULT_FP_FUSION": "0"})
    assert told.make_environment({}, "w", None)["TRITON_DEFAULT_FP_FUSION"] == "0"


def test_a_cpu_worker_has_one_thread_unless_told_otherwise(plan: LaunchPlan) -> None:
    """Without a GPU OMP_NUM_THREADS is 1 where the user set nothing; on a GPU it is left alone."""
    interpreting = replace(plan, role=Role.INTERPRET)
    assert interpreting.make_environment({}, "w", None)["OMP_NUM_THREADS"] == "1"
    assert interpreting.make_environment({"OMP_NUM_THREADS": "4"}, "w", None)["OMP_NUM_THREADS"] == "4"
    assert "OMP_NUM_THREADS" not in plan.make_environment({}, "w", None)


def test_a_worker_sees_one_gpu(plan: LaunchPlan) -> None:
    """The leased GPU is set for both vendors before torch loads."""
    environment = plan.make_environment({"CUDA_VISIBLE_DEVICES": "0,1,2"}, "w", "2")
    assert environment["CUDA_VISIBLE_DEVICES"] == "2"
    assert environment["HIP_VISIBLE_DEVICES"] == "2"


def test_every_worker_runs_this_harness(plan: LaunchPlan) -> None:
    """The harness folder stands first on the path and holds a link to this package alone; the tree comes next."""
    plan.link_harness()
    plan.link_harness()
    assert [path.name for path in plan.harness.iterdir()] == ["pytest_attnperf"]
    assert (plan.harness / "pytest_attnperf").resolve() == Path(pytest_attnperf.__file__).resolve().parent
    path = plan.make_environment({"PYTHONPATH": "/mine"}, "w", None)["PYTHONPATH"]
    assert path == f"{plan.harness}:{plan.rootdir}:/mine"


@pytest.mark.parametrize("safe_path", ["", "1"])
def test_a_copy_of_the_harness_in_the_tree_does_not_run(plan: LaunchPlan, safe_path: str) -> None:
    """A base tree of a project that ships this package holds an older copy, and the worker starts in that tree."""
    (plan.rootdir / "pytest_attnperf").mkdir()
    (plan.rootdir / "pytest_attnperf" / "__init__.py").write_text("raise ImportError('the copy of the tree ran')\n")
    (plan.rootdir / "kernels.py").write_text("SIDE = 'the tree'\n")
    plan.link_harness()
    probe = "import pytest_attnperf, kernels; print(pytest_attnperf.__file__, kernels.SIDE)"
    start = START.replace("import pytest_attnperf, pytest; sys.exit(pytest.main())", probe)
    assert plan.make_command(7, "w")[:3] == [sys.executable, "-c", START]
    answer = subprocess.run(
        [sys.executable, "-c", start],
        cwd=plan.rootdir,
        env=plan.make_environment({"PYTHONSAFEPATH": safe_path}, "w", None),
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split(maxsplit=1) == [str(plan.harness / "pytest_attnperf/__init__.py"), "the tree\n"]


def test_a_base_side_imports_from_its_own_tree(
    plan: LaunchPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of PYTHONPATH inside the working tree become those of the other tree; an environment that stands in the
    working tree, and everything outside it, stay."""
    old, new = (tmp_path / "old").resolve(), tmp_path / "new"
    (old / "lib").mkdir(parents=True)
    (tmp_path / "link").symlink_to(old)
    monkeypatch.chdir(old)
    inherited = f"{old}:lib:{tmp_path}/link/src::/opt/lib:{old}/.venv/lib:{old}/env/site-packages"
    base = replace(plan, rootdir=new, moved=(old, new))
    path = base.make_environment({"PYTHONPATH": inherited}, "w", None)["PYTHONPATH"].split(":")
    assert path == [
        str(plan.harness),
        str(new),
        str(new / "lib"),
        str(new / "src"),
        "/opt/lib",
        f"{old}/.venv/lib",
        f"{old}/env/site-packages",
    ]
