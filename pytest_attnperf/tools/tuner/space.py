"""From a declared space to the candidates worth compiling, and those that its constraints exclude."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tuning_records import Candidate, Excluded, TuningSpace, Value

COMBINATIONS_MAX = 100_000
"""A grid beyond this is a mistake in the declaration: listing it alone would take longer than a search."""


def check_space(space: TuningSpace) -> None:
    """Raise UsageError for a space that nothing can be searched in, saying which part of it is off."""
    for name, values in space.values.items():
        if not values:
            raise UsageError(f"{_where(space)}: parameter {name} has no values; give at least one")
        twice = [told for told, count in Counter(map(str, values)).items() if count > 1]
        if twice or len(set(values)) < len(values):
            named = ", ".join(map(repr, values))
            raise UsageError(f"{_where(space)}: parameter {name} names a value twice: {named}")
    _check_default(space)
    count = math.prod(len(values) for values in space.values.values())
    if count > COMBINATIONS_MAX:
        sizes = ", ".join(f"{name} {len(values)}" for name, values in space.values.items())
        raise UsageError(
            f"{_where(space)}: {count:,} combinations, at most {COMBINATIONS_MAX:,} are searched; "
            f"take values away (how many each has: {sizes})"
        )
    kept, excluded = _listed(space)
    if len(kept) > 1:
        return
    counted = Counter(item.reason for item in excluded if item.candidate != space.default)
    reasons = "; ".join(f"{number} x {reason}" for reason, number in counted.most_common()) or "it holds nothing else"
    raise UsageError(f"{_where(space)}: no valid candidate beside the default {space.default.id}: {reasons}")


def candidates(space: TuningSpace) -> tuple[list[Candidate], list[Excluded]]:
    """Every candidate that the constraints allow, the default first, and those that they exclude with the reason.

    The default stays, whatever the constraints say of it. Raises UsageError as `check_space` does.
    """
    check_space(space)
    return _listed(space)


def _check_default(space: TuningSpace) -> None:
    missing = [name for name in space.values if name not in space.default.values]
    if missing:
        raise UsageError(
            f"{_where(space)}: the default {space.default.id!r} lacks {', '.join(missing)}; "
            "a default names every parameter"
        )
    unknown = [name for name in space.default.values if name not in space.values]
    if unknown:
        raise UsageError(
            f"{_where(space)}: the default names {', '.join(unknown)}, which the space does not: every other candidate "
            "would run without it. Declare it, with one value if it is not to be tuned"
        )
    for extra in space.extra:
        if not extra.label:
            raise UsageError(f"{_where(space)}: candidate {extra.id!r} outside the grid has no label")


def _listed(space: TuningSpace) -> tuple[list[Candidate], list[Excluded]]:
    kept, excluded = {space.default.id: space.default}, []
    for combination in itertools.product(*space.values.values()):
        candidate = Candidate(dict(zip(space.values, combination, strict=True)))
        why = _violated(space, candidate.values)
        if why and candidate != space.default:
            excluded.append(Excluded(candidate, "constraint", why))
        elif not why:
            kept.setdefault(candidate.id, candidate)
    for extra in space.extra:
        if kept.setdefault(extra.id, extra) is not extra:
            raise UsageError(f"{_where(space)}: two candidates are called {extra.id!r}")
    return list(kept.values()), excluded


def _violated(space: TuningSpace, values: Mapping[str, Value]) -> str:
    """The first constraint that does not hold, '' where all do."""
    for constraint in space.constraints:
        try:
            holds = constraint.holds(values)
        except Exception as error:
            told = Candidate(values).id
            raise UsageError(
                f"{_where(space)}: constraint {constraint.why!r} raised {type(error).__name__}: {error} for {told}"
            ) from error
        if not holds:
            return constraint.why
    return ""


def _where(space: TuningSpace) -> str:
    return f"tuning space of {space.kernel}"
