from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools.export.perfetto import render_trace
from tests.tools.profilers.page.samples import PROFILES
from tests.tools.profilers.test_trace_export import check_events


@pytest.mark.parametrize("name", ["rocprofv3_rocm70/kernel_trace.csv", "hip_rocm64/04_kernel_trace.csv"])
def test_a_profile_is_a_trace(name: str) -> None:
    """Kernels lie on threads by stream, in processes by device, with their durations, as a viewer needs them."""
    check_events(json.loads(render_trace(PROFILES / name))["traceEvents"])


def test_what_has_no_timeline_is_refused(tmp_path: Path) -> None:
    """Results, sums and other files are named, with the command that makes a trace."""
    json_results.write(tmp_path / "results.json", sample_run(1))
    with pytest.raises(
        AttnperfError, match=r"results\.json holds no timeline: .*: rocprofv3 --kernel-trace -- COMMAND"
    ):
        render_trace(tmp_path / "results.json")
    with pytest.raises(AttnperfError, match=r"stats\.csv holds no dispatch with a start time, only sums or counters"):
        render_trace(PROFILES / "rocprof_v1/whole_run.stats.csv")
    (tmp_path / "cut.json").write_bytes(b'{"traceEvents": [{"ph": "X", "ts"')
    with pytest.raises(AttnperfError, match=r"cut\.json"):
        render_trace(tmp_path / "cut.json")
    with pytest.raises(AttnperfError, match="does not exist"):
        render_trace(tmp_path / "none")
