"""Traces as a viewer reads them: types, nesting and order of the Trace Event Format."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.profiles import Agent, Spread, StatsRow
from pytest_attnperf.tools.profilers.analysed_profile import AnalysedProfile
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.profile_summary import analyse_profile
from pytest_attnperf.tools.profilers.trace_export import list_events, write_trace
from tests.tools.profilers.page.samples import HOSTILE, REAL, make_analysed, make_network, read_analysed

Event = Mapping[str, Any]


def refuse_constant(text: str) -> None:
    """NaN and Infinity are no JSON."""
    raise ValueError(text)


def read_trace(path: Path) -> Mapping[str, Any]:
    """A trace as a viewer decodes it: strict UTF-8 and strict JSON."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.name.endswith(".gz") else data).decode("utf-8", "strict")
    found = json.loads(text, parse_constant=refuse_constant)
    assert isinstance(found, dict)
    return found


def check_events(events: Sequence[Event]) -> None:
    """Fails where events break the format: names and types of fields, finite times, order, names of what is used."""
    threads, processes = set(), set()
    for event in events:
        assert event["ph"] in ("M", "X")
        assert isinstance(event["name"], str)
        assert event["name"]
        assert all(isinstance(event[field], int) and event[field] >= 0 for field in ("pid", "tid"))
        assert isinstance(event["args"], dict)
        assert all(
            isinstance(event[field], (int, float)) for field in ("ts", *(("dur",) if event["ph"] == "X" else ()))
        )
        if event["ph"] == "X":
            assert math.isfinite(event["ts"])
            assert event["ts"] >= 0
            assert math.isfinite(event["dur"])
            assert event["dur"] >= 0
            assert isinstance(event["cat"], str)
            assert event["cat"]
            assert "," not in event["cat"]
        elif event["name"] == "thread_name":
            threads.add((event["pid"], event["tid"]))
        elif event["name"] == "process_name":
            processes.add(event["pid"])
    shown = [event for event in events if event["ph"] == "X"]
    assert {(event["pid"], event["tid"]) for event in shown} == threads
    assert {event["pid"] for event in shown} == processes
    assert len({thread for _, thread in threads}) == len(threads)
    assert [event["ts"] for event in shown] == sorted(event["ts"] for event in shown)
    check_nesting(shown)


def check_nesting(events: Sequence[Event]) -> None:
    """Fails where two events of a thread overlap in part: the one that begins later must end first, or begin later."""
    by_thread = defaultdict(list)
    for event in events:
        by_thread[event["tid"]].append((round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)))
    for spans in by_thread.values():
        around: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while around and around[-1] <= start:
                around.pop()
            assert not around or end <= around[-1]
            around.append(end)


@pytest.mark.parametrize("name", REAL[:-1])
def test_real_profiles_are_traces(name: str, tmp_path: Path) -> None:
    """Each stored trace is written whole: every dispatch once, by start, on the thread of its stream."""
    analysed = read_analysed(name)
    count = write_trace(tmp_path / "t.json", analysed)
    events = read_trace(tmp_path / "t.json")["traceEvents"]
    check_events(events)
    work = [event for event in events if event["ph"] == "X" and event["cat"] != "pass"]
    assert len(work) == count == len(analysed.profile.dispatches)
    assert sum(round(event["dur"] * 1000) for event in work) == analysed.profile.dispatches.total_ns


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(HOSTILE), st.sampled_from(["0", "1"]), st.sampled_from(["", "s 1", "s 2"]),
            st.integers(0, 50), st.integers(0, 20),
        ),
        min_size=1, max_size=30,
    )
)  # fmt: skip
def test_overlapping_work_gets_further_threads(drawn: list[tuple[str, str, str, int, int]]) -> None:
    """However streams overlap, no thread has events that overlap in part, and nothing is lost."""
    analysed = make_analysed([(name, agent, queue, at, at + length) for name, agent, queue, at, length in drawn])
    events = list(list_events(analysed))
    check_events(events)
    work = [event for event in events if event["ph"] == "X" and event["cat"] != "pass"]
    assert len(work) == len(drawn)


def test_passes_are_a_track_above_the_streams() -> None:
    """A thread 'passes' is first of its device, and holds each pass around its dispatches."""
    analysed = make_network(passes=4)
    events = list(list_events(analysed))
    (named,) = [event for event in events if event["name"] == "thread_name" and event["args"]["name"] == "passes"]
    (order,) = [one for one in events if one["name"] == "thread_sort_index" and one["tid"] == named["tid"]]
    assert order["args"]["sort_index"] == 0
    passes = [event for event in events if event.get("cat") == "pass"]
    assert [one["name"] for one in passes] == ["pass 1", "pass 2", "pass 3", "pass 4"]
    assert [one["args"]["dispatches"] for one in passes] == [11] * 4
    assert (passes[1]["ts"], passes[1]["dur"]) == (33.1, 23.0)


def test_devices_streams_and_families_have_names() -> None:
    """A process is called by its device, a thread by its stream, an event's category is its family."""
    rows = [
        ("flash_attention", "8", "stream 3", 0, 5),
        ("Cijk_HB", "9", "stream 3", 1, 4),
        ("flash_attention", "8", "stream 3", 2, 9),
    ]
    analysed = make_analysed(rows)
    profile = replace(analysed.profile, agents=(Agent("8", arch="gfx942", product="MI300X"),))
    events = list(list_events(replace(analysed, profile=profile)))
    names = [event["args"]["name"] for event in events if event["name"] in ("process_name", "thread_name")]
    assert names == ["GPU 8: MI300X gfx942", "GPU 9", "stream 3", "stream 3", "stream 3 (2)"]
    assert [event["cat"] for event in events if event["ph"] == "X"] == ["attention", "GEMM", "attention"]


def test_an_event_says_what_is_known_of_a_launch() -> None:
    """Sizes, resources, and medians of counters of the kernel; a counter that is no number is left out."""
    analysed = read_analysed("rocprofv3_rocm70/kernel_trace.csv")
    name = analysed.profile.dispatches.shapes[0].name.partition("(")[0].removeprefix("void ")
    plain = name.partition("<")[0]
    counters = tuple(
        KernelCounter(one, None, "SQ_WAVES", value, 3) for one in (name, plain) for value in (64.0, math.nan)
    )
    events = list(list_events(replace(analysed, summary=replace(analysed.summary, counters=counters))))
    args = next(event["args"] for event in events if event["ph"] == "X")
    assert args["workgroup"] == "64"
    assert {"LDS bytes", "VGPRs", "SGPRs", "workgroups"} <= args.keys()
    assert args["SQ_WAVES, median of 3"] == 64.0


def test_long_names_are_cut_and_told_apart(tmp_path: Path) -> None:
    """Names of 2,000 characters that differ at the end have different events; the whole names stand once."""
    analysed = make_analysed([(name, "0", "s", 10 * at, 10 * at + 5) for at, name in enumerate(HOSTILE)])
    write_trace(tmp_path / "t.json", analysed)
    trace = read_trace(tmp_path / "t.json")
    names = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(set(names)) == len(set(HOSTILE))
    assert max(map(len, names)) <= 160
    assert any(len(name) > 2000 for name in trace["otherData"]["full names"].values())


def test_a_packed_trace_is_the_same(tmp_path: Path) -> None:
    """A name that ends in .gz gives the packed text; the same profile gives the same bytes."""
    analysed = make_network()
    for name in ("a.json", "a.json.gz", "b.JSON.GZ"):
        write_trace(tmp_path / name, analysed)
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == (tmp_path / "a.json").read_bytes()
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.JSON.GZ").read_bytes()


def stats_only() -> AnalysedProfile:
    """A profile of sums."""
    return analyse_profile(Profile("sums", (), stats=(StatsRow("kernel", "k", Spread(2, 20)),)))


@pytest.mark.parametrize(
    ("name", "analysed", "said"),
    [
        ("trace.txt", make_network(), r"--trace .*trace.txt: the name must end in \.json or \.json\.gz"),
        ("trace.json", stats_only(), "sums holds no dispatch with a start time, only sums or counters; give a kernel"),
    ],
)
def test_what_cannot_be_written_is_refused(name: str, analysed: AnalysedProfile, said: str, tmp_path: Path) -> None:
    """Another ending, and a profile without start times; no file is left."""
    with pytest.raises(UsageError, match=said):
        write_trace(tmp_path / name, analysed)
    assert list(tmp_path.iterdir()) == []


def test_many_launches_are_written(tmp_path: Path) -> None:
    """200,000 dispatches on eight streams are a trace that a viewer accepts, of a few megabytes if packed."""
    rows = [
        (f"k{(n * 2654435761 >> 7) % 499}", f"{n % 2}", f"stream {n % 4}", 700 * n, 700 * n + 900 * (n % 5))
        for n in range(200_000)
    ]
    assert write_trace(tmp_path / "t.json.gz", make_analysed(rows)) == 200_000
    check_events(read_trace(tmp_path / "t.json.gz")["traceEvents"])
    assert (tmp_path / "t.json.gz").stat().st_size < 8_000_000
