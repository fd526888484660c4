"""The two trees of the figures, copied out of this repository, so that nothing is written into the working tree.

The candidate's `settings.json` holds the injections, the base's only the device: both run the same code, and what is
slowed is slowed on the candidate's side alone.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest_attnperf

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("conftest.py", "pyproject.toml", "kernels", "benchmarks/figures/suite")
SUITE = "benchmarks/figures/suite"
PLUGIN = "pytest_attnperf.plugin.main"


@dataclass(frozen=True)
class Trees:
    """Where the two sides lie; `harness` holds a link to the plugin and nothing else, for the path of every process."""

    candidate: Path
    base: Path
    harness: Path

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Of a pytest started in a tree: this repository's plugin, and none of the caller's pytest settings."""
        kept = {key: value for key, value in inherited.items() if not key.startswith("PYTEST_") and key != "CI"}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(self.harness), kept.get("PYTHONPATH", "")]))
        return kept


def make_trees(folder: Path, device: str, injections: Mapping[str, Any]) -> Trees:
    """Copy both trees into an empty folder and write their settings."""
    trees = Trees(folder / "candidate", folder / "base", folder / "harness")
    for tree, slowed in ((trees.candidate, injections), (trees.base, {})):
        for name in COPIED:
            source, target = ROOT / name, tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "settings.json"))
            else:
                shutil.copy2(source, target)
        settings = json.dumps({"device": device, "injections": dict(slowed)}, indent=1) + "\n"
        (tree / SUITE / "settings.json").write_text(settings)
    trees.harness.mkdir()
    package = Path(pytest_attnperf.__file__).resolve().parent
    (trees.harness / package.name).symlink_to(package, target_is_directory=True)
    return trees


def plugin_options() -> list[str]:
    """What loads the plugin where it is not installed."""
    installed = any(point.name == "attnperf" for point in metadata.entry_points(group="pytest11"))
    return [] if installed else ["-p", PLUGIN]
