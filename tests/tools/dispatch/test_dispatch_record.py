from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.dispatch.dispatch_record import SCHEMA, DispatchRecord, decode_record, make_record

Make = Callable[..., Any]


@pytest.fixture
def record(timed: Make, table: Make) -> DispatchRecord:
    """One backend to 512, the other at 1024; the other also in a second shape."""
    times = [timed("new", 1.0), timed("old", 2.0), timed("new", 1.5, seq=1024), timed("old", 1.0, seq=1024)]
    times.append(timed("old", 1.0, workload="prefill-b1-s64-h8-d64-f16-causal"))
    return make_record(table(times), ["H200"])


def test_record_holds_every_point(record: DispatchRecord) -> None:
    """Times, margins and intervals, nothing rounded or shortened."""
    group = record.groups[1]
    assert group.fields["head_dim"] == 256
    assert group.unmeasured_between == ((513, 1023),)
    assert [region.backend for region in group.regions] == ["new", "old"]
    point = group.regions[0].points[0]
    assert point.times_us == {"new": 1.0, "old": 2.0}
    assert (point.against, point.margin_percent, point.samples) == ("old", 100.0, True)
    assert point.interval95_percent is not None
    assert point.interval95_percent[0] < 100 < point.interval95_percent[1]
    assert {"family": "prefill", "dtype": "f16", "head_dim": 64, "batch": 4} in record.never_combined


def test_record_reads_back_as_it_was(record: DispatchRecord) -> None:
    """What is printed as JSON is the same record again."""
    assert decode_record(msgspec.json.encode(record), "d.json") == record
    assert json.loads(msgspec.json.encode(record))["schema"] == SCHEMA


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"schema": 1}', b"\xff", b"[" * 100_000])
def test_anything_else_is_refused(data: bytes) -> None:
    """The message names the file and what writes such a file."""
    with pytest.raises(UsageError, match=r"d\.json: is not what attnperf dispatch --json printed"):
        decode_record(data, "d.json")
