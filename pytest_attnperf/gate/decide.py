"""Pure decisions: from two groups of processes and a policy to a verdict with its figures and reasons.

SLOWER takes two looks. The first compares one or a few fresh processes with the stored ones and decides SAME and
FASTER. Everything above the user's threshold gets a second look, decided by that look's own processes, because those of
the first were selected for being slow. Both looks use the same z, that of one look at the suite's false-alarm rate: a
false alarm must pass both, so the rate of the two together is at most the stated one. The looks share the stored
processes and are not independent, so no product of two probabilities is claimed. This noise does not contain a shift of
the day or of the card since the baseline was recorded; only measuring both revisions interleaved removes that
(`gate.interleaved`). The canary shows such a shift where it is stored, and a slowdown that it explains is ENVIRONMENT.
The noise contains the spread between cards where baselines are stored from several of them, and where another card
measures: then as the spread between cards of the same product elsewhere.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from pytest_attnperf.gate.canary_drift import CanaryShift
from pytest_attnperf.gate.effort import PROCESSES_MAX, Aim, processes_needed
from pytest_attnperf.gate.limits import (
    Decision,
    Limits,
    describe_cycles,
    format_percent,
    format_signed,
    tolerated_ratio,
)
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Measurement, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.stats.comparison import compare_processes, ratio_of, with_degrees_between, z_for
from pytest_attnperf.stats.noise import NoiseEstimate, widen_for_cards, widen_to_own_spread

__all__ = ["Decision", "first_look", "limits_between", "second_look"]


def first_look(
    base: Measurement, new: Measurement, noise: NoiseEstimate | None, policy: Policy, cases: int
) -> Decision:
    """Compares a few fresh processes (`new`) with the stored ones (`base`); says if a second look is needed.

    SAME and FASTER are final here. With `needs_second_look`, the verdict SLOWER or UNDECIDED is provisional. `cases` is
    the number of cases that this run gates. Without a noise estimate the verdict is UNDECIDED.
    """
    if noise is None:
        return _decide_without_noise(base, new)
    look = limits_between(base, new, noise, policy, cases)
    reasons = _list_bounds(look, policy, base, new)
    if look.is_beyond_tolerance:
        verdict = Verdict.SLOWER if look.is_beyond_limit else Verdict.UNDECIDED
        summary, again = f"{_format_comparison(look)}; a second look decides", True
    else:
        verdict, again = (Verdict.FASTER if look.is_faster else Verdict.SAME), False
        closing = "update the baseline to keep it" if look.is_faster else look.describe_same
        summary = f"{_format_comparison(look)}; {closing}"
    decided = look.make_decision(verdict, summary, reasons, detects_beyond=look.tolerated, needs_second_look=again)
    return replace(decided, measured=_format_comparison(look))


def second_look(
    base: Measurement,
    first: Measurement,
    second: Measurement,
    noise: NoiseEstimate | None,
    policy: Policy,
    cases: int,
    toolchain_changes: Sequence[str] = (),
    *,
    canary: CanaryShift | None = None,
    bound: str = "",
) -> Decision:
    """Decides a case that the first look left open, by comparing the processes of `second` alone with `base`.

    `toolchain_changes` are the named fields of the fingerprint that differ: slower is then ENVIRONMENT, because a
    comparison with a stored baseline cannot separate the code from the toolchain. So is a slowdown that `canary`, the
    shift of the fixed kernels, and the threshold together allow. `bound` is 'compute', 'memory' or '', and selects the
    canary's kernel.
    """
    if noise is None:
        return _decide_without_noise(base, second)
    look = limits_between(base, second, noise, policy, cases)
    reasons = [
        *_list_bounds(look, policy, base, second),
        *look.tighter_than_noise(),
        *_describe_cycles(look, base, second, bound),
        *([canary.describe_shift(look.ratio, bound)] if canary else []),
        Note(NoteKind.FIRST_LOOK, f"the first look saw {format_signed(ratio_of(base.processes, first.processes) - 1)}"),
    ]
    verdict, closing = _settle_verdict(look, base, second, toolchain_changes, canary, bound)
    if verdict is Verdict.ENVIRONMENT and toolchain_changes:
        text = "only measuring both revisions under one toolchain can separate the code from the toolchain"
        reasons.append(Note(NoteKind.TOOLCHAIN, text, "; ".join(toolchain_changes)))
    elif verdict is Verdict.ENVIRONMENT:
        reasons.append("only measuring both revisions interleaved can separate the code from the machine")
    decided = look.make_decision(verdict, f"{_format_comparison(look)}{closing}", reasons)
    return replace(decided, measured=_format_comparison(look))


def _settle_verdict(
    look: Limits,
    base: Measurement,
    new: Measurement,
    toolchain_changes: Sequence[str],
    canary: CanaryShift | None,
    bound: str,
) -> tuple[Verdict, str]:
    """Returns the second look's verdict (SLOWER, ENVIRONMENT, UNDECIDED or SAME) and the text that ends its summary."""
    if look.is_beyond_limit and toolchain_changes:
        return Verdict.ENVIRONMENT, f", but the toolchain changed: {'; '.join(toolchain_changes)}"
    if look.is_beyond_limit and canary is not None and canary.can_explain(look.ratio, look.limit, bound):
        shift = canary.shift_for(bound)
        return Verdict.ENVIRONMENT, f", but {shift.in_words}, too: the machine slowed down, not the code"
    if look.is_beyond_limit:
        return Verdict.SLOWER, f", beyond the {format_percent(look.limit - 1)} threshold in two looks"
    if look.is_beyond_tolerance:
        return Verdict.UNDECIDED, f"{look.reason_undecided}; {_what_would_decide(look, base, new)}"
    return Verdict.SAME, "; the first look was not confirmed"


def limits_between(base: Measurement, new: Measurement, noise: NoiseEstimate, policy: Policy, cases: int) -> Limits:
    """Compares the new measurement with `base`; returns the time ratio with the ratio that the user allows and the one
    that noise does not reach. The noise includes the spread between GPUs. `cases` share the false-alarm rate. Raises
    ValueError for measurements that cannot be compared."""
    noise = widen_for_cards(noise, base.processes, new.processes)
    noise = with_degrees_between(widen_to_own_spread(new.processes, noise), base.processes, new.processes)
    z = z_for(policy.suite_false_alarm_rate, cases, noise.degrees_of_freedom)
    base_us = statistics.median(base.medians_us)
    return Limits(
        base_us=base_us,
        new_us=statistics.median(new.medians_us),
        comparison=compare_processes(
            base.processes, new.processes, noise.relative_sd, z, noise.degrees_of_freedom, noise.card_sd
        ),
        tolerated=tolerated_ratio(policy, base_us),
        noise=noise,
        z=z,
    )


def _decide_without_noise(base: Measurement, new: Measurement) -> Decision:
    ratio = ratio_of(base.processes, new.processes)
    summary = (
        f"{format_signed(ratio - 1)} against stored, but the noise is unknown: no case "
        f"timed by {base.timer!r} has two stored processes"
    )
    advice = "record the baseline again with --update-baselines, which takes several fresh processes"
    return Decision(Verdict.UNDECIDED, summary, (advice,), ratio, None, None, False, None)


def _list_bounds(look: Limits, policy: Policy, base: Measurement, new: Measurement) -> list[str]:
    noise = (
        f"noise: {format_percent(look.noise.relative_sd)} per process ({look.noise.how}), {len(base.processes)} stored "
        f"and {len(new.processes)} new, z {look.z:.1f}"
    )
    return [look.threshold_reason(policy), Note(NoteKind.NOISE, noise), *_describe_cards(look, base, new)]


def _describe_cards(look: Limits, base: Measurement, new: Measurement) -> list[str]:
    """Returns one CARDS note: the noise between cards, and whether the new processes ran on cards of the baseline.
    Empty where the noise has no part for cards."""
    if not look.noise.card_sd:
        return []
    stored, ours = _cards_of(base), _cards_of(new)
    where = "on the same" if stored == ours else "on one of them" if ours < stored else "on another"
    count = f"{len(stored)} stored, measured {where}"
    said = (
        f"cards: {format_percent(look.noise.card_sd)} between cards ({look.noise.card_how}); {count}: "
        f"{format_percent(look.comparison.card_error)} of the {format_percent(look.comparison.standard_error)} "
        f"standard error"
    )
    return [Note(NoteKind.CARDS, said)]


def _cards_of(measurement: Measurement) -> set[str]:
    return {process.device_id for process in measurement.processes}


def _describe_cycles(look: Limits, base: Measurement, new: Measurement, bound: str) -> list[str]:
    base_mhz, new_mhz = ([process.clock_mhz for process in side.processes] for side in (base, new))
    return describe_cycles(look.ratio, base_mhz, new_mhz, bound)


def _format_comparison(look: Limits) -> str:
    return f"{look.format_ratio()}: {look.format_times()} stored"


def _what_would_decide(look: Limits, base: Measurement, new: Measurement) -> str:
    """Returns advice on how to decide a slowdown within noise: how many fresh (and stored) processes are needed,
    another card, or a search for the source of the noise."""
    stored = len(base.processes)
    of_cards = look.comparison.card_error
    aim = Aim(look.ratio, look.tolerated, look.z, look.noise.degrees_of_freedom)
    needed = processes_needed(aim, relative_sd=look.noise.relative_sd, stored=stored, card_error=of_cards)
    if needed is None and not aim.is_decided(of_cards):
        return "cards alone may differ by that much: measure on the card of the baseline, or both sides interleaved"
    if needed is None:
        return f"even {PROCESSES_MAX} processes per side would not decide it: find the source of the noise"
    if needed.stored == stored:
        return f"{needed.fresh} fresh processes instead of {len(new.processes)} would decide it"
    return f"{needed.stored} stored and {needed.fresh} fresh processes would decide it"
