"""Makes items that compile kernels: parametrisation over kernels, configurations and architectures, and keys.

The same code runs in the controller and in its compile workers, so that both give an item the same key.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_attnperf.codeobject.arch import limits_of
from pytest_attnperf.environment.kfd import list_architectures
from pytest_attnperf.environment.system import System
from pytest_attnperf.errors import AttnperfError, CodeObjectError, UsageError
from pytest_attnperf.gate.code.code_policy import CodePolicy
from pytest_attnperf.gate.policy import NIGHTLY
from pytest_attnperf.kernel_builds import (
    ALL_ARCHS,
    DEFAULT_ARCHS,
    KernelBuild,
    KernelRegistry,
    changeable_settings,
    with_settings,
)
from pytest_attnperf.plugin import invalid_markers, options, selection
from pytest_attnperf.plugin.case_policies import case_overrides
from pytest_attnperf.plugin.config import run_config
from pytest_attnperf.plugin.keys import BUILD, build_key
from pytest_attnperf.plugin.selection import show_notice
from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.code import CODE_SUITE

MARKER = "attnperf_code"
FIXTURES = frozenset({"code_object", "kernel_build"})
_ORDER = pytest.StashKey[int]()
_IDENTITY = frozenset({"kernels"})

BUILDS_OF_EACH = 1
"""Number of code objects per kernel and architecture in runs that are not nightly."""

_NVIDIA = re.compile(r"sm_\d{2,3}a?")


@dataclass(eq=False)
class CodeCollector:
    """Plugin object that makes a test item per kernel, configuration and architecture , with its key."""

    config: pytest.Config
    backends: Sequence[str] | None = None
    registry: KernelRegistry = field(default_factory=KernelRegistry)
    left_to_nightly: int = 0
    _unfit: str = ""
    _collected: int = 0

    def register_kernels(self) -> None:
        """Calls the hook by which every conftest registers its kernels in `registry`."""
        self.config.hook.pytest_attnperf_register_kernels(kernels=self.registry)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrises a test that uses `code_object` and `kernel_build` by selected builds. With an invalid marker, an
        unknown kernel or invalid builds it becomes one item that fails."""
        if not set(metafunc.fixturenames) >= FIXTURES:
            return
        try:
            _make_code_policy(self.config, marker_settings(metafunc.definition))
            declared = self._list_builds(metafunc.definition)
        except AttnperfError as error:
            invalid_markers.keep_reason(self.config, metafunc.definition.nodeid, str(error))
            return
        try:
            builds = self._select_tier(apply_settings(declared, code_settings(self.config)))
        except UsageError as error:
            self._unfit = self._unfit or str(error)
            return
        self.left_to_nightly += len(declared) - len(builds)
        metafunc.parametrize("kernel_build", [pytest.param(build, id=build.id) for build in builds])

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Gives an item that uses `code_object` its key, if it has a build, and the marker `attnperf_code` for `-m`."""
        if "code_object" not in getattr(item, "fixturenames", ()):
            return
        if item.get_closest_marker(MARKER) is None:
            item.add_marker(MARKER)
        build = build_of(item)
        if build is not None:
            item.stash[BUILD] = CaseKey(CODE_SUITE, build.kernel, build.config, build.arch)
            item.stash[_ORDER] = self._collected
            self._collected += 1

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Raises UsageError for settings of the command line that no kernel has, and if two items compile the same
        build; deselects builds that the filters of timed cases exclude; moves the other builds together.

        Builds stay together in collected order: compilers run in parallel, and must not run while a case is timed.
        """
        if self._unfit:
            raise pytest.UsageError(self._unfit)
        refuse_duplicates(items)
        dropped = [item for item in items if self._is_left_out(item)]
        if dropped:
            config.hook.pytest_deselected(items=dropped)
        show_notice(config, "attnperf-code-left-out", self._describe_left_out(len(dropped)))
        gone = set(map(id, dropped))
        kept = [item for item in items if id(item) not in gone]
        builds = sorted((item for item in kept if build_key(item) is not None), key=lambda item: item.stash[_ORDER])
        first = next((index for index, item in enumerate(kept) if build_key(item) is not None), 0)
        others = [item for item in kept[first:] if build_key(item) is None]
        items[:] = [*kept[:first], *builds, *others]

    def _is_left_out(self, item: pytest.Item) -> bool:
        """Returns whether an item that compiles is deselected: the command line replaces all workloads, or its
        `--attnperf-backend` left this test without a build."""
        if item.get_closest_marker(MARKER) is None or "code_object" not in getattr(item, "fixturenames", ()):
            return False
        build = build_of(item)
        replaced = bool(run_config(self.config).replaced_by)
        return replaced or (self.backends is not None and build is None)

    def _list_builds(self, definition: Any) -> list[KernelBuild]:
        names = marker_settings(definition).get("kernels")
        chosen = [self.registry.get(name) for name in names] if names is not None else list(self.registry)
        if self.backends is not None:
            chosen = [kernel for kernel in chosen if set(kernel.backends) & set(self.backends)]
        return self.registry.list_builds(archs_of(self.config), [kernel.name for kernel in chosen])

    def _select_tier(self, builds: list[KernelBuild]) -> list[KernelBuild]:
        """Returns all builds if the run is nightly or -k, an architecture or a setting selects builds; else the first
        BUILDS_OF_EACH per kernel and architecture."""
        asked = run_config(self.config)
        chosen = asked.arch or asked.code_set
        if selection.run_tier(self.config) == NIGHTLY or chosen or self.config.getoption("keyword", default=""):
            return builds
        counts: Counter[tuple[str, str]] = Counter()
        kept = []
        for build in builds:
            counts[build.kernel, build.arch] += 1
            if counts[build.kernel, build.arch] <= BUILDS_OF_EACH:
                kept.append(build)
        return kept

    def _describe_left_out(self, left_out: int) -> list[str]:
        """Returns a line that says how many code objects were deselected, and why; [] for none."""
        if left_out:
            why = run_config(self.config).replaced_by or "--attnperf-backend"
            return [f"attnperf: {left_out} code objects deselected: {why} chooses timed cases that have none"]
        left = self.left_to_nightly
        return [f"attnperf: {left} code objects left to nightly runs (--attnperf-tier=nightly)"] if left else []


def apply_settings(builds: list[KernelBuild], changes: Mapping[str, str]) -> list[KernelBuild]:
    """Returns the builds that have one of the settings `changes`, with these changed; all builds if it is empty.
    Raises UsageError for a setting that no build has."""
    if not changes:
        return builds
    own = [(build, {name: changes[name] for name in changes if name in changeable_settings(build)}) for build in builds]
    unknown = sorted(changes.keys() - {name for _, some in own for name in some})
    if unknown and builds:
        known = sorted({name for build in builds for name in changeable_settings(build)})
        raise UsageError(
            f"--attnperf-code-set: no kernel has a setting {', '.join(unknown)}; they have {', '.join(known) or 'none'}"
        )
    return [with_settings(build, some) for build, some in own if some]


def archs_of(config: pytest.Config) -> tuple[str, ...]:
    """Returns the architectures to compile for: --attnperf-arch, else DEFAULT_ARCHS and the AMD GPUs of this machine.
    Raises UsageError for an unknown architecture, with the known ones."""
    text = run_config(config).arch.strip()
    if not text:
        return tuple(dict.fromkeys((*DEFAULT_ARCHS, *_keep_known(list_architectures(System())))))
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name != "all" and not _NVIDIA.fullmatch(name):
            try:
                limits_of(name)
            except CodeObjectError as error:
                raise UsageError(f"--attnperf-arch={text}: {error}") from error
    return tuple(dict.fromkeys(arch for name in names for arch in (ALL_ARCHS if name == "all" else (name,))))


def _keep_known(archs: Sequence[str]) -> list[str]:
    """Returns the architectures whose register and memory limits this version knows; leaves out e.g. a newer GPU."""
    found = []
    for arch in archs:
        try:
            limits_of(arch)
        except CodeObjectError:
            continue
        found.append(arch)
    return found


def code_settings(config: pytest.Config) -> dict[str, str]:
    """Returns `--attnperf-code-set` as {NAME: VALUE}; {} without it. Raises UsageError for other entries."""
    text = run_config(config).code_set
    changes = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = entry.partition("=")
        if not (equals and name.strip() and value.strip()):
            raise UsageError(f"--attnperf-code-set={text!r}: {entry!r} is not NAME=VALUE, e.g. BLOCK_M=128,num_warps=8")
        changes[name.strip()] = value.strip()
    return changes


def marker_settings(item: Any) -> dict[str, Any]:
    """Returns the keywords of the item's attnperf_code marker; {} without one. Raises UsageError for invalid ones."""
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return {}
    known = _IDENTITY | {option.field for option in options.CODE_OPTIONS}
    unknown = sorted(marker.kwargs.keys() - known)
    if marker.args or unknown:
        what = f"unknown keywords {unknown}" if unknown else "positional arguments"
        raise UsageError(f"{item.nodeid}: the {MARKER} marker has {what}; known: {', '.join(sorted(known))}")
    if isinstance(marker.kwargs.get("kernels"), str):
        raise UsageError(f"{item.nodeid}: kernels={marker.kwargs['kernels']!r} must be a list of names")
    return dict(marker.kwargs)


def code_policy_for(config: pytest.Config, item: pytest.Item) -> CodePolicy:
    """Returns which changes of a code object fail the item: by --attnperf-override, else the marker, else the options.
    Raises UsageError, with the item's id, for invalid values."""
    try:
        return _make_code_policy(config, marker_settings(item))
    except UsageError as error:
        raise pytest.UsageError(f"{item.nodeid}: {error}") from error


def check_code_options(config: pytest.Config) -> None:
    """Raises UsageError for settings of code objects, of the command line or the ini file, that are no policy."""
    try:
        _make_code_policy(config, {})
    except UsageError as error:
        raise UsageError(f"an option or ini key: {error}") from error


def _make_code_policy(config: pytest.Config, given: Mapping[str, Any]) -> CodePolicy:
    asked = run_config(config)
    chosen = {option.field: asked.text(option.name) for option in options.CODE_OPTIONS}
    chosen.update({key: _format_value(given[key]) for key in chosen if given.get(key) is not None})
    overrides = case_overrides(asked.override)
    chosen.update({key: _format_value(overrides[key]) for key in chosen if key in overrides})
    return CodePolicy.from_text(chosen["code_fail_on"], chosen["code_growth"])


def _format_value(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple, set, frozenset)) else str(value)


def build_of(item: pytest.Item) -> KernelBuild | None:
    """Returns the kernel build that the item compiles; None if it compiles none."""
    build = getattr(getattr(item, "callspec", None), "params", {}).get("kernel_build")
    return build if isinstance(build, KernelBuild) else None


def refuse_duplicates(items: Sequence[pytest.Item]) -> None:
    """Raises pytest.UsageError if two items compile the same build: they would share a baseline entry."""
    seen: dict[CaseKey, str] = {}
    for item in items:
        key = build_key(item)
        if key is not None and key in seen:
            raise pytest.UsageError(
                f"two tests compile the same {key}: {seen[key]} and {item.nodeid}; give each its own "
                f"@pytest.mark.{MARKER}(kernels=[...])"
            )
        if key is not None:
            seen[key] = item.nodeid
