#!/usr/bin/env python3
"""Holds two container images against each other: one suite, one harness, one GPU, two toolchains, in turns.

    compare_images.py --old rocm/pytorch:A --new rocm/pytorch:B -- suites/test_prefill.py -k d128

Started with the Python that has pytest-attnperf, in the folder of the suite. That Python needs no torch: it collects
the cases, leases a GPU, and starts workers in the images. The harness and the suite are mounted, so that both images
run the same files; the images need Python 3.10 or newer, torch and pytest. Nothing is pulled.

Standard library only. Words: docs/containers.md. Exit status: pytest's, or 2 where no comparison could begin.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

RUNTIMES = ("docker", "podman", "apptainer")
VENDORS = ("amd", "nvidia")
SHARED_MEMORY = "8g"
PROBE_SECONDS = 300.0
"""The first start of a large image reads it from disk."""

SOURCE, HARNESS, CACHE = "/src", "/attnperf", "/cache"
"""Where the suite, the plugin and what kernels compile lie in a container."""

CACHES = {
    "XDG_CACHE_HOME": CACHE,
    "TRITON_CACHE_DIR": f"{CACHE}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/inductor",
    "TORCH_EXTENSIONS_DIR": f"{CACHE}/extensions",
    "PYTHONPYCACHEPREFIX": f"{CACHE}/pycache",
}
STAMP = "toolchain.json"

MARK = "attnperf-probe "
PROBE = f"""
import json, sys
missing, versions, gpus = [], {{}}, 0
if sys.version_info < (3, 10):
    missing.append("Python 3.10 or newer: this is " + sys.version.split()[0])
for name in ("pytest", "torch"):
    try:
        __import__(name)
    except Exception as error:
        missing.append(name + ": " + type(error).__name__ + ": " + str(error))
if not missing:
    import torch
    from pytest_attnperf.environment.software import named_fields
    from pytest_attnperf.environment.system import System
    kind = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "cpu"
    versions, gpus = named_fields(kind, System()), torch.cuda.device_count()
print()
print({MARK!r} + json.dumps({{"missing": missing, "versions": versions, "gpus": gpus}}))
"""
"""What an image is asked before anything is measured. A banner of its own does no harm here."""

IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
PYTHON = re.compile(r"/?([A-Za-z0-9][A-Za-z0-9._-]*/)*python[A-Za-z0-9._-]*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[^\n]*")
CHOOSES_GPU = re.compile(r"(CUDA|HIP|ROCR|NVIDIA)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|CUDA_DEVICE_ORDER")
HOST_LIBRARIES = ("APPTAINER_ROCM", "SINGULARITY_ROCM")
"""Make apptainer put the host's ROCm in the place of both images'."""
OURS = ("--attnperf-against", "--attnperf-candidate", "--attnperf-interleave", "--rootdir")
ADVICE = {
    "amd": "may this user open /dev/kfd and /dev/dri/renderD* (groups render and video)?",
    "nvidia": "is the NVIDIA container toolkit set up for this runtime?",
}


class ComparisonError(Exception):
    """Why no comparison can begin: what, the value seen, and what to do."""


@dataclass(frozen=True)
class Setup:
    """What both containers are started with.

    source    the tree that holds the suite; mounted read-only
    harness   the package pytest_attnperf; mounted read-only
    groups    of the host's GPU devices, which the user in the container needs
    variables NAME=VALUE, set in both
    """

    runtime: str
    vendor: str
    python: str
    source: Path
    harness: Path
    user: str
    groups: tuple[str, ...]
    variables: tuple[str, ...] = ()

    def command(self, image: str, inside: Sequence[str], cache: Path | None = None) -> list[str]:
        """The command that runs the image's Python with these arguments; without a cache for a short look."""
        mounts = [f"{self.source}:{SOURCE}:ro", f"{self.harness}:{HARNESS}/{self.harness.name}:ro"]
        # Set in an image, it would hide the current folder from `-m`, and with it the harness.
        variables = [*self.variables, "PYTHONSAFEPATH="]
        if cache is not None:
            # The suite's folder is read-only; what it keeps in .attnperf belongs to one image.
            mounts += [f"{cache}:{CACHE}", f"{cache / 'tree'}:{SOURCE}/.attnperf"]
            variables = [*(f"{name}={value}" for name, value in CACHES.items()), *variables]
        if self.runtime == "apptainer":
            return self._apptainer(image, inside, mounts, variables)
        return [
            *(self.runtime, "run", "--rm", "--interactive", "--pull=never", "--network=none"),
            *self._rights(),
            *(f"--volume={mount}" for mount in mounts),
            *(f"--env={variable}" for variable in (f"HOME={CACHE}", "USER=attnperf", *variables)),
            # Not the image's entry point: its banner would stand in the protocol.
            *(f"--workdir={HARNESS}", f"--entrypoint={self.python}", image, *inside),
        ]

    def worker(self, image: str, cache: Path) -> list[str]:
        """The command of the image's workers. `-m` finds the harness in the current folder, before any other."""
        return self.command(image, ["-m", "pytest_attnperf.cli", "worker", f"--rootdir={SOURCE}"], cache)

    def _rights(self) -> Iterator[str]:
        """The user, the GPU and the shared memory in docker's and podman's words."""
        podman = self.runtime == "podman"
        if podman:
            yield "--security-opt=label=disable"
        rootless = podman and not self.user.startswith("0:")
        yield "--userns=keep-id" if rootless else f"--user={self.user}"
        yield f"--shm-size={SHARED_MEMORY}"
        if self.vendor == "nvidia":
            yield "--device=nvidia.com/gpu=all" if podman else "--gpus=all"
            return
        yield from ("--device=/dev/kfd", "--device=/dev/dri", "--security-opt=seccomp=unconfined")
        yield from ["--group-add=keep-groups"] if rootless else [f"--group-add={group}" for group in self.groups]

    def _apptainer(self, image: str, inside: Sequence[str], mounts: list[str], variables: list[str]) -> list[str]:
        # Not `--rocm`: it puts the host's ROCm before both images' own, and one release would be held against itself.
        gpu = ("--bind=/dev/kfd", "--bind=/dev/dri") if self.vendor == "amd" else ("--nv",)
        return [
            *("apptainer", "exec", *gpu, "--cleanenv", "--no-eval", "--no-mount=home,cwd"),
            *(f"--bind={mount}" for mount in mounts),
            *(f"--env={variable}" for variable in variables),
            *(f"--pwd={HARNESS}", image, self.python, *inside),
        ]


@dataclass(frozen=True)
class Seen:
    """What an image said of itself; `identity` is what an image built anew under its name has not."""

    image: str
    versions: dict[str, str]
    gpus: int
    identity: str = ""


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options, and behind `--` what goes to pytest as `pytest_arguments`."""
    parser = argparse.ArgumentParser(
        prog="compare_images.py",
        description="Hold two container images against each other: one suite, one harness, one GPU, in turns.",
        usage="%(prog)s --old IMAGE --new IMAGE [options] -- [pytest arguments]",
        epilog="exit status: pytest's (0 nothing slower or wrong, 1 something is; what could not be compared or "
        "decided counts under --attnperf-strict only); 2 where no comparison could begin",
    )
    parser.add_argument("--old", required=True, metavar="IMAGE", help="the base side; a .sif file for apptainer")
    parser.add_argument("--new", required=True, metavar="IMAGE", help="what is held against it")
    parser.add_argument("--runtime", choices=RUNTIMES, default="docker", help="default: docker")
    parser.add_argument("--vendor", choices=VENDORS, help="of the GPU; default: whose device nodes are here")
    parser.add_argument("--mount", default=".", metavar="DIR", help="pytest's rootdir; default: the current folder")
    parser.add_argument("--python", default="python3", metavar="NAME", help="the images' Python; default: python3")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="set in both containers")
    parser.add_argument("--cache", metavar="DIR", help="what kernels compile; default: the user's cache folder")
    parser.add_argument("--dry-run", action="store_true", help="print the command of pytest and start nothing")
    own, separator, rest = list(arguments), "--", list[str]()
    if separator in own:
        own, rest = own[: own.index(separator)], own[own.index(separator) + 1 :]
    options = parser.parse_args(own)
    options.pytest_arguments = rest
    return options


def setup_of(options: argparse.Namespace, root: Path = Path("/")) -> Setup:
    """What the options ask for; `root` holds /dev. Raises ComparisonError for what is absent or could mislead."""
    source = Path(options.mount).resolve()
    if not source.is_dir():
        raise ComparisonError(f"--mount={options.mount}: no folder {source}; name the one that pytest would run in")
    harness = harness_of(source)
    for path in (source, harness):
        _mountable(path)
    for variable in options.env:
        if not VARIABLE.fullmatch(variable) or (options.runtime == "apptainer" and "," in variable):
            raise ComparisonError(f"--env={variable!r} is not NAME=VALUE (for apptainer without a comma)")
        if CHOOSES_GPU.fullmatch(variable.partition("=")[0]):
            raise ComparisonError(f"--env={variable}: workers get the leased GPU; set that where you type this")
    if not PYTHON.fullmatch(options.python):
        raise ComparisonError(f"--python={options.python!r} is no name of a Python in the images, e.g. python3")
    for argument in options.pytest_arguments:
        if argument.partition("=")[0] in OURS:
            raise ComparisonError(f"{argument!r} behind `--` is set here, by --old, --new and --mount")
    return Setup(
        runtime=options.runtime,
        vendor=options.vendor or vendor_of(root),
        python=options.python,
        source=source,
        harness=harness,
        user=f"{os.getuid()}:{os.getgid()}",
        groups=groups_of(root),
        variables=tuple(options.env),
    )


def image_of(name: str, option: str, runtime: str) -> str:
    """The image as the runtime takes it, a file's path absolute. Raises ComparisonError for what is none."""
    if runtime != "apptainer":
        if not IMAGE.fullmatch(name):
            raise ComparisonError(f"{option}={name!r} is no name of an image, e.g. rocm/pytorch:latest")
        return name
    path = Path(name).resolve()
    if not path.exists():
        pull = f"apptainer pull {path.name} docker://IMAGE"
        raise ComparisonError(f"{option}={name}: no file {path}; nothing is pulled here: {pull}")
    return str(path)


def harness_of(source: Path) -> Path:
    """The package that `python -m pytest` in `source` will load: what is mounted is what the controller runs."""
    if (source / "pytest_attnperf" / "__init__.py").is_file():
        return source / "pytest_attnperf"
    spec = importlib.util.find_spec("pytest_attnperf")
    if spec is None or not spec.submodule_search_locations:
        raise ComparisonError(f"{sys.executable} has no pytest-attnperf; start this with the Python that has it")
    return Path(next(iter(spec.submodule_search_locations))).resolve()


def vendor_of(root: Path) -> str:
    """Whose device nodes are here. Raises ComparisonError where that is not one vendor's."""
    found = [name for name, node in (("amd", "dev/kfd"), ("nvidia", "dev/nvidiactl")) if (root / node).exists()]
    if len(found) != 1:
        seen = " and ".join(found) or "none"
        raise ComparisonError(f"the GPU's vendor cannot be told, device nodes: {seen}; say --vendor=amd or nvidia")
    return found[0]


def groups_of(root: Path) -> tuple[str, ...]:
    """Groups of AMD's device nodes as numbers: a name may be missing in the image, or mean another number there."""
    nodes = [root / "dev/kfd", *sorted((root / "dev/dri").glob("renderD*"))]
    numbers = dict.fromkeys(str(node.stat().st_gid) for node in nodes if node.exists())
    return tuple(numbers) or ("video", "render")


def _mountable(path: Path) -> None:
    if re.search(r"[:,\s]", str(path)):
        raise ComparisonError(f"{path} holds a colon, comma or space, which a mount cannot; use a path without")


def cache_of(setup: Setup, image: str, base: str | None) -> Path:
    """The folder of what kernels compile in one image. Raises ComparisonError.

    Of one suite, too: each is /src in a container, and would take another's bytecode and extensions for its own.
    """
    root = base or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "attnperf", "images")
    name = re.sub(r"[^A-Za-z0-9.]+", "-", image)[-60:].strip("-")
    shared = "\n".join([image, str(setup.source), str(setup.harness)])
    folder = Path(root).resolve() / f"{name}-{hashlib.sha256(os.fsencode(shared)).hexdigest()[:8]}"
    _mountable(folder)
    return folder


def identity_of(setup: Setup, image: str) -> str:
    """What an image built anew under the same name has not. Raises ComparisonError."""
    if setup.runtime == "apptainer":
        state = Path(image).stat()
        return f"{state.st_size} bytes, {state.st_mtime_ns} ns"
    ran = _asked([setup.runtime, "image", "inspect", "--format={{.Id}}", image], image)
    if ran.returncode or not ran.stdout.strip():
        raise ComparisonError(
            f"image {image}: `{setup.runtime} image inspect` tells no id: {ran.stderr.strip()[-300:]}"
        )
    return ran.stdout.strip()


def _asked(command: Sequence[str], image: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ComparisonError(f"image {image}: no answer within {PROBE_SECONDS:g} s") from None


def seen_in(setup: Setup, image: str, *, on_gpu: bool) -> Seen:
    """Ask an image what it holds, once. Raises ComparisonError, with what is missing, where it cannot run a worker."""
    command = setup.command(image, ["-c", PROBE])
    ran = _asked(command, image)
    lines = [line for line in ran.stdout.splitlines() if line.startswith(MARK)]
    if ran.returncode or not lines:
        tail = "\n  ".join(["", *(ran.stderr or ran.stdout).strip().splitlines()[-8:]])
        raise ComparisonError(
            f"image {image}: {setup.runtime} ended with status {ran.returncode} and no answer; is it pulled, and has "
            f"it {setup.python}?{tail}\nthe command was: {shlex.join(command[:-1])} '...'"
        )
    said = json.loads(lines[-1].removeprefix(MARK))
    if said["missing"]:
        missing = "; ".join(said["missing"])
        raise ComparisonError(f"image {image} cannot run a worker: {missing}; examples/containers has Dockerfiles")
    if on_gpu and not said["gpus"]:
        seen = f"torch {said['versions'].get('torch')} sees no GPU in the container"
        raise ComparisonError(f"image {image}: {seen}; {ADVICE[setup.vendor]}")
    return Seen(image, dict(said["versions"]), int(said["gpus"]), identity_of(setup, image))


def side_by_side(old: Seen, new: Seen) -> str:
    """The versions of both images; a row that differs is marked."""
    names = list(dict.fromkeys([*old.versions, *new.versions]))
    rows = [("", "old", "new", "")]
    for name in names:
        there, here = old.versions.get(name, "none"), new.versions.get(name, "none")
        rows.append((name, there, here, "" if there == here else "differs"))
    wide = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ("  ".join([*map(str.ljust, row[:3], wide), row[3]]).rstrip() for row in rows)
    return "\n".join([f"old: {old.image}", f"new: {new.image}", *lines])


def stamp(cache: Path, seen: Seen) -> None:
    """Make a cache; raises ComparisonError where it is not of this very image, whose tag has moved on since."""
    (cache / "tree").mkdir(parents=True, exist_ok=True)
    file, now = cache / STAMP, {name: text for name, text in seen.versions.items() if name not in ("kernel", "driver")}
    text = json.dumps({"image": seen.identity, **now}, indent=1)
    if file.exists() and file.read_text(errors="replace") != text:
        raise ComparisonError(f"{cache} was filled by another {seen.image}: remove it, or name another by --cache")
    fresh = file.with_name(f"{STAMP}.{os.getpid()}")
    fresh.write_text(text)
    fresh.replace(file)  # whole, whoever else reads it


def pytest_command(setup: Setup, old: Sequence[str], new: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """What compares both: every case in pairs of fresh processes, one in each image."""
    return [
        *(sys.executable, "-m", "pytest", "--attnperf", f"--rootdir={setup.source}"),
        f"--attnperf-against=command:{shlex.join(old)}",
        f"--attnperf-candidate=command:{shlex.join(new)}",
        "--attnperf-interleave=all",
        # Both may be said again behind these: the last one counts.
        "--attnperf-device=gpu",  # a controller without torch could not tell
        *("-m", "not attnperf_code"),  # compiled by the controller's own Triton, in neither image
        *arguments,
    ]


def compare(options: argparse.Namespace) -> list[str]:
    """Look at both images; the command to become, empty after a dry run. Raises ComparisonError."""
    setup = setup_of(options)
    images = [image_of(getattr(options, side), f"--{side}", options.runtime) for side in ("old", "new")]
    caches = [cache_of(setup, image, options.cache) for image in images]
    old, new = (setup.worker(image, cache) for image, cache in zip(images, caches, strict=True))
    command = pytest_command(setup, old, new, options.pytest_arguments)
    if options.dry_run:  # the folders, too: docker would make what is missing, and root's
        folders = shlex.join(["mkdir", "-p", ".attnperf", *dict.fromkeys(str(cache / "tree") for cache in caches)])
        print(f"cd {shlex.quote(str(setup.source))} && {folders} && {shlex.join(command)}")
        return []
    if shutil.which(setup.runtime) is None:
        others = ", ".join(name for name in RUNTIMES if shutil.which(name)) or "none"
        raise ComparisonError(f"--runtime={setup.runtime} is not on PATH; of {', '.join(RUNTIMES)} there is: {others}")
    if setup.runtime == "apptainer" and (named := [name for name in HOST_LIBRARIES if os.environ.get(name)]):
        raise ComparisonError(f"{named[0]} is set: it would put this machine's ROCm into both images; unset it")
    on_gpu = not re.search(r"--attnperf-device[= ]cpu", " ".join(options.pytest_arguments))
    seen = [seen_in(setup, image, on_gpu=on_gpu) for image in images]
    print(side_by_side(*seen), flush=True)
    for cache, one in zip(caches, seen, strict=True):
        stamp(cache, one)
    (setup.source / ".attnperf").mkdir(exist_ok=True)  # a place to mount on, in a folder that is read-only there
    os.chdir(setup.source)
    return command


def main(arguments: Sequence[str]) -> int:
    """Become pytest, whose exit status then counts; otherwise the status."""
    try:
        command = compare(parsed(arguments))
        if command:
            os.execv(command[0], command)
    except (ComparisonError, OSError, RuntimeError, ValueError) as error:  # e.g. a cache that may not be written
        print(f"compare_images: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
