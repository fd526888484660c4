from __future__ import annotations

import pytest

from pytest_attnperf.errors import UnknownNameError, UsageError
from pytest_attnperf.records.profiles import Agent, KernelShape
from pytest_attnperf.tools.profilers.devices import apply_spec, find_agents_spec, find_named_spec
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.profile import Profile

MI300X = Agent("Agent 4", "gpu", "gfx942", "AMD Instinct MI300X", 304)


@pytest.mark.parametrize("name", ["MI300X", "mi300x", "AMD Instinct MI300X VF"])
def test_devices_are_found_by_name_and_by_product(name: str) -> None:
    """A device is named as people write it."""
    assert (find_named_spec(name).arch, find_named_spec(name).compute_units) == ("gfx942", 304)


def test_an_unknown_device_lists_what_is_known() -> None:
    """A name that is in no row is refused with all that are."""
    with pytest.raises(UnknownNameError, match=r"unknown device 'Titan V'; known: .*MI300X"):
        find_named_spec("Titan V")


def test_a_profile_is_of_the_device_that_its_gpus_are() -> None:
    """Equal GPUs give one row; CPUs do not count; unequal ones, a partition and a product without a row give none."""
    found = find_agents_spec(
        (MI300X, Agent("Agent 5", "gpu", "gfx942", "AMD Instinct MI300X", 304), Agent("Agent 0", "cpu"))
    )
    assert found is not None
    assert found.name == "MI300X"
    assert find_agents_spec((MI300X, Agent("Agent 5", "gpu", "gfx90a", "AMD Instinct MI210", 104))) is None
    assert find_agents_spec((Agent("Agent 4", "gpu", "gfx942", "AMD Instinct MI300X", 38),)) is None
    assert find_agents_spec(()) is None


def test_a_trace_alone_is_told_its_device() -> None:
    """A trace without agent_info names a number only: the user says what it is, and a file that says otherwise wins."""
    builder = DispatchesBuilder()
    builder.add(builder.number_of(KernelShape("flash", agent="Agent 4")), 0, 10)
    trace = Profile("trace", (), builder.build())
    assert apply_spec(trace, find_named_spec("MI300X")).agents == (Agent("Agent 4", "gpu", "gfx942", "MI300X", 304),)
    cpu = Agent("Agent 0", "cpu")
    beside = Profile("run", (), builder.build(), agents=(MI300X, cpu))
    assert apply_spec(beside, find_named_spec("MI300X")).agents == (MI300X, cpu)
    with pytest.raises(UsageError, match="--device MI210 is gfx90a, but the files say that 'Agent 4' is gfx942"):
        apply_spec(beside, find_named_spec("MI210"))
