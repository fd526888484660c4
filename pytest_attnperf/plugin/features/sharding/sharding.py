"""`--attnperf-shard`: keeps the cases of one part, after all else has selected, and says which part that is.

Every session divides the same list by the same committed seconds, so that all have the same manifest; where one selects
differently, its manifest differs, and the gathering command refuses it (`reports.files.shards`).
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pytest_attnperf.baselines.case_seconds import CASE_SECONDS, load_case_seconds
from pytest_attnperf.environment.shard_variables import find_run_id, find_shard, find_speeds
from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.config import SHARDING, RunConfig, is_xdist_worker, run_config
from pytest_attnperf.plugin.features.sharding.partition import WeighedCase, divide_cases, estimate_seconds
from pytest_attnperf.plugin.keys import PLANNED, build_key, case_key
from pytest_attnperf.plugin.selection import count_cases, show_notice
from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.shards import SHARDS_MAX, ShardManifest, ShardRecord, name_in_manifest
from pytest_attnperf.results import RunResult

AUTO = "auto"

_PARTS, _ELSEWHERE = "attnperf_shard_parts", "attnperf_shard_elsewhere"
"""Keys of `workeroutput` by which a worker of xdist tells its controller the parts and the cases of other shards."""

_TYPED = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


def read_shard(asked: RunConfig) -> tuple[int, int]:
    """Returns (index from 1, count) of `--attnperf-shard`. Raises UsageError for other text than INDEX/COUNT or auto,
    for an index outside, and if auto finds nothing."""
    text, what = asked.shard, asked.name_of("shard")
    if text == AUTO:
        found = find_shard(os.environ)
        index, count = found.index, found.count
    elif typed := _TYPED.fullmatch(text):
        index, count = int(typed[1]), int(typed[2])
    else:
        raise UsageError(f"{what}={text!r} is no part of a run; give INDEX/COUNT, e.g. 1/4 to 4/4, or {AUTO}")
    if not 1 <= index <= count <= SHARDS_MAX:
        raise UsageError(
            f"{what}={text!r} is part {index} of {count}; the index must be 1 to COUNT, and COUNT at most {SHARDS_MAX}"
        )
    return index, count


@dataclass(eq=False)  # pluggy keeps plugins in sets
class Sharding:
    """Plugin object of a session that has one part of the selected cases.

    parts      names of the cases of every part; () before the cases are known, and where none is selected
    elsewhere  keys of the cases and kernels of the other parts
    timed      number of timed cases of all parts: they share the run's false-alarm rate
    """

    config: pytest.Config
    index: int
    count: int
    parts: tuple[tuple[str, ...], ...] = ()
    elsewhere: tuple[CaseKey, ...] = ()
    timed: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether cases are selected, but none is left for this part."""
        return bool(self.parts) and not self.parts[self.index - 1]

    def keep_part(self, items: list[pytest.Item]) -> None:
        """Deselects what other parts have: their cases and kernels, and outside part 1 ordinary tests. Without a case
        nothing is divided. Raises BaselineError for an invalid file of seconds, UsageError for invalid speeds."""
        keys = [_key_of(item) for item in items]
        cases = [(item, key) for item, key in zip(items, keys, strict=True) if key is not None]
        if not cases:
            return
        asked = run_config(self.config)
        stored = load_case_seconds(asked.root / asked.baselines / CASE_SECONDS)
        names = [name_in_manifest(key) for _, key in cases]
        seconds = estimate_seconds(names, stored)
        weighed = [
            WeighedCase(name, _group_of(item, name), round(1000 * own))
            for (item, _), name, own in zip(cases, names, seconds, strict=True)
        ]
        self.parts = divide_cases(weighed, self.count, find_speeds(os.environ, self.count))
        own = frozenset(self.parts[self.index - 1])
        self.elsewhere = tuple(key for (_, key), name in zip(cases, names, strict=True) if name not in own)
        self.timed = sum(item.stash[PLANNED].timed for item, _ in cases if PLANNED in item.stash)
        kept = [
            item
            for item, key in zip(items, keys, strict=True)
            if (self.index == 1 if key is None else name_in_manifest(key) in own)
        ]
        staying = {id(item) for item in kept}
        if dropped := [item for item in items if id(item) not in staying]:
            items[:] = kept
            self.config.hook.pytest_deselected(items=dropped)
        took = sum(own_s for name, own_s in zip(names, seconds, strict=True) if name in own)
        show_notice(self.config, "attnperf-shard-notice", [self._describe(names, stored, took)])

    def complete_record(self, run: RunResult) -> RunResult:
        """Returns the run with its manifest and a record of this shard; unchanged if nothing was divided."""
        if not self.parts:
            return run
        manifest = ShardManifest(find_run_id(os.environ), run.commit, self.parts)
        gpus = tuple(gpu.device_id for gpu in run.gpus)
        record = ShardRecord(self.index, self.count, manifest.compute_digest(), platform.node(), gpus)
        return replace(run, shard_manifest=manifest, shards=(record,))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Makes a session whose part is empty end with status 0. In a worker of xdist sends the parts to the
        controller."""
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output[_PARTS] = [list(part) for part in self.parts]
            output[_ELSEWHERE] = [(key.suite, key.backend, key.workload, key.label) for key in self.elsewhere]
        elif self.is_empty and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """In xdist's controller: takes the parts, which all workers have alike."""
        told = getattr(node, "workeroutput", {})
        if told.get(_PARTS):
            self.parts = tuple(map(tuple, told[_PARTS]))
            self.elsewhere = tuple(CaseKey(*key) for key in told[_ELSEWHERE])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Says of an empty part that there was nothing to do."""
        if self.is_empty and not is_xdist_worker(self.config):
            selected = sum(map(len, self.parts))
            terminalreporter.write_line(
                f"attnperf: shard {self.index} of {self.count} is empty: {count_cases(selected)} for {self.count} "
                "shards; nothing was to do"
            )

    def _describe(self, names: Sequence[str], stored: Mapping[str, float], took: float) -> str:
        own = len(self.parts[self.index - 1])
        text = f"attnperf: shard {self.index} of {self.count}: {own} of {count_cases(len(names))}"
        unknown = sum(name not in stored for name in names)
        where = f"{run_config(self.config).baselines}/{CASE_SECONDS}"
        if unknown == len(names):
            return f"{text}, by their number, because {where} has seconds of none"
        less = f", {unknown} of all by the median of their family" if unknown else ""
        return f"{text}, about {took:.0f} s by {where}{less}"


def register_sharding(config: pytest.Config) -> None:
    """Registers the plugin object of `--attnperf-shard`. Raises UsageError for a part that does not exist."""
    index, count = read_shard(run_config(config))
    config.pluginmanager.register(Sharding(config, index, count), SHARDING)


def _key_of(item: pytest.Item) -> CaseKey | None:
    key = case_key(item)
    return build_key(item) if key is None else key


def _group_of(item: pytest.Item, name: str) -> str:
    """Returns what all backends of a case's workload have in common; the name of a kernel, which is a group alone."""
    key = case_key(item)
    return name if key is None else f"{key.suite}/{key.workload}/{key.label}"
