"""What runs in the interpreter of an environment: it lists what is installed there, or imports modules.

It is run as `python -c TEXT list|start JSON`, and prints its answer as JSON behind MARK. The interpreter need not have
this package, so it uses the standard library only.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable
from typing import Any

MARK = "attnperf-answer "
LIST, START = "list", "start"
COMPILED = (".so", ".pyd", ".dylib")
OF_AN_INSTALLER = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
NOT_CODE = (".dist-info", ".egg-info", ".pth", ".data")


def list_entries(folder: str, files: Iterable[str]) -> list[str]:
    """Returns what must be linked to have these files elsewhere: packages, modules, and folders that are no packages;
    of a namespace (a folder without __init__) its parts, 'nvidia/cudnn'."""
    found: set[str] = set()
    namespaces: dict[str, bool] = {}
    for file in files:
        parts = file.split("/")
        depth = 1
        while depth < len(parts):
            prefix = "/".join(parts[:depth])
            if prefix not in namespaces:
                namespaces[prefix] = _is_namespace(os.path.join(folder, prefix))
            if not namespaces[prefix]:
                break
            depth += 1
        found.add("/".join(parts[:depth]))
    return sorted(found)


def _is_namespace(path: str) -> bool:
    if not os.path.basename(path).isidentifier() or not os.path.isdir(path):
        return False
    return not any(name.startswith("__init__.") for name in os.listdir(path))


def describe_distribution(dist: Any) -> dict[str, Any]:
    """Returns name, version, folder, requirements, entries, and whether it has compiled code; `digest` tells two builds
    of one version apart; `is_whole` is false if its files are unknown or it is an editable install."""
    folder = str(dist.locate_file(""))
    # `dist.files` looks at each of the ten thousand files of a torch.
    recorded = dist.read_text("RECORD")
    name = dist.metadata["Name"] or ""
    inside: list[tuple[str, str]] = []
    for text, *rest in filter(None, csv.reader((recorded or "").splitlines())):
        if text and not text.startswith(("../", "/")) and not text.endswith(".pyc") and "__pycache__" not in text:
            inside.append((text, rest[0] if rest else ""))
    code = [text for text, _ in inside if not text.split("/")[0].endswith(NOT_CODE)]
    if recorded is None:
        code = [entry for entry in _guess_entries(dist, name) if os.path.exists(os.path.join(folder, entry))]
    kept = sorted(pair for pair in inside if os.path.basename(pair[0]) not in OF_AN_INSTALLER)
    return {
        "name": name,
        "version": dist.version or "",
        "folder": folder,
        "requires": list(dist.requires or ()),
        "entries": list_entries(folder, code),
        "metadata": os.path.basename(str(getattr(dist, "_path", ""))),
        "is_compiled": any(text.endswith(COMPILED) for text in code) or recorded is None,
        "is_whole": (recorded is not None or bool(code)) and not any(text.endswith(".pth") for text, _ in inside),
        "digest": hashlib.sha256(repr(kept).encode()).hexdigest()[:16] if kept else "",
    }


def _guess_entries(dist: Any, name: str) -> list[str]:
    tops = (dist.read_text("top_level.txt") or name.replace("-", "_")).split()
    return [entry for top in tops for entry in (top, top + ".py")]


def list_unclaimed(folder: str, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns packages and modules of a folder that no distribution there lists, as distributions without version."""
    claimed = {entry.split("/")[0] for one in known if one["folder"] == folder for entry in one["entries"]}
    found = []
    for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        stem = entry.split(".")[0]
        if entry in claimed or not stem.isidentifier() or stem == "__pycache__" or entry.endswith(NOT_CODE):
            continue
        path = os.path.join(folder, entry)
        if os.path.isdir(path) if "." not in entry else entry.endswith((".py", *COMPILED)):
            where = os.path.realpath(path)
            found.append({"name": stem, "version": "", "folder": folder, "requires": [], "entries": [entry],
                          "metadata": "", "is_compiled": True, "is_whole": True, "digest": where})  # fmt: skip
    return found


def list_all(folders: list[str]) -> dict[str, Any]:
    """Returns the listing; what comes first on the path hides what has the same name behind it."""
    found: dict[str, dict[str, Any]] = {}
    listed = [describe_distribution(dist) for dist in importlib.metadata.distributions()]
    loose = [one for folder in folders for one in list_unclaimed(folder, listed)]
    for one in [*loose, *listed]:
        key = re.sub(r"[-_.]+", "-", one["name"]).lower()
        if key:
            found.setdefault(key, one)
    return {"python": sys.version.split()[0], "tag": sys.implementation.cache_tag, "packages": found}


def find_problem(wanted: dict[str, Any]) -> str:
    """Imports modules, and checks what is found: `wanted` is {"versions": {name: version}, "folders": {module: folder},
    "imports": [modules]}. Returns the first thing that is not so, as a sentence; '' if all is."""
    for name, version in wanted["versions"].items():
        seen = importlib.metadata.version(name)
        if seen != version:
            return f"{name} is {seen} here and was to be {version}"
    for module in wanted["imports"]:
        if problem := _import(module):
            return problem
    for module, folder in wanted["folders"].items():
        spec = importlib.util.find_spec(module)
        places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
        if not any(place.startswith(folder + os.sep) for place in places):
            return f"{module} is found in {places[-1:]}, not in {folder}"
    return ""


def _import(module: str) -> str:
    try:
        importlib.import_module(module)
    except BaseException as error:
        return f"import {module}: {type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    sys.stdout.write(f"\n{MARK}{json.dumps(list_all(given) if sys.argv[1] == LIST else find_problem(given))}\n")
