"""Names and parameters of aiter's functions in four releases, so that CI checks the adapters without a source tree.

Records facts and no code: `tests/data/aiter/signatures.json`. A release is added, or recorded again, from its tree:
`python -m tests.kernels.aiter.contract.recorded ../aiter v0.1.20.post1`, where ../aiter is a git checkout of that tag.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.aiter.backends import ENTRY_POINTS
from kernels.aiter.signatures import EntryPoint
from tests.kernels.aiter.contract.source import Found, Source, place_of

FILE = Path(__file__).parents[3] / "data" / "aiter" / "signatures.json"
ANYTHING = "**"
"""Stands last among the parameters of a function that takes any keyword."""


@dataclass(frozen=True)
class Recorded:
    """One release as recorded.

    modules     those of `EntryPoint`s that the release has
    functions   'module.function' -> its parameters in order, such as 'q, k, scale='; '=' follows one with a default
    """

    version: str
    commit: str
    modules: frozenset[str]
    functions: Mapping[str, str]

    def has(self, module: str) -> bool:
        """Whether the release has this module. Only modules of entry points are recorded."""
        return module in self.modules

    def function(self, module: str, name: str) -> Found | None:
        """Parameters of a function in a module; None where the release has it not, or it was not recorded."""
        listed = self.functions.get(f"{module}.{name}")
        if listed is None:
            return None
        parameters = [one for one in listed.split(", ") if one]
        plain = [one for one in parameters if one != ANYTHING]
        names = tuple(one.removesuffix("=") for one in plain)
        return Found(names, frozenset(one[:-1] for one in plain if one.endswith("=")), ANYTHING in parameters)


@functools.cache
def recorded_releases() -> tuple[Recorded, ...]:
    """Every release of the file, oldest first."""
    releases = json.loads(FILE.read_text(encoding="utf-8"))["releases"]
    return tuple(
        Recorded(version, one["commit"], frozenset(one["modules"]), one["functions"])
        for version, one in releases.items()
    )


def record(source: Source, points: Sequence[EntryPoint] = ENTRY_POINTS) -> dict[str, Any]:
    """What a source tree has of the entry points, as the file holds it: 'modules' and 'functions'."""
    places = {module for point in points for module in (point.module, point.old) if module and source.has(module)}
    functions: dict[str, str] = {}
    for point in points:
        module = place_of(source, point)
        found = source.function(module, point.function) if module else None
        if found is not None:
            functions[f"{module}.{point.function}"] = _format_parameters(found)
    return {"modules": sorted(places), "functions": dict(sorted(functions.items()))}


def _format_parameters(found: Found) -> str:
    listed = [f"{name}=" if name in found.with_default else name for name in found.names]
    return ", ".join(listed + [ANYTHING] * found.anything)


def release_order(version: str) -> tuple[int, ...]:
    """A key that orders release names: 'v0.1.6.post2' -> (0, 1, 6, 2)."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def offers(version: str, point: EntryPoint) -> bool:
    """Whether a release has a function as an adapter calls it, by what the adapter says (`since`, `until`)."""
    order = release_order(version)
    came = not point.since or release_order(point.since) <= order
    return came and (not point.until or order <= (*release_order(point.until), 1000))


def commit_of(root: Path) -> str:
    """The commit that a git checkout is at; '' where the folder is not the root of one."""
    asked = ["git", "-C", str(root), "rev-parse", "--show-toplevel", "HEAD"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split("\n")
    return said[1] if len(said) > 1 and said[0] == str(root.resolve()) else ""


def main(root: str, version: str) -> None:
    """Writes one release into the file. Ends the process with a sentence where the folder is no git checkout."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    commit = commit_of(Path(root))
    if not commit:
        sys.exit(f"{root} is no git checkout: clone aiter and check the tag {version} out")
    content["releases"][version] = {"commit": commit, **record(Source(Path(root)))}
    content["releases"] = dict(sorted(content["releases"].items(), key=lambda pair: release_order(pair[0])))
    FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
