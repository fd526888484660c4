"""Stored profiles of several profilers: where their dispatches ran, and that they are known as profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.tools.profilers.reading import is_profile, read_profile

PROFILES = Path(__file__).parents[2] / "data" / "profiles"


@pytest.mark.parametrize(
    ("path", "queues"),
    [
        ("rocprofv3_rocm70/kernel_trace.csv", {"stream 1", "stream 2", "stream 3", "stream 4"}),
        ("hip_rocm64/04_kernel_trace.csv", {"queue 1", "queue 2"}),
        ("rocprof_v1/results.csv", {"queue 0", "queue 1", "queue 2"}),
        ("public/a100_alexnet.json.gz", {"stream 7", "stream 20"}),
        ("public/mi300x_sglang_decode.json.gz", {"stream 2", "stream 3"}),
    ],
)
def test_dispatches_say_where_they_ran(path: str, queues: set[str]) -> None:
    """The stream, or else the queue, of each dispatch is known from every profiler's trace."""
    dispatches = read_profile(PROFILES / path).dispatches
    assert {dispatches.queues[queue] for queue in dispatches.queue} == queues


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("rocprofv3_rocm70/kernel_trace.csv", True),
        ("rocprof_v1/whole_run.stats.csv", True),
        ("public/a100_alexnet.json.gz", True),
        ("rocprofv3_rocm70", True),
        ("mi300a_rocm62/jacobi_agent_info.csv", False),
        ("headers.json", False),
        ("SOURCES.txt", False),
        ("absent", False),
    ],
)
def test_a_profile_is_known_from_its_content(path: str, expected: bool) -> None:
    """A file with times or a folder that holds one; a description of devices, other JSON and text are none."""
    assert is_profile(PROFILES / path) is expected


def test_what_cannot_be_read_is_no_profile(tmp_path: Path) -> None:
    """Bytes that are no text, an empty file and an empty folder."""
    (tmp_path / "x_kernel_trace.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.csv").write_text("")
    names = ("x_kernel_trace.csv", "empty.csv", ".")
    assert [is_profile(tmp_path / name) for name in names] == [False] * 3
