"""Frozen data of a run that several sessions share: which cases were selected, and which part each session has."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from pytest_attnperf.records import CaseKey

SHARDS_MAX = 10_000
"""Most parts of a run."""

DIGEST_DIGITS = 32


@dataclass(frozen=True)
class ShardManifest:
    """All cases and kernels that a sharded run selected, before it was divided. Equal in all of its shards.

    run      id that all shards have: of the CI system's run; '' where no variable holds one
    commit   the measured commit, as in `RunResult.commit`
    parts    names of the cases and kernels of each shard, from the first one, each in canonical order
    """

    run: str
    commit: str
    parts: tuple[tuple[str, ...], ...]

    @property
    def selected(self) -> int:
        """Number of cases and kernels of all shards."""
        return sum(map(len, self.parts))

    def compute_digest(self) -> str:
        """Returns the hash of run, commit and parts by which shards of one run recognise each other."""
        content = json.dumps([self.run, self.commit, self.parts], separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()[:DIGEST_DIGITS]


@dataclass(frozen=True)
class ShardRecord:
    """One session of a sharded run.

    index      from 1 to `count`
    manifest   `ShardManifest.compute_digest` of the manifest that it divided
    node       host name of the machine
    gpus       ids of the cards that measured, as in `ProcessSummary.device_id`
    """

    index: int
    count: int
    manifest: str
    node: str = ""
    gpus: tuple[str, ...] = ()


def name_in_manifest(key: CaseKey) -> str:
    """Returns the name of a case or kernel in manifests: its key, with lone surrogates escaped as results files do."""
    return str(key).encode("utf-8", "backslashreplace").decode()
