"""Finds the row of the table of devices that a profile belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_attnperf.environment.device import gpu_product
from pytest_attnperf.environment.device_specs import DeviceSpec, all_specs, spec_for
from pytest_attnperf.errors import UnknownNameError, UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.profiles import Agent
from pytest_attnperf.tools.profilers.profile import Profile


def find_named_spec(name: str) -> DeviceSpec:
    """Returns the device table's row of a name or product, e.g. 'AMD Instinct MI300X VF'. Raises UnknownNameError if
    there is none."""
    for spec in all_specs():
        if name.lower() == spec.name.lower() or gpu_product(name) in spec.products:
            return spec
    raise UnknownNameError("device", name, [spec.name for spec in all_specs()])


def find_agents_spec(agents: Sequence[Agent]) -> DeviceSpec | None:
    """Returns the device table's row that fits all GPUs of a profile by arch, product and size; None if none does."""
    found = {
        spec_for(DeviceInfo("", agent.arch, gpu_product(agent.product), compute_units=agent.compute_units or 0))
        for agent in agents
        if agent.kind == "gpu"
    }
    return found.pop() if len(found) == 1 else None


def choose_spec(name: str, agents: Sequence[Agent]) -> DeviceSpec | None:
    """Returns the row of the device table for `name` or, if that is '', for the GPUs among `agents`; None if no row
    fits all of these. Raises UnknownNameError for an unknown `name`."""
    return find_named_spec(name) if name else find_agents_spec(agents)


def apply_spec(profile: Profile, spec: DeviceSpec) -> Profile:
    """Returns the profile with `spec` as the data of all its GPUs, because traces alone do not name their device.

    Raises UsageError if a file says that a GPU has another architecture."""
    known = {agent.name: agent for agent in profile.agents}
    names = dict.fromkeys(shape.agent for shape in profile.dispatches.shapes if shape.kind == "kernel")
    found = dict(known)
    for name in (*names, *(agent.name for agent in profile.agents if agent.kind == "gpu")):
        agent = known.get(name, Agent(name))
        if agent.arch and agent.arch != spec.arch:
            raise UsageError(
                f"--device {spec.name} is {spec.arch}, but the files say that {name!r} is {agent.arch}; give "
                "the name of the device that was profiled"
            )
        found[name] = replace(
            agent,
            arch=spec.arch,
            product=agent.product or spec.name,
            compute_units=agent.compute_units or spec.compute_units,
        )
    return replace(profile, agents=tuple(found.values()))
