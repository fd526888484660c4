from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.records import DeviceInfo, Fingerprint, Role
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.interleave import PairLook, find_machine_differences, toolchain_changes, unseen_facts
from pytest_attnperf.workers.look import Ending, Look

CARD = DeviceInfo("rocm", "gfx942", "mi300x", device_id="0000:c1:00.0")
MACHINE = {"arch": "gfx942", "product": "mi300x", "compute_partition": "SPX", "power_cap_w": "750", "method": "1"}
RELEASE = {"rocm": "6.4.4", "torch": "2.7.1", "triton": "3.3.1", "driver": "6.14.5"}
UNKNOWN = "unknown (/sys/bus/pci/devices does not exist)"


def ready(machine: dict[str, str] | None = None, named: dict[str, str] | None = None, card: str = "") -> Ready:
    """What a worker says it runs on; the arguments change single facts."""
    fingerprint = Fingerprint({**MACHINE, **(machine or {})}, {**RELEASE, **(named or {})})
    device = replace(CARD, device_id=card) if card else CARD
    return Ready(1, Role.DEVICE, device, fingerprint, (), harness="0.1.0", method=1)


def test_the_same_image_on_both_sides_differs_in_nothing() -> None:
    """No difference of the machine and no change of the toolchain."""
    assert (find_machine_differences(ready(), ready()), toolchain_changes(ready(), ready())) == ([], ())
    assert unseen_facts(ready(), ready()) == ()


def test_releases_may_differ_and_are_named() -> None:
    """Another ROCm, torch and harness keep no pair from being compared; each is said, the base side's first."""
    new = replace(ready(named={"rocm": "7.0.2", "torch": "2.8.0"}), harness="0.2.0")
    assert find_machine_differences(ready(), new) == []
    assert toolchain_changes(ready(), new) == (
        "harness: 0.1.0 -> 0.2.0",
        "rocm: 6.4.4 -> 7.0.2",
        "torch: 2.7.1 -> 2.8.0",
    )


def test_what_only_one_side_has_is_said_in_words() -> None:
    """A release that brings a library which the other lacks."""
    assert toolchain_changes(ready(), ready(named={"aiter": "0.1.5"})) == ("aiter: not given -> 0.1.5",)


@pytest.mark.parametrize(
    ("field", "value"),
    [("arch", "gfx950"), ("product", "mi325x"), ("compute_partition", "CPX"), ("power_cap_w", "500")],
)
def test_the_machine_must_be_one(field: str, value: str) -> None:
    """Another architecture, product, partition or power cap is what the sides cannot be compared for."""
    assert find_machine_differences(ready(), ready({field: value})) == [(field, MACHINE[field], value)]
    assert toolchain_changes(ready(), ready({field: value})) == ()


def test_a_fact_that_one_container_cannot_see_is_the_card_s() -> None:
    """A power cap or driver that one side could not read is only said where both name the same card."""
    blind = ready({"power_cap_w": UNKNOWN}, {"driver": UNKNOWN})
    assert find_machine_differences(ready(), blind) == []
    assert toolchain_changes(ready(), blind) == ()
    assert unseen_facts(ready(), blind) == (f"power_cap_w: 750 -> {UNKNOWN}", f"driver: 6.14.5 -> {UNKNOWN}")


@pytest.mark.parametrize(("fact", "there", "here"), [("kernel", "6.8.0", "5.15.0"), ("driver", "6.14.5", "6.10.5")])
def test_two_machines_are_no_pair(fact: str, there: str, here: str) -> None:
    """Both may have a card at one PCI address; another kernel or driver is another machine, and hides no power cap."""
    base, new = ready(named={fact: there}), ready({"power_cap_w": UNKNOWN}, {fact: here})
    assert find_machine_differences(base, new) == [(fact, there, here), ("power_cap_w", "750", UNKNOWN)]
    assert (toolchain_changes(base, new), unseen_facts(base, new)) == ((), ())


def test_on_another_card_an_unknown_fact_counts() -> None:
    """Nothing then says that it is the same."""
    other = ready({"power_cap_w": UNKNOWN}, card="0000:c2:00.0")
    assert find_machine_differences(ready(), other) == [("power_cap_w", "750", UNKNOWN)]
    assert unseen_facts(ready(), other) == ()


def test_a_pair_says_what_it_compares() -> None:
    """The note of a pair across releases names both, and there is none within one; what is taken on trust is no
    release.
    """
    right = Look(Ending.RIGHT)
    note = PairLook(right, right, toolchain=("rocm: 6.4.4 -> 7.0.2",)).toolchain_note
    assert note == "toolchain, base side -> here: rocm: 6.4.4 -> 7.0.2: this compares the releases, too"
    assert PairLook(right, right).toolchain_note == ""
    trusted = PairLook(right, right, unseen=("power_cap_w: 750 -> unknown (x)",)).toolchain_note
    assert trusted == "not seen by both sides of the one card, base side -> here: power_cap_w: 750 -> unknown (x)"


def test_cards_of_one_address_on_two_machines_are_two() -> None:
    """Kernel, driver and PCI address may be the same; the machine that says its identity is known by that. One side
    that does not say, being an older harness, keeps nothing from being compared."""
    ours, theirs = replace(ready(), host="0a1b"), replace(ready(), host="9c8d")
    assert find_machine_differences(theirs, ours) == [("machine", "9c8d", "0a1b")]
    assert find_machine_differences(ours, ours) == find_machine_differences(ready(), ours) == []
