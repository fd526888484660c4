"""Chrome traces of torch.profiler, whole, cut short and hostile; their form is that of torch 2.8 on an H200."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.records.profiles import Agent, KernelShape
from pytest_attnperf.tools.profilers import torch_events
from pytest_attnperf.tools.profilers.torch_events import own_times, read_chrome_trace

HEAD = '{"schemaVersion": 1, "cuda_driver_version": 13000, "deviceProperties": [%s], "traceEvents": [\n'
H200 = '{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "warpSize": 32, "numSms": 132}'
MI300X = '{"id": 3, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "warpSize": 64, "numSms": 304}'
FLASH = """{"ph": "X", "cat": "kernel", "name": "flash<\\"T\\", 128>", "pid": 0, "tid": 7, "ts": 1790857026000123.457,
 "dur": 21.345, "args": {"device": 0, "stream": 7, "registers per thread": 168, "shared memory": 49152,
 "grid": [4, 8, 2], "block": [128, 1, 1], "est. achieved occupancy %": 19.0}}"""
COPY = """{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": 7,
 "ts": 1790857026000100.001, "dur": 1.5, "args": {"device": 0, "bytes": 4096}}"""
SET = """{"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "ts": 1790857026000110, "dur": 2,
 "args": {"device": 0, "bytes": 128}}"""
LAUNCH = """{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 50.25,
 "dur": 3.001}"""
OPERATOR = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": 50.0, "dur": 5.0}'
OTHERS = '{"ph": "M", "name": "process_name"}, {"ph": "s", "cat": "ac2g", "ts": 1, "id": 3, "name": "ac2g"}, 17, null'


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Write a trace of some events, each as text."""

    def write(*events: str, devices: str = H200, name: str = "trace.json") -> Path:
        path = tmp_path / name
        path.write_text(HEAD % devices + ",\n".join(events) + "\n]}")
        return path

    return write


def test_a_trace_is_read(written: Callable[..., Path]) -> None:
    """Kernels, copies and sets as dispatches, host functions as rows, the device as agent; no nanosecond is lost."""
    found = read_chrome_trace(written(FLASH, LAUNCH, COPY, SET, OPERATOR, OTHERS))
    assert list(found.dispatches) == [
        (KernelShape("Memcpy HtoD (Pageable -> Device)", "copy", "0", bytes=4096), *_ns(100_001, 1500)),
        (KernelShape("Memset (Device)", "set", "0", bytes=128), *_ns(110_000, 2000)),
        (
            KernelShape('flash<"T", 128>', "kernel", "0", (128, 1, 1), (512, 8, 2), 49152, vgprs=168),
            *_ns(123_457, 21_345),
        ),
    ]
    assert [(row.domain, row.name, row.spread.calls, row.spread.total_ns) for row in found.stats] == [
        ("api", "cudaLaunchKernel", 1, 3001),
        ("api", "torch operator: aten::mm", 1, 1999),
    ]
    assert found.agents == (Agent("0", "gpu", "sm_90", "NVIDIA H200", 132, 32),)
    (source,) = found.sources
    assert (source.form, source.version, source.rows) == ("torch.profiler", "CUDA driver 13000", 5)
    assert (found.problems, len(found.notes)) == ((), 1)


def _ns(start: int, duration: int) -> tuple[int, int]:
    base = 1790857026000 * 1_000_000
    return base + start, base + start + duration


def test_a_packed_trace_is_the_same(written: Callable[..., Path], tmp_path: Path) -> None:
    """Whatever its name is."""
    plain = written(FLASH)
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(read_chrome_trace(packed).dispatches) == list(read_chrome_trace(plain).dispatches)
    packed.write_bytes(packed.read_bytes()[:60])
    with pytest.raises(ProfileError, match="the packed file is cut short"):
        read_chrome_trace(packed)
    packed.write_bytes(b"\x1f\x8b" + b"no gzip behind the magic number")
    with pytest.raises(ProfileError, match="cannot be read"):
        read_chrome_trace(packed)


def test_rocm(written: Callable[..., Path]) -> None:
    """Sizes that are missing are None; a major and a minor do not make an architecture of an AMD GPU."""
    kernel = '{"ph": "X", "cat": "kernel", "name": "attn_fwd.kd", "ts": 1.0, "dur": 7.25, "args": {"device": 3}}'
    launch = '{"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "ts": 0.5, "dur": 0.25}'
    found = read_chrome_trace(written(kernel, launch, devices=MI300X))
    assert list(found.dispatches) == [(KernelShape("attn_fwd.kd", agent="3"), 1000, 8250)]
    assert found.agents == (Agent("3", "gpu", "", "AMD Instinct MI300X", 304, 64),)
    assert [row.name for row in found.stats] == ["hipLaunchKernel"]
    named = MI300X.replace('"id"', '"gcnArchName": "gfx942:sramecc+:xnack-", "id"')
    assert read_chrome_trace(written(kernel, devices=named)).agents[0].arch == "gfx942"
    radeon = '{"id": 3, "name": "", "computeMajor": 11, "computeMinor": 0, "maxSharedMemoryPerMultiProcessor": 65536}'
    assert read_chrome_trace(written(kernel, devices=radeon)).agents[0].arch == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not whole JSON"),
        (HEAD % H200 + FLASH, "is not whole JSON .*; a trace is complete once export_chrome_trace has returned"),
        ('{"traceEvents": 17}', "has no list 'traceEvents'"),
        ('"traceEvents"', "has no list 'traceEvents'"),
        ("[" * 100_000, "is not whole JSON"),
        ("\x00\x01\x02", "is not whole JSON"),
        ('{"traceEvents": []}', "holds 0 events, and none of them is a kernel"),
        ('[{"cat": "kernel", "name": "k"}]', "holds 1 events.*1 events have no usable 'ts' or 'dur'"),
    ],
)
def test_what_cannot_be_used_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    """Naming the file, what was found, and what is expected."""
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=said) as caught:
        read_chrome_trace(path)
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_opened_or_is_too_large(
    written: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is of text, so that a small packed file cannot fill the memory."""
    with pytest.raises(ProfileError, match="is a folder; give a regular file"):
        read_chrome_trace(tmp_path)
    packed = tmp_path / "bomb.json.gz"
    packed.write_bytes(gzip.compress(b"[" + b" " * 100_000))
    monkeypatch.setattr(torch_events, "TEXT_BYTES_MOST", 1000)
    with pytest.raises(ProfileError, match="holds more than 1,000 bytes of text; profile fewer steps"):
        read_chrome_trace(packed)
    plain = tmp_path / "large.json"
    plain.write_bytes(b"[" + b" " * 1000)
    with pytest.raises(ProfileError, match="has 1,001 bytes; at most 1,000 are read; profile fewer steps"):
        read_chrome_trace(plain)


def test_hostile_events_are_counted_and_the_others_used(written: Callable[..., Path]) -> None:
    """Of each kind of nonsense the first is told; sizes that are none become None."""
    good = {"ph": "X", "cat": "kernel", "name": "good", "ts": 1, "dur": 2}
    huge = 10**400
    bad: list[Any] = [
        {**good, "dur": -1},
        {**good, "dur": 10**12},
        {**good, "ts": huge},
        {**good, "ts": "NaN"},
        {**good, "dur": float("inf")},
        {**good, "ts": [1]},
        {**good, "ts": True},
        {**good, "name": None},
        {**good, "name": {"x": 1}},
        {**good, "ph": "B"},
        {"cat": ["kernel"]},
    ]
    sizes = {"grid": [1, 2], "block": "xyz", "device": "0", "registers per thread": -4, "shared memory": huge}
    odd = {**good, "name": "\x1b[31m\ud800", "args": sizes}
    path = written(*map(json.dumps, [*bad, odd, {**good, "args": [1]}]))
    found = read_chrome_trace(path)
    assert [shape for shape, _, _ in found.dispatches] == [KernelShape("\x1b[31m\ud800"), KernelShape("good")]
    texts = [problem.text for problem in found.problems]
    assert [text.partition(",")[0] for text in texts] == [
        "5 events have no usable 'ts' or 'dur'",
        "2 events have a negative or impossible duration",
        "2 events have no name",
    ]
    assert all(problem.path == str(path) for problem in found.problems)
    assert any("whole microseconds" in note for note in found.notes)


def test_traces_of_old_releases_are_understood(written: Callable[..., Path]) -> None:
    """They wrote their categories otherwise, and no fractions."""
    events = [
        {"ph": "X", "cat": "Kernel", "name": "k", "ts": 5, "dur": 2},
        {"ph": "X", "cat": "Memcpy", "name": "Memcpy DtoD (Device -> Device)", "ts": 9, "dur": 1},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 1},
    ]
    found = read_chrome_trace(written(*map(json.dumps, events)))
    assert [shape.kind for shape, _, _ in found.dispatches] == ["kernel", "copy"]
    assert [row.name for row in found.stats] == ["cudaLaunchKernel"]


def test_a_trace_of_the_host_alone_says_so(written: Callable[..., Path]) -> None:
    """Rows of what it did, and a note that nothing of a GPU is there."""
    found = read_chrome_trace(written(OPERATOR))
    assert len(found.dispatches) == 0
    assert "no kernel, copy or memory set is in the trace: only host calls" in found.notes


def test_own_times_never_count_twice() -> None:
    """A call within a call within a call, one beside them, and one whose end lies behind that of its caller."""
    calls = [(0, 100, "a"), (10, 60, "b"), (20, 30, "c"), (60, 120, "d"), (200, 210, "a")]
    found = {name: list(times) for name, times in own_times([calls]).items()}
    assert found == {"a": [10, 10], "b": [40], "c": [10], "d": [60]}
