"""examples/containers and docs/containers.md: what can be said of them without a container runtime."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.data.containers import runtime_stub
from tests.tools.ci.ci_commands import parsed

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "containers"
PAGE = (ROOT / "docs" / "containers.md").read_text()
DOCKERFILES = ("Dockerfile.rocm", "Dockerfile.cuda")


def instructions(name: str) -> list[tuple[str, str]]:
    """A Dockerfile's, (word, rest), comments left out and lines joined."""
    text = re.sub(r"(?m)^#.*\n", "", (EXAMPLES / name).read_text())
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines if line.strip()]


def installs(name: str) -> list[list[str]]:
    """The words behind each `pip install`."""
    runs = " && ".join(rest for word, rest in instructions(name) if word == "RUN")
    return [shlex.split(part.split("&&")[0]) for part in runs.split("pip install ")[1:]]


def blocks() -> list[str]:
    """Lines of the page's code blocks."""
    found = "\n".join(re.findall(r"(?s)```\n(.*?)```", PAGE))
    return re.sub(r"\\\n\s*", "", found).splitlines()


@pytest.mark.parametrize("name", DOCKERFILES)
def test_a_base_image_is_an_argument_with_a_pinned_default(name: str) -> None:
    """Every stage begins at the argument or at an earlier stage; the default is a tag that is no moving one."""
    (default,) = (rest for word, rest in instructions(name) if word == "ARG" and rest.startswith("BASE_IMAGE="))
    assert re.fullmatch(r"BASE_IMAGE=(rocm|pytorch)/pytorch:[\w.-]*\d[\w.-]*", default)
    stages = [rest.split() for word, rest in instructions(name) if word == "FROM"]
    known = {"${BASE_IMAGE}", "aiter-${WITH_AITER}", *(stage[2] for stage in stages if len(stage) == 3)}
    assert {stage[0] for stage in stages} <= known
    assert instructions(name)[0] == ("ARG", default)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_torch_and_aiter_are_never_installed_by_pip(name: str) -> None:
    """What pip takes from an index is pinned and small; the wheel goes in without its needs; torch is compared."""
    pinned, wheel = installs(name)
    assert {word.partition("==")[0] for word in pinned} == {"pytest", "msgspec", "filelock"}
    assert all(re.fullmatch(r"\w+==[\d.]+", word) for word in pinned)
    assert wheel[0] == "--no-deps"
    assert 'test "$before" = "$(python3 -c \'import torch; print(torch.__version__)\')"' in str(
        next(rest for word, rest in instructions(name) if "pip install" in rest)
    )


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_begins_as_a_user_who_is_not_root(name: str) -> None:
    """The last user is ours; the command is the doctor's; nothing looks after a container that ends by itself."""
    last = dict(instructions(name))
    assert (last["USER"], last["CMD"], last["HEALTHCHECK"]) == ("attnperf", '["attnperf", "doctor"]', "NONE")
    assert ("--groups video,render" in last["RUN"]) == (name == "Dockerfile.rocm")


def test_aiter_is_built_from_its_source_on_request() -> None:
    """Not unless asked for, at a named release, for named architectures."""
    arguments = dict(rest.split("=", 1) for word, rest in instructions("Dockerfile.rocm") if word == "ARG")
    assert arguments["WITH_AITER"] == "no"
    assert {"AITER_REF", "GPU_ARCHS"} <= arguments.keys()
    (build,) = (rest for word, rest in instructions("Dockerfile.rocm") if word == "RUN" and "aiter" in rest)
    assert 'git clone --recursive --branch "${AITER_REF}" https://github.com/ROCm/aiter' in build


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    """The Job's pod."""
    claim, made = yaml.safe_load_all((EXAMPLES / "k8s-job.yaml").read_text())
    pod: dict[str, Any] = made["spec"]["template"]["spec"]
    assert (claim["kind"], made["kind"], made["spec"]["backoffLimit"]) == ("PersistentVolumeClaim", "Job", 0)
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    return pod


def test_the_pod_has_one_gpu_and_no_rights_beyond_it(job: dict[str, Any]) -> None:
    """Both containers: whole cores, one GPU, no root and no capability; the nodes' groups for AMD's devices."""
    assert job["restartPolicy"] == "Never"
    assert job["securityContext"]["runAsNonRoot"] is True
    assert job["securityContext"]["supplementalGroups"]
    for container in (*job["initContainers"], *job["containers"]):
        limits, requests = container["resources"]["limits"], container["resources"]["requests"]
        assert limits["amd.com/gpu"] == 1
        assert requests["cpu"] == limits["cpu"]
        context = container["securityContext"]
        assert (context["allowPrivilegeEscalation"], context["capabilities"]) == (False, {"drop": ["ALL"]})


def test_the_pod_keeps_what_must_outlive_it(job: dict[str, Any]) -> None:
    """Baselines, results and caches lie in the claim, shared memory in memory; a suite is warmed before it is timed."""
    (warm,), (gate,) = job["initContainers"], job["containers"]
    assert warm["command"][:2] == ["pytest", "--attnperf-warm"]
    assert {mount["name"]: mount["mountPath"] for mount in gate["volumeMounts"]} == {
        "state": "/state",
        "shm": "/dev/shm",
    }
    assert job["volumes"][1]["emptyDir"]["medium"] == "Memory"
    options = parsed("pytest", gate["command"][1:])
    assert options.attnperf_baselines.startswith("/state/")
    assert options.attnperf_results.startswith("/state/")
    assert all(entry["value"].startswith("/state/") for entry in gate["env"])
    assert gate["env"] == warm["env"]


def test_every_command_of_a_runtime_on_the_page_is_one_it_takes() -> None:
    """Parsed by the stand-in that the comparisons were tried with, all three runtimes and both vendors."""
    lines = [
        shlex.split(line) for line in blocks() if re.match(r"(docker|podman) run --rm --inter|apptainer exec", line)
    ]
    found = [(words[0], runtime_stub.parsed(words[0], words[1:])) for words in lines]
    assert [runtime for runtime, _ in found] == ["docker", "docker", "podman", "podman", "apptainer", "apptainer"]
    for _, (_, image, inside) in found:
        assert image.startswith("IMAGE")
        assert inside == ["attnperf", "worker", "--rootdir=/src"]


def test_commands_of_the_page_name_what_exists() -> None:
    """Options of the comparison and of pytest, Dockerfiles and links."""
    program = pytest.importorskip("examples.containers.compare_images")
    lines = blocks()
    (compared,) = (line for line in lines if line.startswith("examples/containers/compare_images.py"))
    options = program.parsed(shlex.split(compared)[1:])
    assert program.image_of(options.old, "--old", "docker") != program.image_of(options.new, "--new", "docker")
    assert options.pytest_arguments[0] == "suites/test_prefill.py"
    (typed,) = (line for line in lines if line.startswith("pytest "))
    assert parsed("pytest", shlex.split(typed)[1:]).attnperf_candidate.startswith("docker run -i")
    built = [line.split()[3] for line in lines if line.startswith("docker build")]
    assert [name for name in built if not (ROOT / name).is_file()] == []
    linked = re.findall(r"\]\(([^)#:]+)\)", PAGE)
    assert [link for link in linked if not (ROOT / "docs" / link).exists()] == []


def test_the_slurm_job_compares_on_a_node_of_its_own(tmp_path: Path) -> None:
    """One GPU, nothing else on the node; what it types is what the program takes; without images it says how."""
    script = EXAMPLES / "slurm-compare.sh"
    assert re.findall(r"(?m)^#SBATCH (--gres=gpu:1|--exclusive)$", script.read_text()) == [
        "--gres=gpu:1",
        "--exclusive",
    ]
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    environ = {"PATH": "/usr/bin:/bin", "ATTNPERF_PYTHON": str(python), "SLURM_SUBMIT_DIR": str(tmp_path)}
    words = ["old.sif", "new.sif", "suites/", "-k", "a b"]
    ran = subprocess.run(["bash", str(script), *words], env=environ, capture_output=True, text=True, check=True)
    program = pytest.importorskip("examples.containers.compare_images")
    options = program.parsed(ran.stdout.splitlines()[1:])
    assert (options.old, options.new, options.runtime, options.vendor) == ("old.sif", "new.sif", "apptainer", "amd")
    assert options.pytest_arguments == ["--attnperf-results=.attnperf/images-0.json", "suites/", "-k", "a b"]
    alone = subprocess.run(["bash", str(script)], env=environ, capture_output=True, text=True, check=False)
    assert (alone.returncode, alone.stdout) == (2, "")
    assert alone.stderr.startswith("usage: sbatch slurm-compare.sh OLD.sif NEW.sif")
