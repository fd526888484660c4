"""What an attnperf marker gives: its workloads, and messages on values that name nothing or are of another type."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

import pytest

from pytest_attnperf.backends import Backend
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.listing import find_class_place, find_place
from pytest_attnperf.records.raised import describe_raised
from pytest_attnperf.workloads.adhoc import CACHE_STATES
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import Families, Family

LISTS = ("workloads", "backends", "without", "nightly", "cpu")
"""Keywords that take a list."""

NAMES_SHOWN = 8

_ID = re.compile(r"(?!.*\.(csv|jsonl)$)\w+-[^=,]*", re.IGNORECASE)


@contextlib.contextmanager
def naming_place(where: str) -> Iterator[None]:
    """Puts `where`, the node id of the marked test, in front of a UsageError in the block."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def require_lists(given: Mapping[str, Any], where: str) -> None:
    """Raises UsageError for a text in place of a list: each of its letters would be an entry."""
    for name in LISTS:
        if isinstance(value := given.get(name), str):
            raise UsageError(f"{where}: the attnperf marker has {name}={value!r}, a text; give a list: {name}=[...]")


def require_switches(given: Mapping[str, Any], switches: Mapping[str, bool], where: str) -> None:
    """Raises UsageError for a keyword of `switches` (name -> default) that is neither True nor False, and for stages
    that are to be timed in an untimed test."""
    for name, default in switches.items():
        if not isinstance(given.get(name, default), bool):
            raise UsageError(
                f"{where}: the attnperf marker has {name}={given[name]!r}; allowed: True or False (default {default})"
            )
    if given.get("breakdown") and not given.get("timed", True):
        raise UsageError(
            f"{where}: the attnperf marker has breakdown=True, which times stages, and timed=False; drop one"
        )


def require_typed_workload(text: str, families: Families) -> None:
    """Raises UsageError if the value of `--attnperf-workload` is an id of an unknown family, or one that its family
    refuses. Does nothing for a line of fields and a file: the family of each test reads those."""
    if _ID.fullmatch(text):
        with naming_place("--attnperf-workload"):
            families.parse_workload(text)


def list_given_workloads(given: Sequence[Any] | None, family: Family, where: str) -> list[Workload]:
    """Returns the workloads of the marker's `workloads`; an id is parsed. Raises UsageError if there is none, for what
    is no workload, and for one whose figures cannot be used."""
    if not given:
        raise UsageError(f"{where}: the attnperf marker needs workloads=[...] next to family={family.name!r}")
    with naming_place(where):
        workloads = [family.parse(one) if isinstance(one, str) else one for one in given]
        for one in workloads:
            _require_figures(one)
    return workloads


def _require_figures(workload: Any) -> None:
    kind = type(workload)
    if isinstance(workload, type) or not isinstance(getattr(workload, "id", None), str):
        raise UsageError(f"workloads=[...] of the attnperf marker has {workload!r:.200}; give workloads, or their ids")
    for name in ("flops", "bytes_min", "cache_state"):
        try:
            value = getattr(workload, name)
        except Exception as error:
            raise UsageError(f"{workload.id}: {kind.__name__}.{name} raised: {describe_raised(error)}") from error
        if name == "cache_state" and value not in CACHE_STATES:
            allowed = "return 'hot' or 'cold'; there is no other"
        elif name != "cache_state" and (isinstance(value, bool) or not isinstance(value, Real | None)):
            allowed = "return a number, or None where it is unknown"
        else:
            continue
        raise UsageError(f"{find_class_place(kind)}: {kind.__name__}.{name} is {value!r:.200}; {allowed}")


def describe_no_backend(
    config: pytest.Config, family: str, of_family: Sequence[Backend], registry: Iterable[Backend]
) -> str:
    """Returns why a marked test has no backend, and where backends are registered, with file and line: hooks, and lists
    of modules in packages of registered backends."""
    if of_family:
        names = ", ".join(backend.name for backend in of_family[:NAMES_SHOWN])
        more = ", ..." if len(of_family) > NAMES_SHOWN else ""
        return f"its marker leaves no backend of family {family!r}; registered are {names}{more}"
    packages = {type(backend).__module__.partition(".")[0] for backend in registry}
    files = sorted(str(sys.modules[name].__file__) for name in packages if hasattr(sys.modules.get(name), "MODULES"))
    listed = "".join(f"add its module to MODULES in {find_place(file, 'MODULES')}, or " for file in files)
    hooks = config.hook.pytest_attnperf_register_backends.get_hookimpls()
    codes = [inspect.unwrap(hook.function).__code__ for hook in hooks]
    places = ", ".join(f"{code.co_filename}:{code.co_firstlineno}" for code in codes)
    where = f"which is implemented at {places}" if places else "which no conftest.py implements yet"
    return (
        f"no backend is registered for family {family!r}: {listed}register one in the hook "
        f"pytest_attnperf_register_backends, {where}"
    )
