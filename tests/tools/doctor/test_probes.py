from __future__ import annotations

from typing import Any

from pytest_attnperf.tools.doctor import probes
from pytest_attnperf.tools.doctor.engine import run_probes
from pytest_attnperf.tools.doctor.probes import PROBES, Status

LIMIT_WITH_GPU_S = 75.0


def test_names_are_unique_and_one_may_be_left_out() -> None:
    """No two probes share a name, and the one that --quick leaves out is among them."""
    names = [probe.name for probe in PROBES]
    assert len(set(names)) == len(names)
    assert probes.NOISE in names


def test_only_what_measures_takes_long() -> None:
    """The noise test ends within the minute and a bit that is promised, and only what times is run by itself."""
    alone = {probe.name: probe.limit_s for probe in PROBES if probe.alone}
    assert alone.keys() == {"graph self-test", probes.NOISE}
    assert alone[probes.NOISE] < LIMIT_WITH_GPU_S


def test_processes_of_a_gpu_are_looked_at_before_any_is_ours() -> None:
    """The probe of other processes comes first: in a container the numbers of ours may not be known for ours."""
    assert [probe.name for probe in PROBES if probe.first] == ["GPU processes"]


def test_every_probe_answers_on_an_empty_machine(make_here: Any) -> None:
    """On a machine without /proc, /sys and /dev no probe hangs; what cannot be read is UNKNOWN; names are unique."""
    quick = [probe for probe in PROBES if probe.name != "torch device"]
    report = run_probes(quick, make_here())
    unknown = {finding.name for finding in report.findings if finding.status is Status.UNKNOWN}
    assert unknown <= {"cpu"}
    names = [finding.name for finding in report.findings]
    assert len(set(names)) == len(names)
    assert report.not_run == ("partitions", "power", "GPU processes", "noise")
