#!/usr/bin/env python3
"""Stands in for docker, podman or apptainer, by the name it is called by: takes the options that examples/containers
uses and no other, and runs the inner command on this machine as it would run in the image.

$STUB_IMAGES holds a folder per image: `environment.json` is its ENV, `site` what is installed in it. Nothing of the
caller's environment reaches the inner command. Every call is appended to $STUB_IMAGES/calls.jsonl.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

SWITCHES = {
    "docker": {"--rm", "--interactive", "-i"},
    "podman": {"--rm", "--interactive", "-i"},
    "apptainer": {"--nv", "--cleanenv", "--no-eval"},
}
OF_RUN = {"--pull", "--network", "--user", "--shm-size", "--device", "--security-opt", "--group-add"}
VALUES = {
    "docker": OF_RUN | {"--gpus", "--ipc", "--volume", "--env", "--workdir", "--entrypoint"},
    "podman": OF_RUN | {"--userns", "--volume", "--env", "--workdir", "--entrypoint"},
    "apptainer": {"--no-mount", "--bind", "--env", "--pwd"},
}
DEVICES = ("/dev/kfd", "/dev/dri")
VERBS = {"docker": "run", "podman": "run", "apptainer": "exec"}


def refuse(text: str) -> NoReturn:
    """End as a runtime does that did not start a container."""
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr)
    sys.exit(125)


def parsed(runtime: str, words: Sequence[str]) -> tuple[dict[str, list[str]], str, list[str]]:
    """Options by name, the image, and what stands behind it. Ends the program where an option is unknown."""
    if not words or words[0] != VERBS[runtime]:
        refuse(f"unknown command: {words[:1]}")
    options: dict[str, list[str]] = {}
    for index, word in enumerate(words[1:], start=1):
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            return options, word, list(words[index + 1 :])
        if name not in (VALUES if equals else SWITCHES)[runtime]:
            refuse(f"unknown flag: {word}")
        options.setdefault(name, []).append(value)
    refuse("requires at least 1 argument: the image")


def file_system(mounts: Sequence[str], folder: Path) -> list[str]:
    """Make `folder` look as the container's root does; the mount points in it. One inside another is left out."""
    points = []
    for mount in mounts:
        if mount in DEVICES:
            continue
        source, point, *mode = mount.split(":")
        if not Path(source).is_absolute() or not Path(source).is_dir() or mode not in ([], ["ro"]):
            refuse(f"invalid mount: {mount}")
        if any(point.startswith(f"{outer}/") for outer in points):
            continue
        inside = folder / point.lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.symlink_to(source)
        points.append(point)
    return points


def main() -> NoReturn:
    """Run the inner command in the place of this program."""
    runtime, images = Path(sys.argv[0]).name, Path(os.environ["STUB_IMAGES"])
    if sys.argv[1:-1] == ["image", "inspect", "--format={{.Id}}"] and runtime != "apptainer":
        print(f"sha256:{sys.argv[-1].encode().hex()}")
        sys.exit(0)
    options, image, inside = parsed(runtime, sys.argv[1:])
    with (images / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps([runtime, image, options, inside]) + "\n")
    root = images / re.sub(r"\W", "_", Path(image).name if runtime == "apptainer" else image)
    if not root.is_dir():
        refuse(f"Error response from daemon: No such image: {image}")
    inside = [*options.get("--entrypoint", []), *inside]
    if inside[0] != "python3":
        refuse(f'exec: "{inside[0]}": executable file not found in $PATH')
    folder = root / f"fs-{os.getpid()}"
    points = file_system([*options.get("--volume", []), *options.get("--bind", [])], folder)
    outermost = sorted({f"/{point.split('/')[1]}" for point in points})
    here = re.compile(rf"(?<![\w/])({'|'.join(outermost)})(?=/|$)")

    def mapped(text: str) -> str:
        return here.sub(lambda found: f"{folder}{found[1]}", text)

    environment = json.loads((root / "environment.json").read_text())
    environment |= dict(variable.split("=", 1) for variable in options.get("--env", []))
    environment = {name: mapped(value) for name, value in environment.items()}
    environment |= {"PATH": os.defpath, "PYTHONPATH": str(root / "site"), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPYCACHEPREFIX", None)  # what this machine's Python has compiled already will do
    (workdir,) = options.get("--workdir") or options["--pwd"]
    os.chdir(mapped(workdir))
    os.execve(sys.executable, [sys.executable, *map(mapped, inside[1:])], environment)


if __name__ == "__main__":
    main()
