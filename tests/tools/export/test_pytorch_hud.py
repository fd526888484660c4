"""What PyTorch HUD stores: records held against the published table, merged as its uploader merges them.

`oss_ci_benchmark_v3.sql` is the definition of the table. The uploader (.github/scripts/upload_benchmark_results.py)
takes an array or one object, needs `metric`, lays a record over the workflow's metadata, and fills in `runners` and
`dependencies` only where a record has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.export.pytorch_hud import render_hud
from tests.tools.export.export_samples import (
    DATA,
    HOSTILE,
    export,
    hostile_run,
    list_texts,
    mixed_run,
    read_strictly,
)

METADATA = {
    "timestamp": 1,
    "schema_version": "v3",
    "name": "a job",
    "repo": "o/r",
    "head_branch": "main",
    "head_sha": "a" * 40,
    "workflow_id": 1,
    "run_attempt": 1,
    "job_id": 1,
}
"""What the uploader requires of its caller."""

UPLOADERS = [{"name": "the machine that uploads"}]
Type = Any
"""A type of the table: 'String', ('Array', type), ('Map', type, type), or {field: type} of a tuple."""


def read_columns(sql: str) -> dict[str, Type]:
    """Column -> type of the table."""
    body = re.sub(r"--.*", "", sql).partition("(")[2]
    tokens = iter(re.findall(r"[`\w']+|[(),]", body.rpartition(") ENGINE")[0]))
    return dict(read_fields(tokens))


def read_fields(tokens: Iterator[str]) -> Iterator[tuple[str, Type]]:
    """'name Type [DEFAULT x],' up to a closing bracket."""
    for name in tokens:
        if name == ")":
            return
        if name == ",":
            continue
        kind, end = read_type(tokens)
        yield name.strip("`"), kind
        while end not in (",", ")"):
            end = next(tokens, ")")
        if end == ")":
            return


def read_type(tokens: Iterator[str]) -> tuple[Type, str]:
    """A type, and the token behind it."""
    kind = next(tokens)
    behind = next(tokens, ")")
    if behind != "(":
        return kind, behind
    if kind == "Tuple":
        return dict(read_fields(tokens)), next(tokens)
    inner, end = read_type(tokens)
    parts = [inner]
    while end == ",":
        inner, end = read_type(tokens)
        parts.append(inner)
    return (kind, *parts), next(tokens)


def check_value(value: Any, kind: Type, where: str) -> None:
    """Fails where a value cannot be stored in a column of this type."""
    if isinstance(kind, dict):
        assert isinstance(value, dict), where
        assert value.keys() <= kind.keys(), where
        for name, one in value.items():
            check_value(one, kind[name], f"{where}.{name}")
    elif isinstance(kind, tuple) and kind[0] == "Array":
        assert isinstance(value, list), where
        for one in value:
            check_value(one, kind[1], f"{where}[]")
    elif isinstance(kind, tuple):
        assert isinstance(value, dict), where
        for key, one in value.items():
            assert isinstance(key, str)
            check_value(one, kind[2], f"{where}{{{key[:20]}}}")
    elif kind == "String":
        assert isinstance(value, str), where
    elif kind == "Float32":
        assert isinstance(value, (int, float)), where
        assert abs(value) < 3.4e38, where
    else:
        assert kind in ("UInt32", "UInt64"), kind
        assert type(value) is int, where
        assert 0 <= value < 2 ** int(kind[4:]), where


COLUMNS = read_columns((DATA / "oss_ci_benchmark_v3.sql").read_text(encoding="utf-8"))


def upload(text: str) -> list[dict[str, Any]]:
    """The rows that a file becomes, each fit for the table."""
    found = read_strictly(text)
    rows = []
    for record in [found] if isinstance(found, dict) else found:
        assert "metric" in record
        row = {**METADATA, **record}
        row.setdefault("runners", UPLOADERS)
        row.setdefault("dependencies", {})
        check_value(row, COLUMNS, "row")
        rows.append(row)
    return rows


def test_the_table_is_read() -> None:
    """All columns of the published definition, down to the fields of nested tuples."""
    assert [*COLUMNS][-6:] == ["runners", "benchmark", "model", "inputs", "dependencies", "metric"]
    assert COLUMNS["job_id"] == "UInt64"
    assert COLUMNS["runners"][1]["avail_gpu_mem_in_gb"] == "UInt32"
    assert COLUMNS["inputs"] == ("Map", "String", {"dtype": "String", "extra_info": ("Map", "String", "String")})
    assert COLUMNS["metric"]["benchmark_values"] == ("Array", "Float32")


@pytest.mark.parametrize(
    "change", [{"metrics": {}}, {"metric": {"name": 1}}, {"metric": {"benchmark_values": "1"}}, {"job_id": -1}]
)
def test_another_row_is_refused(change: dict[str, Any]) -> None:
    """An unknown column, and values of another type."""
    with pytest.raises(AssertionError):
        check_value({**METADATA, **change}, COLUMNS, "row")


def test_its_own_sample_is_a_row_but_for_its_maps() -> None:
    """test-infra's sample has a boolean in a map of texts, and nothing else that these tests would refuse."""
    (record,) = read_strictly((DATA / "hud_record.json").read_text())
    info = record["benchmark"]["extra_info"]
    assert isinstance(info.pop("is_dynamic"), bool)
    check_value({**METADATA, **record}, COLUMNS, "row")


def test_each_metric_of_a_case_is_a_row() -> None:
    """latency_us has the median of every process; work, versions and the GPU that measured are beside it."""
    exported = export(mixed_run())
    rows = upload(render_hud(exported))
    assert [row["metric"]["name"] for row in rows] == ["latency_us", "tflops", "gb_per_s"] * 2
    slow, case = rows[3], exported.cases[1]
    assert slow["metric"]["benchmark_values"] == [process.median_us for process in case.case.second]
    assert slow["metric"]["extra_info"]["verdict"] == "SLOWER"
    assert slow["model"]["backend"] == case.case.key.backend
    assert slow["model"]["name"] == f"prefill/{case.case.key.workload}"
    assert slow["inputs"]["workload"]["extra_info"]["head_dim"].isdigit()
    assert slow["dependencies"]["torch"] == {"repo": "pytorch/pytorch", "version": "2.11.0"}
    (runner,) = slow["runners"]
    assert (runner["name"], runner["gpu_count"], runner["avail_gpu_mem_in_gb"]) == ("sm_90/sample", 1, 141)


def test_a_workflows_fields_are_left_to_the_uploader() -> None:
    """A record holds none of them: it would hide the uploader's."""
    assert not any(METADATA.keys() & record.keys() for record in read_strictly(render_hud(export(mixed_run()))))


def test_a_series_is_told_apart_by_case_device_and_metric() -> None:
    """Two devices in one file do not share a series."""
    rows = upload(render_hud(export(mixed_run(), mixed_run(device=None))))
    series = [
        (row["model"]["name"], row["model"]["backend"], str(row["runners"]), row["metric"]["name"]) for row in rows
    ]
    assert len({*series}) == len(series) == 12


def test_hostile_texts_are_rows() -> None:
    """Every text is one short line, and no number is beyond its column; cases stay apart."""
    rows = upload(render_hud(export(hostile_run())))
    assert all(text.isprintable() and len(text) <= 300 for text in list_texts(rows))
    latency = [row for row in rows if row["metric"]["name"] == "latency_us"]
    assert len({(row["model"]["name"], row["model"]["backend"]) for row in latency}) == len(HOSTILE)


def test_without_a_time_there_is_no_file() -> None:
    """An empty upload would pass for a run."""
    with pytest.raises(UsageError, match="no case of these results has a time to export, of 0;"):
        render_hud(export(mixed_run(cases=())))
