"""What the two sides of a pair stand on: what keeps them from being compared, and what is only said. Pure.

A pair is measured on one card within the same minutes, so that two releases of ROCm, torch or Triton can be held
against each other on purpose. A stored baseline cannot do that: there ROCm must match under graph timers.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.workers.controller import Ready

UNKNOWN = "unknown ("
"""Begins a fact of a fingerprint that could not be had: a container may lack the vendor's tool."""

ASKED_ELSEWHERE = "method"
"""Of what must match: a worker says its method in its first message, too, where it is compared."""

OF_THE_MACHINE = ("driver", "kernel")
"""Named beside stored times; but in one minute a machine has one of each, whatever runs in containers on it. An AMD
card is known by its PCI address only, which another machine's card has as well."""


def machine_differences(base: Ready, new: Ready) -> list[tuple[str, str, str]]:
    """Facts of the machine that keep the sides from being compared: (what, on the base side, here).

    A fact that one side could not find out is none of them where both name the same card: it is that card's fact.
    """
    return _hosts(base, new) + [fact for fact in _machine(base, new) if not _of_one_card(base, new, fact)]


def toolchain_changes(base: Ready, new: Ready) -> tuple[str, ...]:
    """What differs without keeping the sides from being compared, 'rocm: 6.4.4 -> 7.0.2', the base side first."""
    theirs, ours = base.fingerprint.named, new.fingerprint.named
    facts = [("harness", base.harness, new.harness)]
    keys = sorted((theirs.keys() | ours.keys()) - set(OF_THE_MACHINE))
    facts += [(key, theirs.get(key, ""), ours.get(key, "")) for key in keys]
    return _in_words(facts)


def unseen_facts(base: Ready, new: Ready) -> tuple[str, ...]:
    """What only one side could find out of the card, or the machine, that both are on; the base side first."""
    facts = [fact for fact in _machine(base, new) if _of_one_card(base, new, fact)]
    return _in_words([*facts, *(fact for fact in _named_of_machine(base, new) if not _known(fact))])


def said(value: str) -> str:
    """The value, or words where there is none."""
    return value or "not given"


def _in_words(facts: Sequence[tuple[str, str, str]]) -> tuple[str, ...]:
    return tuple(f"{what}: {said(there)} -> {said(here)}" for what, there, here in facts if there != here)


def _hosts(base: Ready, new: Ready) -> list[tuple[str, str, str]]:
    """What proves that the sides are on two machines. One that was started again is another: its clocks are."""
    facts = [("machine", base.host, new.host), *_named_of_machine(base, new)]
    return [fact for fact in facts if fact[1] != fact[2] and _known(fact)]


def _named_of_machine(base: Ready, new: Ready) -> list[tuple[str, str, str]]:
    theirs, ours = base.fingerprint.named, new.fingerprint.named
    return [(key, theirs.get(key, ""), ours.get(key, "")) for key in OF_THE_MACHINE]


def _known(fact: tuple[str, str, str]) -> bool:
    return all(value and not value.startswith(UNKNOWN) for value in fact[1:])


def _machine(base: Ready, new: Ready) -> list[tuple[str, str, str]]:
    theirs, ours = base.fingerprint.must_match, new.fingerprint.must_match
    keys = sorted((theirs.keys() | ours.keys()) - {ASKED_ELSEWHERE})
    facts = [(key, theirs.get(key, ""), ours.get(key, "")) for key in keys]
    return [(key, there, here) for key, there, here in facts if there != here]


def _of_one_card(base: Ready, new: Ready, fact: tuple[str, str, str]) -> bool:
    one_card = bool(base.device.device_id) and base.device.device_id == new.device.device_id
    return one_card and not _hosts(base, new) and any(value.startswith(UNKNOWN) for value in fact[1:])
