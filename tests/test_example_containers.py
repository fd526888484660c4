"""examples/containers/compare_images.py, with a stand-in for the container runtimes, on the fake device."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.testing.fake.device import SCRIPT
from pytest_attnperf.testing.project import SUITE, WORKLOAD, full_results
from pytest_attnperf.workers.command_plan import container_image
from tests.data.containers import runtime_stub

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "examples" / "containers" / "compare_images.py"
STUB = ROOT / "tests" / "data" / "containers" / "runtime_stub.py"

CONFTEST = """
import json, os
from pathlib import Path
import pytest
from pytest_attnperf.testing.fake.device import FakeDevice
pytest_plugins = ["pytest_attnperf.testing.fake.device"]

@pytest.hookimpl(tryfirst=True)
def pytest_attnperf_device(config, kind):
    seen = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SECRET")}
    Path(os.environ["XDG_CACHE_HOME"], "seen.json").write_text(json.dumps(seen))
    return FakeDevice(Path(os.environ["IMAGE_SCRIPT"]), kind, os.environ["ATTNPERF_WORKER"])
"""
"""The device of an image: each has a script of its own."""

TORCH = """
__version__ = {torch!r}
class version:
    hip, cuda = {rocm!r}, None
class cuda:
    device_count = staticmethod(lambda: {gpus})
"""
LEAN = ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTEST_PLUGINS")
"""What `lean_processes` sets."""
TIMES: dict[str, dict[str, Any]] = {"fake.slower": {"time_us": 100}, "fake.same": {"time_us": 50}, "fake.dies": {}}
ABSENT = "raise ModuleNotFoundError(\"No module named '{0}'\", name='{0}')\n"


@dataclass(frozen=True)
class Machine:
    """A folder with a suite, images and runtimes; what is typed there sees no torch."""

    path: Path

    def image(self, name: str, rocm: str, torch: str, backends: Mapping[str, object], gpus: int = 1) -> Path:
        """Make an image; its folder."""
        root = self.path / "images" / re.sub(r"\W", "_", name)
        (root / "site" / "torch").mkdir(parents=True)
        (root / "site" / "torch" / "__init__.py").write_text(TORCH.format(torch=torch, rocm=rocm, gpus=gpus))
        script = {"backends": backends, "process_sd": 0.002, "device": {"named": {"rocm": rocm, "torch": torch}}}
        (root / SCRIPT).write_text(json.dumps(script))
        (root / "environment.json").write_text(json.dumps({"IMAGE_SCRIPT": str(root / SCRIPT)}))
        for package, version in (("torch", torch), ("triton", "3.3.1")):
            folder = root / "site" / f"{package}-{version}.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        return root

    def typed(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Type `compare_images.py ARGUMENTS` in the suite's folder."""
        environ = {
            "PATH": f"{self.path / 'bin'}:{os.defpath}",
            "HOME": str(self.path),
            "TMPDIR": str(self.path),
            "STUB_IMAGES": str(self.path / "images"),
            "PYTHONPATH": str(self.path / "no-torch"),
            "SECRET": "1",
            "CUDA_VISIBLE_DEVICES": "GPU-stub0",
            "ROCR_VISIBLE_DEVICES": "0,1",
            "OMP_NUM_THREADS": "1",
            **{name: os.environ[name] for name in LEAN if name in os.environ},
            **environment,
        }
        command = [sys.executable, str(PROGRAM), *arguments]
        return subprocess.run(
            command, cwd=self.path / "suite", env=environ, capture_output=True, text=True, timeout=100, check=False
        )

    def results(self) -> dict[str, dict[str, Any]]:
        """Cases of the last comparison, by backend."""
        loaded = full_results(self.path / "suite/.attnperf/results.json")
        return {case["key"]["backend"]: case for case in loaded["cases"]}


@pytest.fixture(scope="module")
def machine(lean_processes: None, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A suite of three backends, two images that differ, and every runtime."""
    path = tmp_path_factory.mktemp("containers")
    made = Machine(path)
    for folder in ("suite/suites", "bin", "no-torch", "images"):
        (path / folder).mkdir(parents=True)
    (path / "suite/pytest.ini").write_text("[pytest]\naddopts = -p no:randomly -p no:cacheprovider\n")
    (path / "suite/conftest.py").write_text(CONFTEST)
    (path / "suite/suites/test_prefill.py").write_text(SUITE.format(workloads=[WORKLOAD], settings=""))
    (path / "suite" / SCRIPT).write_text(json.dumps({"backends": TIMES}))
    (path / "no-torch/torch.py").write_text(ABSENT.format("torch"))
    for name in runtime_stub.VERBS:
        (path / "bin" / name).write_text(f"#!{sys.executable}\n{STUB.read_text()}")
        (path / "bin" / name).chmod(0o755)
    made.image("rocm/pytorch:6.4", "6.4.4", "2.7.1", TIMES)
    new = {**TIMES, "fake.slower": {"time_us": 110}, "fake.dies": {"fault": "crash"}}
    made.image("rocm/pytorch:7.0", "7.0.2", "2.8.0", new)
    return made


@dataclass(frozen=True)
class Comparison:
    """What one comparison said and left."""

    status: int
    text: str
    cases: dict[str, dict[str, Any]]
    calls: list[tuple[str, str, dict[str, list[str]], list[str]]]
    seen: list[dict[str, str | None]]


@pytest.fixture(scope="module")
def compared(machine: Machine) -> Comparison:
    """Two releases held against each other under docker, once."""
    images = ("--old=rocm/pytorch:6.4", "--new=rocm/pytorch:7.0", "--vendor=amd", f"--cache={machine.path / 'cache'}")
    log = machine.path / "images/calls.jsonl"
    before = log.read_text() if log.exists() else ""
    ran = machine.typed(*images, "--", "suites/", "--attnperf-pairs=2")
    calls = [json.loads(line) for line in log.read_text().removeprefix(before).splitlines()]
    seen = [json.loads(file.read_text()) for file in (machine.path / "cache").glob("*/seen.json")]
    return Comparison(ran.returncode, ran.stdout + ran.stderr, machine.results(), calls, seen)


def test_the_slower_image_is_found(compared: Comparison) -> None:
    """A backend that takes 10 % longer in the new image fails, by its size; the status is pytest's."""
    assert compared.status == 1, compared.text
    case = compared.cases["fake.slower"]
    assert (case["verdict"], len(case["pairs"])) == ("SLOWER", 2)
    assert 1.09 < case["ratio"] < 1.11
    assert case["against"] == "image rocm/pytorch:6.4 (docker)"


def test_what_is_as_fast_is_the_same(compared: Comparison) -> None:
    """Another ROCm and another torch keep no case from being compared."""
    assert compared.cases["fake.same"]["verdict"] == "SAME"
    note = "toolchain, base side -> here: rocm: 6.4.4 -> 7.0.2; torch: 2.7.1 -> 2.8.0: this compares the releases, too"
    assert note in compared.cases["fake.same"]["notes"]
    assert "candidate: image rocm/pytorch:7.0 (docker)" in compared.text


def test_a_container_that_dies_is_an_error_and_the_rest_goes_on(compared: Comparison) -> None:
    """The error names the image, the signal and the log; the two other cases have their verdicts."""
    case = compared.cases["fake.dies"]
    assert case["verdict"] == "ERROR"
    assert "docker run ... rocm/pytorch:7.0" in case["summary"]
    assert "SIGABRT" in case["summary"]
    assert "scripted abort in kernel fake_kernel" in case["log"]


def test_both_images_are_shown_side_by_side(compared: Comparison) -> None:
    """Name and versions of each before anything is measured; what differs is marked, what does not is not."""
    assert "old: rocm/pytorch:6.4\nnew: rocm/pytorch:7.0\n" in compared.text
    rows = {line.split()[0]: line.split()[1:] for line in compared.text.splitlines() if line.split()}
    assert rows["rocm"] == ["6.4.4", "7.0.2", "differs"]
    assert rows["torch"] == ["2.7.1", "2.8.0", "differs"]
    assert rows["triton"] == ["3.3.1", "3.3.1"]


def test_workers_get_the_leased_gpu_and_nothing_else_of_the_host(compared: Comparison) -> None:
    """The controller leases it without torch and without a device node; what its number counts within goes along."""
    gpu = {"CUDA_VISIBLE_DEVICES": "GPU-stub0", "ROCR_VISIBLE_DEVICES": "0,1", "SECRET": None}
    assert compared.seen == [gpu, gpu]


def test_every_start_of_a_container_is_alike(compared: Comparison) -> None:
    """One look at each image, then workers; all with the same rights, none with a network, none pulling."""
    looks = [call for call in compared.calls if call[3][0] == "-c"]
    workers = [call for call in compared.calls if call[3][1] == "pytest_attnperf.cli"]
    assert [call[1] for call in looks] == ["rocm/pytorch:6.4", "rocm/pytorch:7.0"]
    assert len(workers) >= 5
    for _, _, options, _ in compared.calls:
        assert options["--device"] == ["/dev/kfd", "/dev/dri"]
        assert (options["--pull"], options["--network"]) == (["never"], ["none"])
        (suite, harness, *_) = options["--volume"]
        assert suite.endswith("/suite:/src:ro")
        assert harness.endswith("/pytest_attnperf:/attnperf/pytest_attnperf:ro")


def test_one_image_against_itself_is_the_same(machine: Machine, tmp_path: Path) -> None:
    """The control that costs nothing: no difference, no mark, status 0; from a file, under apptainer."""
    image = tmp_path / "image.sif"
    image.touch()
    machine.image("image.sif", "7.0.2", "2.8.0", TIMES)
    sides = (f"--old={image}", f"--new={image}", "--vendor=nvidia", "--runtime=apptainer")
    ran = machine.typed(*sides, f"--cache={tmp_path / 'cache'}", "--", "--attnperf-pairs=2", "-k", "fake.same")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert machine.results()["fake.same"]["verdict"] == "SAME"
    assert machine.results()["fake.same"]["against"] == f"image {image} (apptainer)"
    assert "differs" not in ran.stdout


def broken(machine: Machine, **files: str) -> Iterator[str]:
    """Names of images that each hold one file more."""
    for name, text in files.items():
        root = machine.image(f"broken:{name}", "7.0.2", "2.8.0", TIMES)
        (root / "site" / f"{name}.py").write_text(text)
        yield f"broken:{name}"


def test_an_image_that_cannot_run_a_worker_says_what_is_missing(machine: Machine) -> None:
    """Without pytest, without a GPU in the container, and without the image itself: one message, status 2, no run."""
    (no_pytest,) = broken(machine, pytest=ABSENT.format("pytest"))
    machine.image("blind:1", "7.0.2", "2.8.0", TIMES, gpus=0)
    for image, said in (
        (no_pytest, "cannot run a worker: pytest: ModuleNotFoundError: No module named 'pytest'; examples/containers"),
        ("blind:1", "torch 2.8.0 sees no GPU in the container; may this user open /dev/kfd"),
        ("absent:1", "docker ended with status 125 and no answer; is it pulled, and has it python3?"),
    ):
        ran = machine.typed(f"--old={image}", "--new=rocm/pytorch:7.0", "--vendor=amd", "--", "suites/")
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr.startswith(f"compare_images: image {image}")
        assert said in ran.stderr


@pytest.fixture(scope="module")
def program() -> Any:
    """The program as a module."""
    return pytest.importorskip("examples.containers.compare_images")


@pytest.fixture
def setup(program: Any, tmp_path: Path) -> Any:
    """What containers of this checkout are started with, on an AMD machine, by user 1000."""
    options = program.parsed(["--old=a", "--new=b", "--vendor=amd", f"--mount={ROOT}"])
    return replace(program.setup_of(options, tmp_path), user="1000:100")


@pytest.mark.parametrize("vendor", ["amd", "nvidia"])
@pytest.mark.parametrize("runtime", sorted(runtime_stub.VERBS))
def test_commands_are_what_a_runtime_takes(setup: Any, runtime: str, vendor: str, tmp_path: Path) -> None:
    """Options that the runtime has, the GPU in its own words, and an image that a verdict can name."""
    command = replace(setup, runtime=runtime, vendor=vendor).worker("the/image:1", tmp_path)
    options, image, inside = runtime_stub.parsed(runtime, command[1:])
    assert (image, container_image(command)) == ("the/image:1", "the/image:1")
    assert inside[-4:] == ["-m", "pytest_attnperf.cli", "worker", "--rootdir=/src"]
    gpu = {
        ("docker", "amd"): {"--device": ["/dev/kfd", "/dev/dri"], "--group-add": ["video", "render"]},
        ("docker", "nvidia"): {"--gpus": ["all"], "--user": ["1000:100"]},
        ("podman", "amd"): {"--device": ["/dev/kfd", "/dev/dri"], "--group-add": ["keep-groups"]},
        ("podman", "nvidia"): {"--device": ["nvidia.com/gpu=all"], "--userns": ["keep-id"]},
        ("apptainer", "amd"): {"--cleanenv": [""], "--no-eval": [""]},
        ("apptainer", "nvidia"): {"--nv": [""], "--no-mount": ["home,cwd"]},
    }[runtime, vendor]
    assert gpu.items() <= options.items()
    # Never apptainer's --rocm: the host's libraries would run in both images.
    assert "--rocm" not in options
    assert ("/dev/kfd" in options.get("--bind", [])) == ((runtime, vendor) == ("apptainer", "amd"))
    assert options["--env"][-1] == "PYTHONSAFEPATH="


def test_words_survive_the_way_to_the_worker(program: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A dry run prints one command for a shell, and within it one for each side; nothing is looked at or started."""
    tricky = "--env=FLAGS=-a 'b c' $(touch x)"
    sides = ["--old=no/such:1", "--new=no/such:2", "--vendor=nvidia", f"--mount={tmp_path}", tricky, "--dry-run"]
    assert program.main([*sides, "--", "suites/", "-k", "d128 and not causal"]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert words[:6] == ["cd", str(tmp_path), "&&", "mkdir", "-p", ".attnperf"]
    assert words[-3:] == ["suites/", "-k", "d128 and not causal"]
    for option, image in (("against", "no/such:1"), ("candidate", "no/such:2")):
        (side,) = (word for word in words if word.startswith(f"--attnperf-{option}=command:"))
        inside = shlex.split(side.partition(":")[2])
        assert "--env=FLAGS=-a 'b c' $(touch x)" in inside
        assert container_image(inside) == image
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--old=--privileged"], "--old='--privileged' is no name of an image"),
        (["--new=a b"], "--new='a b' is no name of an image"),
        (["--runtime=apptainer", "--old=absent.sif"], "nothing is pulled here: apptainer pull absent.sif"),
        (["--mount=absent"], "--mount=absent: no folder "),
        (["--env=1A=x"], "--env='1A=x' is not NAME=VALUE"),
        (["--env=HIP_VISIBLE_DEVICES=3"], "workers get the leased GPU; set that where you type this"),
        (["--python=python3 -i"], "is no name of a Python in the images"),
        (["--", "--attnperf-against=main"], "'--attnperf-against=main' behind `--` is set here"),
    ],
)
def test_what_could_be_read_as_something_else_is_refused(
    program: Any, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """An option in place of an image, a folder that is not there and settings of this program's own: status 2."""
    assert program.main(["--old=a", "--new=b", "--vendor=amd", "--dry-run", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_vendor_is_told_from_device_nodes(program: Any, tmp_path: Path) -> None:
    """One vendor's are taken; none, or both, is an error that asks; groups are the nodes' own."""
    (tmp_path / "dev/dri").mkdir(parents=True)
    with pytest.raises(program.ComparisonError, match="device nodes: none; say --vendor=amd or nvidia"):
        program.vendor_of(tmp_path)
    assert program.groups_of(tmp_path) == ("video", "render")
    for node in ("dev/kfd", "dev/dri/renderD128"):
        (tmp_path / node).touch()
    assert program.vendor_of(tmp_path) == "amd"
    assert program.groups_of(tmp_path) == (str((tmp_path / "dev/kfd").stat().st_gid),)
    (tmp_path / "dev/nvidiactl").touch()
    with pytest.raises(program.ComparisonError, match="amd and nvidia"):
        program.vendor_of(tmp_path)


def test_a_tag_that_moved_does_not_get_the_old_cache(program: Any, tmp_path: Path) -> None:
    """What another torch compiled would be loaded by name, and what another compiler did under the same versions; a
    driver that changed is no reason. A stamp that was cut off counts as another's.
    """
    before = program.Seen("rocm/pytorch:latest", {"torch": "2.7.1", "driver": "1"}, 1, "sha256:1")
    program.stamp(tmp_path, before)
    program.stamp(tmp_path, replace(before, versions={"torch": "2.7.1", "driver": "2"}))
    others = [replace(before, versions={"torch": "2.8.0"}), replace(before, identity="sha256:2")]
    for other in others:
        with pytest.raises(program.ComparisonError, match="was filled by another rocm/pytorch:latest: remove it"):
            program.stamp(tmp_path, other)
    (tmp_path / program.STAMP).write_text("")
    with pytest.raises(program.ComparisonError, match="was filled by another"):
        program.stamp(tmp_path, before)


def test_two_suites_do_not_share_what_one_image_compiled(program: Any, setup: Any, tmp_path: Path) -> None:
    """Both are /src in a container: bytecode and extensions of the one would be loaded for the other."""
    folders = [program.cache_of(setup, "a:1", str(tmp_path)), program.cache_of(setup, "b:1", str(tmp_path))]
    folders.append(program.cache_of(replace(setup, source=tmp_path), "a:1", str(tmp_path)))
    assert len(set(folders)) == 3
    assert program.cache_of(setup, "a:1", str(tmp_path)) == folders[0]


def test_what_cannot_be_used_is_no_traceback(
    machine: Machine, program: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is a file, after a banner in no known encoding, and apptainer told to bring the host's ROCm."""
    monkeypatch.setenv("PATH", f"{machine.path / 'bytes'}:{os.defpath}")
    answer = {"missing": [], "versions": {}, "gpus": 1}
    for name in ("docker", "apptainer"):
        (machine.path / "bytes").mkdir(exist_ok=True)
        (machine.path / "bytes" / name).write_text(
            f"#!/bin/sh\nprintf '\\377banner\\n'\necho '{program.MARK}{json.dumps(answer)}'\n"
        )
        (machine.path / "bytes" / name).chmod(0o755)
    file = machine.path / "fake.sif"
    file.touch()
    sides = [f"--old={file}", f"--new={file}", "--vendor=amd", f"--mount={machine.path / 'suite'}"]
    assert program.main(["--old=a", "--new=b", *sides[2:], f"--cache={file}"]) == 2
    assert f"compare_images: [Errno 20] Not a directory: '{file}/" in capsys.readouterr().err
    monkeypatch.setenv("APPTAINER_ROCM", "1")
    assert program.main([*sides, "--runtime=apptainer"]) == 2
    assert "APPTAINER_ROCM is set: it would put this machine's ROCm into both images" in capsys.readouterr().err


def test_the_program_runs_by_itself() -> None:
    """It may be executed, and imports nothing beyond the standard library."""
    assert PROGRAM.stat().st_mode & stat.S_IXUSR
    imported = set(re.findall(r"(?m)^(?:import|from) (\w+)", PROGRAM.read_text()))
    assert imported <= sys.stdlib_module_names
