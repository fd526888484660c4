"""Makes cases from marked tests: parametrisation, case keys, canonical order, and deselection.

The same code runs in the controller and in every worker, so that both give an item the same key.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_attnperf.backends import Backend, Registry
from pytest_attnperf.errors import AttnperfError, UsageError, WorkloadError, propose_name
from pytest_attnperf.gate.policy import CASE_TIERS, require_quarantine, require_tier
from pytest_attnperf.plugin import invalid_markers, marker_values, options, selection
from pytest_attnperf.plugin.case_policies import make_policy
from pytest_attnperf.plugin.config import run_config
from pytest_attnperf.plugin.keys import CASE, case_key, refuse_duplicates
from pytest_attnperf.plugin.selection import MarkedTest, describe_tests_without_cases, refuse_empty, show_notice
from pytest_attnperf.plugin.unknown_names import refuse_misspelt_marker
from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.costs import parse_costs
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import Families, Family, workloads_from_text

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.model_cases import ModelCases

MARKER = "attnperf"
FIXTURE = "attnperf"
_ORDER = pytest.StashKey[int]()
_IDENTITY = frozenset({"family", "workloads", "backends", "without", "suite", "label"})
_SWITCHES = {"timed": True, "breakdown": False}
"""Keywords that are True or False -> their default."""

_EXEMPTIONS = frozenset({"tier", "nightly", "cpu", "each", "quarantine", "until"})
_KNOWN = frozenset({*_IDENTITY, *_SWITCHES, *_EXEMPTIONS, "costs", *(option.field for option in options.CASE_OPTIONS)})

_Conforming = dict[tuple[int, type], object]
"""(id, protocol) -> a parameter that satisfies the protocol. A cache, because an isinstance check of a protocol is slow
and thousands of items share their parameters."""

_CONFORMING = pytest.StashKey[_Conforming]()
_LEFT = "attnperf_left_to_nightly"
"""Key of `workeroutput` by which a worker of xdist sends the left-out cases to its controller."""


@dataclass(eq=False)  # pluggy keeps plugins in sets, where a conftest.py does not concern every folder
class CaseCollector:
    """Plugin object that parametrises marked tests and gives every item its case key."""

    config: pytest.Config
    on_gpu: bool
    gpu_reason: str
    registry: Registry = field(default_factory=Registry)
    families: Families = field(default_factory=Families)
    tests: list[MarkedTest] = field(default_factory=list)
    left_to_nightly: tuple[CaseKey, ...] = ()
    collected: int = 0
    """Number of cases before any was deselected."""
    _counter: int = 0
    _unfit: str = ""
    """Why the typed workload is none of the first selected test's family, nor of another one."""

    def register_backends(self) -> None:
        """Calls the hooks by which every conftest registers its backends and families. Raises UsageError for a family
        whose class lacks something, a backend of an unknown family, or an unreadable model file."""
        self.config.hook.pytest_attnperf_register_backends(registry=self.registry)
        self.config.hook.pytest_attnperf_register_workloads(families=self.families)
        self.families.require_classes()
        self.registry.require_families({family.name for family in self.families})
        _ = self._model  # a model file that cannot be read is an error even if no test uses its workloads
        if text := run_config(self.config).workload:
            self.families.require_text(text, {name for one in self.registry for name in one.families})

    @functools.cached_property
    def _model(self) -> ModelCases | None:
        """The model of `--attnperf-model`; None without it. Raises UsageError for options or files that are invalid."""
        asked = run_config(self.config)
        if not asked.model:
            return None
        from pytest_attnperf.plugin.features.model_cases import ModelCases

        return ModelCases.from_options(asked)

    def pytest_report_header(self) -> list[str]:
        """Returns lines on the model whose workloads are measured; [] without `--attnperf-model`."""
        try:
            return self._model.describe_model() if self._model else []
        except UsageError as error:
            raise pytest.UsageError(str(error)) from error

    def wanted_backends(self) -> list[str] | None:
        """Returns the backends named by `--attnperf-backend`; None without it. Raises UsageError for unknown ones."""
        names = selection.split_names(run_config(self.config).backend)
        return selection.expand_names(names, self.registry, self.families) if names else None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrises a marked test by backends and workloads, alike on every machine. A test whose marker is invalid
        or misspelt becomes one item that fails."""
        try:
            self._check_marker(metafunc.definition)
            self._parametrize(metafunc)
        except AttnperfError as error:
            invalid_markers.keep_reason(self.config, metafunc.definition.nodeid, str(error))

    def _check_marker(self, item: Any) -> None:
        """Raises UsageError for an invalid marker of one of our tests, and for a name that is nearly "attnperf"."""
        marker = item.get_closest_marker(MARKER)
        if FIXTURE in item.fixturenames and marker is None:
            refuse_misspelt_marker(self.config, item, MARKER)
        elif FIXTURE in item.fixturenames:
            settings = marker_settings(marker, item.nodeid)
            with marker_values.naming_place(item.nodeid):
                make_policy(self.config, settings)

    def _parametrize(self, metafunc: pytest.Metafunc) -> None:
        marker = metafunc.definition.get_closest_marker(MARKER)
        if marker is None or not {"backend", "workload"} <= set(metafunc.fixturenames):
            return
        where = metafunc.definition.nodeid
        settings = marker_settings(marker, where)
        listed = self._list_backends(settings, where)
        wanted = self.wanted_backends()
        backends = [backend for backend in listed if wanted is None or backend.name in wanted]
        workloads = self._list_workloads(settings, where)
        given = {} if run_config(self.config).replaced_by else settings
        params = selection.make_params(
            listed, workloads, backends, selection.find_left_to_others(given, listed, workloads, where)
        )
        names = tuple(backend.name for backend in listed)
        chosen = frozenset(backend.name for backend in backends)
        why = self.families.reason_no_triton(settings["family"])
        self.tests.append(MarkedTest(where, settings["family"], names, chosen, len(params), why))
        metafunc.parametrize("backend,workload", params)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Stores in `item.stash` its number in collection order, before plugins shuffle, and a case's key."""
        item.stash[_ORDER] = self._counter
        self._counter += 1
        if FIXTURE in getattr(item, "fixturenames", ()) and not invalid_markers.find_reason(item):
            marker, pair = item.get_closest_marker(MARKER), pair_of(item)
            if _is_family_test(item, marker) and pair is None:
                return
            try:
                item.stash[CASE] = _key_of(item, marker, pair)
                self.collected += 1
            except UsageError as error:
                invalid_markers.keep_reason(self.config, item.nodeid.partition("[")[0], str(error))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fails an item whose marker is invalid, before its fixtures are set up."""
        invalid_markers.fail_invalid(item)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselects cases that are too large for a CPU, left to nightly runs, or repeated by the workloads of the
        command line, and restores the collected order. Raises UsageError if two items have one key."""
        asked = run_config(config)
        selects = not asked.is_worker
        if selects and self._unfit:
            raise pytest.UsageError(f"--attnperf-workload: {self._unfit}")
        if selects:
            refuse_empty(config, self.tests, items)
            _keep_only(config, items, [item for item in items if not _is_empty_selection(item)])
        if asked.replaced_by:
            _keep_only(config, items, drop_repeats(items))
            if selects:  # a worker keeps all cases: the controller selects
                _keep_only(config, items, drop_untimed_repeats(items))
        try:
            refuse_duplicates(items)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from error
        restore_order(items)
        if selects:
            ranks = {path: selection.file_rank(path, config) for path in {item.path for item in items}}
            items.sort(key=lambda item: ranks[item.path])
            left = {
                item: key
                for item in items
                if (key := case_key(item)) and selection.is_left_out(tier_of(item), config, on_gpu=self.on_gpu)
            }
            self.left_to_nightly = tuple(left.values())
            _keep_only(config, items, [item for item in items if item not in left])
        too_large: dict[pytest.Item, Backend] = {}
        if not self.on_gpu and not asked.workload:
            by_name = bool(asked.backend)
            too_large = {item: found for item in items if (found := _find_too_slow(item, by_name=by_name))}
            _keep_only(config, items, [item for item in items if item not in too_large])
        show_notice(config, "attnperf-left-out", self._describe_left_out(list(too_large.values())))

    def _describe_left_out(self, too_large: Sequence[Backend]) -> list[str]:
        """Returns lines on deselected cases, with the reasons; [] if none are. `too_large` has the backend of each case
        that is too large for a CPU."""
        lines = self._model.describe_left_out() if self._model else []
        lines += selection.describe_too_large(too_large, self.gpu_reason)
        if self.left_to_nightly:
            left = len(self.left_to_nightly)
            lines.append(f"attnperf: {left} case{'s' * (left != 1)} left to nightly runs (--attnperf-tier=nightly)")
        return lines

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        """Prints which tests have no selected case, unless that was an error."""
        line = describe_tests_without_cases(self.tests, run_config(self.config).backend)
        if line and exitstatus != pytest.ExitCode.USAGE_ERROR:
            terminalreporter.write_line(line)

    def pytest_sessionfinish(self) -> None:
        """In a worker of xdist: puts the keys of cases left to nightly runs into what xdist sends to its controller."""
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output[_LEFT] = [(key.suite, key.backend, key.workload, key.label) for key in self.left_to_nightly]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """In xdist's controller: takes the keys of cases left to nightly runs, which all workers send alike."""
        told = getattr(node, "workeroutput", {}).get(_LEFT, ())
        self.left_to_nightly = tuple(CaseKey(*key) for key in told) or self.left_to_nightly

    def _list_backends(self, settings: dict[str, Any], where: str) -> list[Backend]:
        """Returns the backends that the marker allows, as registered. Raises UsageError for none."""
        family, only, without = (settings.get(name) for name in ("family", "backends", "without"))
        if only is not None and without is not None:
            raise UsageError(f"{where}: the attnperf marker has backends= and without=; give one of them")
        asked = only if only is not None else without or ()
        with marker_values.naming_place(where):
            self.families.get(str(family))
            named = set(selection.expand_names(asked, self.registry, self.families))
        of_family = self.registry.for_family(str(family))
        listed = [backend for backend in of_family if (backend.name in named) == (only is not None)]
        if not listed:
            why = self.families.reason_no_triton(str(family)) if selection.includes_triton(only or ()) else ""
            lacks = marker_values.describe_no_backend(self.config, str(family), of_family, self.registry)
            raise UsageError(f"{where}: {lacks}{why}")
        return listed

    def _list_workloads(self, settings: dict[str, Any], where: str) -> list[Workload]:
        family = self.families.get(settings["family"])
        if self._model:
            return self._model.list_workloads(family.name)
        text = run_config(self.config).workload
        if text:
            try:
                return list(workloads_from_text(text, family))
            except WorkloadError as error:
                if not self._is_of_other_family(text, family):
                    self._unfit = self._unfit or str(error)
                return []
        return marker_values.list_given_workloads(settings.get("workloads"), family, where)

    def _is_of_other_family(self, text: str, family: Family) -> bool:
        """Returns whether `text` is a workload of another family than `family`: then tests of `family` are skipped."""
        for other in self.families:
            with contextlib.suppress(WorkloadError):
                if other.name != family.name and workloads_from_text(text, other):
                    return True
        return False


def marker_settings(marker: pytest.Mark, where: str) -> dict[str, Any]:
    """Returns the marker's keywords as a dict. Raises UsageError for unknown or invalid ones, with what is allowed."""
    unknown = sorted(marker.kwargs.keys() - _KNOWN)
    if marker.args or unknown:
        near = "".join(propose_name(name, _KNOWN) for name in unknown)
        what = f"unknown keywords {unknown}{near}" if unknown else "positional arguments"
        raise UsageError(f"{where}: the attnperf marker has {what}; known keywords: {', '.join(sorted(_KNOWN))}")
    if "family" not in marker.kwargs and ("workloads" in marker.kwargs or "backends" in marker.kwargs):
        raise UsageError(f"{where}: the attnperf marker needs family=..., e.g. family='prefill'")
    marker_values.require_lists(marker.kwargs, where)
    marker_values.require_switches(marker.kwargs, _SWITCHES, where)
    parse_costs(marker.kwargs.get("costs"), f"{where}: the attnperf marker")
    require_tier(marker.kwargs.get("tier"), f"{where}: tier of the attnperf marker", CASE_TIERS)
    require_quarantine(marker.kwargs.get("quarantine"), marker.kwargs.get("until"), f"{where}: the attnperf marker")
    return dict(marker.kwargs)


def read_switches(item: pytest.Item) -> dict[str, bool]:
    """Returns {'timed': bool, 'breakdown': bool} by the item's marker. Raises as `marker_settings`."""
    marker = item.get_closest_marker(MARKER)
    settings = marker_settings(marker, item.nodeid) if marker else {}
    return {name: bool(settings.get(name, default)) for name, default in _SWITCHES.items()}


def tier_of(item: pytest.Item) -> str:
    """Returns the item's tier: 'check', 'cpu', 'nightly' (see `is_left_out`), or ''. Raises as `marker_settings`."""
    marker = item.get_closest_marker(MARKER)
    return selection.tier_of(item, marker_settings(marker, item.nodeid)) if marker else ""


def pair_of(item: pytest.Item) -> tuple[Backend, Workload] | None:
    """Returns the item's (backend, workload); None if it has no such parameters, or parameters of other types."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    backend, workload = params.get("backend"), params.get("workload")
    known = item.config.stash.setdefault(_CONFORMING, {})
    if _is_of_protocol(known, backend, Backend) and _is_of_protocol(known, workload, Workload):
        return cast("Backend", backend), cast("Workload", workload)
    return None


def _is_of_protocol(known: _Conforming, value: object, protocol: type) -> bool:
    """Returns whether the object satisfies the protocol; remembers in `known` that it does."""
    key = (id(value), protocol)
    if key not in known and isinstance(value, protocol):
        known[key] = value  # kept alive, so that its id stays unique
    return key in known


def _is_empty_selection(item: pytest.Item) -> bool:
    """Returns whether a test of a family got no backend and workload: pytest then skips it, and it is no case."""
    is_test = _is_family_test(item, item.get_closest_marker(MARKER)) and not invalid_markers.find_reason(item)
    return pair_of(item) is None and is_test


def _find_too_slow(item: pytest.Item, *, by_name: bool) -> Backend | None:
    """Returns the case's backend if a CPU would take too long for it, else None. With `by_name` (the backend was typed)
    None for a backend without CPU support, which reports that itself."""
    ours = case_key(item) is not None or item.get_closest_marker(MARKER) is not None
    pair = pair_of(item) if ours else None
    if pair is None or (by_name and pair[0].cpu_flops_max <= 0):
        return None
    return pair[0] if (pair[1].flops or 0.0) > pair[0].cpu_flops_max else None


def _is_family_test(item: pytest.Item, marker: pytest.Mark | None) -> bool:
    """Returns whether the item is marked with a family and takes `backend` and `workload` as arguments."""
    names = getattr(item, "fixturenames", ())
    return marker is not None and "family" in marker.kwargs and "backend" in names and "workload" in names


def _key_of(item: pytest.Item, marker: pytest.Mark | None, pair: tuple[Backend, Workload] | None) -> CaseKey:
    settings = marker_settings(marker, item.nodeid) if marker else {}
    suite = str(settings.get("suite") or item.path.stem.removeprefix("test_"))
    label = str(settings.get("label", ""))
    if pair is not None:
        return CaseKey(suite, pair[0].name, pair[1].id, label)
    return CaseKey(suite, "gate", item.name, label)


def _keep_only(config: pytest.Config, items: list[pytest.Item], kept: Sequence[pytest.Item]) -> None:
    """Removes all but `kept` from `items`."""
    staying = {id(item) for item in kept}
    dropped = [item for item in items if id(item) not in staying]
    if dropped:
        items[:] = kept
        config.hook.pytest_deselected(items=dropped)


def drop_repeats(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Returns the items without cases that repeat an earlier one, and without tests that got no workload. The workloads
    of the command line replace those of all tests of their family, so several tests get the same ones."""
    seen: set[CaseKey] = set()
    kept = []
    for item in items:
        key = case_key(item) if pair_of(item) is not None and item.get_closest_marker(MARKER) is not None else None
        if key not in seen and not _is_empty_selection(item):
            kept.append(item)
        if key is not None:
            seen.add(key)
    return kept


def drop_untimed_repeats(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Returns the items without untimed cases that differ from a timed or an earlier untimed case only in the label.
    Labels separate tests of different workloads, but those of the command line are the same for all tests."""
    untimed = [item for item in items if case_key(item) is not None and not read_switches(item)["timed"]]
    timed = {id(item) for item in items} - {id(item) for item in untimed}
    proven = {_key_without_label(item) for item in items if id(item) in timed}
    repeats: set[int] = set()
    for item in untimed:
        if _key_without_label(item) in proven:
            repeats.add(id(item))
        proven.add(_key_without_label(item))
    return [item for item in items if id(item) not in repeats]


def _key_without_label(item: pytest.Item) -> CaseKey | None:
    key = case_key(item)
    return replace(key, label="") if key is not None and pair_of(item) is not None else key


def restore_order(items: list[pytest.Item]) -> None:
    """Sorts the cases in `items`, in place, by collection order; other tests keep their indices in the list."""
    places = [index for index, item in enumerate(items) if case_key(item) is not None]
    cases = sorted((items[index] for index in places), key=lambda item: item.stash[_ORDER])
    for index, item in zip(places, cases, strict=True):
        items[index] = item
