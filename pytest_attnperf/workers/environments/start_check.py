"""Imports modules in the interpreter that runs this, and checks which distributions it sees there.

Run as `python -c TEXT JSON` with {"versions": {name: version}, "folders": {module: folder}, "imports": [names]}: each
name must have this version, and each module come from this folder. Prints MARK and the first problem, '' for none.
Standard library only.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from typing import Any

MARK = "attnperf-start "


def find_problem(wanted: dict[str, Any]) -> str:
    """Returns the first thing that is not as wanted, as a sentence; '' if all is."""
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
    sys.stdout.write(f"\n{MARK}{json.dumps(find_problem(json.loads(sys.argv[1])))}\n")
