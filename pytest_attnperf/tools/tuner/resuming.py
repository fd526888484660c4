"""What a run leaves in its journal beside trials, so that the same run goes on where it was killed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import METHOD_VERSION, DeviceInfo
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.tools.tuner.bench import is_wrong
from pytest_attnperf.tools.tuner.confirm import WINNER_SIDE, Confirmation, Found
from pytest_attnperf.tools.tuner.job import TuneJob
from pytest_attnperf.tools.tuner.journal import Journal
from pytest_attnperf.tuning_records import Candidate, Excluded, TuningSpace

PAIR, WRONG_RESULT, DEVICE, SELECTION = "pair", "wrong result", "device", "selection"


def header_of(job: TuneJob, space: TuningSpace) -> dict[str, str]:
    """What a journal must be of to be gone on with."""
    return {
        "backend": job.name,
        "kernel": space.kernel,
        "arch": job.arch,
        "workloads": " ".join(job.tuned),
        "default": space.default.id,
        "space": _space_text(space),
        "method": str(METHOD_VERSION),
        "strategy": job.settings.strategy,
        "seed": str(job.settings.seed),
        **job.identity,
    }


def require_same_device(journal: Journal, device: DeviceInfo) -> None:
    """Raise UsageError where the journal's trials come from another kind of device; note this one where it has none."""
    here = f"{device.arch} {device.product}"
    for record in journal.records(DEVICE):
        if record["device"] != here:
            raise UsageError(
                f"{journal.path}: its trials were timed on {record['device']}, this is {here}; give another --out"
            )
    journal.append(DEVICE, {"device": here})


def keep_selection(journal: Journal, kept: Sequence[Candidate], excluded: Sequence[Excluded]) -> None:
    """Note what will be timed, and why the rest will not."""
    reasons = {one.candidate.id: [one.stage, one.reason] for one in excluded}
    journal.append(SELECTION, {"kept": [candidate.id for candidate in kept], "excluded": reasons})


def kept_selection(
    journal: Journal, listed: Sequence[Candidate], excluded: Sequence[Excluded]
) -> tuple[list[Candidate], list[Excluded]] | None:
    """What an earlier session selected of the listed candidates; None where there was none.

    Raises UsageError where the journal names a candidate that the space does not have.
    """
    record = next(journal.records(SELECTION), None)
    if record is None:
        return None
    known = {candidate.id: candidate for candidate in listed} | {one.candidate.id: one.candidate for one in excluded}
    reasons: dict[str, Sequence[str]] = dict(record["excluded"])
    unknown = [name for name in (*record["kept"], *reasons) if name not in known]
    if unknown:
        raise UsageError(f"{journal.path}: has a candidate {unknown[0]}, which the space does not; give another --out")
    return (
        [known[name] for name in record["kept"]],
        [Excluded(known[name], stage, reason) for name, (stage, reason) in reasons.items()],
    )


def journaled_pairs(journal: Journal, default: Candidate, winner: Candidate) -> Confirmation:
    """The pairs that the journal has of these two; what is added to them is journaled, too.

    A wrong result of the winner is kept, too: it may come and go, and trying until it does not come would hide it.
    Other failures are not: a run that goes on tries again.
    """
    between = {"default": default.id, "winner": winner.id}

    def done(workload: str, number: int, found: Found) -> None:
        if isinstance(found, PairSummary):
            journal.append(PAIR, {**between, "workload": workload, "number": number, "pair": asdict(found)})
            return
        side, _, failure = found.partition(": ")
        if side == WINNER_SIDE and is_wrong(failure):
            journal.append(WRONG_RESULT, {**between, "workload": workload, "number": number, "reason": found})

    known = Confirmation(done=done)
    for record in journal.records(PAIR):
        if {name: record[name] for name in between} == between:
            pair = PairSummary(**{**record["pair"], "quad_ratios": tuple(record["pair"]["quad_ratios"])})
            known.restore(record["workload"], record["number"], pair)
    for record in journal.records(WRONG_RESULT):
        if {name: record[name] for name in between} == between:
            known.restore(record["workload"], record["number"], str(record["reason"]))
    return known


def _space_text(space: TuningSpace) -> str:
    """How many values each parameter has, and a digest of what they are."""
    whole = {
        "values": {name: list(values) for name, values in space.values.items()},
        "constraints": [constraint.why for constraint in space.constraints],
        "extra": [candidate.id for candidate in space.extra],
    }
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]
    return f"{', '.join(f'{name} {len(values)}' for name, values in space.values.items())}; {digest}"
