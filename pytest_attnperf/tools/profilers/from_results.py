"""Profiles that `pytest --attnperf --attnperf-profile` left in results.json, in the form that every reader gives."""

from __future__ import annotations

from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.profiles import Agent, CaseProfile, Source
from pytest_attnperf.results import CaseResult
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.profile import Profile


def profile_of_case(case: CaseResult, profile: CaseProfile, where: str, device: DeviceInfo | None = None) -> Profile:
    """One case's profile. Dispatches of a kernel stand one behind the other: when they began is not in the file.

    device   that the run measured on; it stands for the agents that the kernels name
    """
    builder = DispatchesBuilder()
    now = 0
    for kernel in profile.kernels:
        number = builder.number_of(kernel.shape)
        for duration in kernel.durations_ns:
            builder.add(number, now, now + duration)
            now += duration
    return Profile(
        name=f"{case.key}",
        sources=(Source(where, "torch.profiler", profile.device, len(builder)),),
        dispatches=builder.dispatches(),
        agents=_agents(profile, device),
        notes=(f"{profile.calls} calls behind the warm-up; the order of kernels within a call is not kept",),
    )


def _agents(profile: CaseProfile, device: DeviceInfo | None) -> tuple[Agent, ...]:
    if device is None or device.kind == "cpu":
        return ()
    names = dict.fromkeys(kernel.shape.agent for kernel in profile.kernels if kernel.shape.kind == "kernel")
    return tuple(
        Agent(name, "gpu", device.arch, device.name or device.product, device.compute_units or None) for name in names
    )
