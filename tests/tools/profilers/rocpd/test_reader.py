"""A rocpd database gives what its rows say; rows that cannot be are left out and counted, and texts are only texts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.profiles import Agent, KernelShape, Spread, StatsRow
from pytest_attnperf.tools.profilers.profile import Profile
from tests.tools.profilers.rocpd_database import DISPATCH, A, B, Database

FLASH = KernelShape(
    name="flash(float*)",
    agent="Agent 1",
    workgroup=(256, 1, 1),
    grid_items=(65536, 2, 1),
    lds_bytes=33000,
    scratch_bytes=0,
    vgprs=96,
    accum_vgprs=0,
    sgprs=112,
)
HOSTILE = 'x"); DROP TABLE "rocpd_string"; -- \x1b[31m'


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """With the tables of one process, and no dispatch."""
    return Database(tmp_path / "4711_results.db")


def texts(profile: Profile) -> str:
    """All problems, a line each."""
    return "\n".join(map(str, profile.problems))


def test_dispatches_have_names_sizes_and_registers(database: Database) -> None:
    """A dispatch has its kernel's shown name and registers, its own LDS and sizes, and its times, in their order."""
    database.dispatch(500, 560)
    database.dispatch(100, 130)
    database.dispatch(200, 245, group_segment_size=0)
    profile = database.read()
    small = KernelShape(**{**FLASH.__dict__, "lds_bytes": 0})
    assert list(profile.dispatches) == [(FLASH, 100, 130), (small, 200, 245), (FLASH, 500, 560)]
    assert (profile.name, profile.sources[0].form, profile.sources[0].rows) == ("4711", "rocpd", 3)
    assert "3" in profile.sources[0].version
    assert profile.problems == ()


def test_agents_are_named_as_in_csv_files(database: Database) -> None:
    """Agents have their logical index, as rocprofv3's CSV files have, and what their JSON says."""
    database.dispatch(1, 2)
    cpu, gpu = database.read().agents
    assert gpu == Agent("Agent 1", "gpu", "gfx942", "AMD Instinct MI300X", 304, 64)
    assert cpu == Agent("Agent 0", "cpu", "", "EPYC", None, 64)


def test_agents_whose_json_is_broken_remain(database: Database) -> None:
    """JSON that is none, or nests too deeply, costs its figures and nothing else."""
    database.dispatch(1, 2)
    database.connection.execute(f'UPDATE "rocpd_info_agent{A}" SET extdata = ? WHERE id = 4', ("[" * 100_000,))
    database.connection.execute(f'UPDATE "rocpd_info_agent{A}" SET extdata = ? WHERE id = 0', (b"\x04\x22",))
    assert [(agent.arch, agent.compute_units) for agent in database.read().agents] == [("", None), ("gfx942", None)]


def test_copies_have_direction_bytes_and_gpu(database: Database) -> None:
    """A copy is named by its direction and has the bytes and the GPU that it went to or came from."""
    one = {"nid": 5, "pid": 11, "name_id": 2, "size": 4096}
    database.add("memory_copy", **one, start=10, end=30, dst_agent_id=4, src_agent_id=0)
    database.add("memory_copy", **one, start=40, end=45, dst_agent_id=0, src_agent_id=4)
    profile = database.read()
    copy = KernelShape("MEMORY_COPY_HOST_TO_DEVICE", "copy", agent="Agent 1", bytes=4096)
    assert list(profile.dispatches) == [(copy, 10, 30), (copy, 40, 45)]
    assert "--kernel-trace" in profile.notes[0]


def test_calls_are_summed_by_name(database: Database) -> None:
    """Calls of APIs are added up by name; ranges of roctx are none, and nested APIs are said not to add up."""
    for event, category in enumerate((3, 3, 6, 5), 1):
        database.add("event", id=event, category_id=category)
    rows = ((4, 10, 30), (4, 50, 55), (7, 12, 20), (4, 0, 10**6), (4, 9, 5))
    for event, (name, start, end) in enumerate(rows, 1):
        row = {"nid": 5, "pid": 11, "tid": 1, "name_id": name, "event_id": event}
        database.add("region", **row, start=start, end=end)
    profile = database.read()
    assert profile.stats == (
        StatsRow("api", "hipLaunchKernel", Spread(2, 25, min_ns=5, max_ns=20)),
        StatsRow("api", "hsa_signal_wait", Spread(1, 8, min_ns=8, max_ns=8)),
    )
    assert any("do not add up" in note for note in profile.notes)
    assert "1 calls of hipLaunchKernel end before they start" in texts(profile)


def test_counters_are_medians_over_dispatches(database: Database) -> None:
    """Instances of one dispatch are added up, dispatches give the median, and times are said to be of a serial run."""
    database.add("info_pmc", id=90, nid=5, pid=11, name="SQ_WAVES", symbol="SQ_WAVES")
    for start, values in ((1, (10.0, 15.0)), (2, (20.0,)), (3, (700.0,))):
        database.dispatch(start, start + 1)
        for value in values:
            database.add("pmc_event", event_id=start, pmc_id=90, value=value)
    database.add("pmc_event", event_id=1, pmc_id=90, value="many")
    database.add("pmc_event", event_id=99, pmc_id=90, value=1.0)
    profile = database.read()
    assert profile.counters == (KernelCounter("flash", 65536 * 2, "SQ_WAVES", 25.0, 3),)
    assert "one at a time" in profile.notes[0]
    assert "1 values of counters are no numbers" in texts(profile)


def test_samples_in_time_and_replays_are_left_out(database: Database) -> None:
    """Schema 3.0.3's streamed samples are no counters of a dispatch; replays for further counters take no time."""
    database.run('ALTER TABLE "rocpd_pmc_event{A}" ADD COLUMN "sample_id" INTEGER')
    database.run('ALTER TABLE "rocpd_kernel_dispatch{A}" ADD COLUMN "replay_pass" INTEGER')
    database.add("info_pmc", id=90, nid=5, pid=11, name="SQ_WAVES", symbol="SQ_WAVES")
    database.dispatch(1, 2, replay_pass=0)
    database.dispatch(3, 9, replay_pass=1)
    database.dispatch(10, 11)
    database.add("pmc_event", event_id=1, pmc_id=90, value=8.0)
    database.add("pmc_event", event_id=1, pmc_id=90, value=100.0, sample_id=6)
    profile = database.read()
    assert [start for _, start, _ in profile.dispatches] == [1, 10]
    assert [counter.median for counter in profile.counters] == [8.0]
    assert any("1 dispatches are replays" in note for note in profile.notes)


def test_processes_of_one_run_are_used_together(database: Database) -> None:
    """Two processes that lived at one time are one run, each with its own kernels and strings, as a note says."""
    database.process(B, pid=12, alive=5 * 10**8)
    database.run(f"UPDATE \"rocpd_info_kernel_symbol{B}\" SET display_name = 'other'")
    database.dispatch(10, 20)
    database.dispatch(15, 18, B)
    profile = database.read()
    assert [(shape.name, start) for shape, start, _ in profile.dispatches] == [("flash(float*)", 10), ("other", 15)]
    assert len(profile.agents) == 2
    assert "2 processes" in profile.notes[0]
    assert "11, 12" in profile.notes[0]


@pytest.mark.parametrize("other", [{"alive": 2 * 10**9}, {"machine": "m2"}], ids=["later", "another machine"])
def test_another_run_is_left_out(database: Database, other: dict[str, Any]) -> None:
    """Of two runs, or of two machines whose clocks differ, the one with the most dispatches is used, and both named."""
    database.process(B, pid=12, **other)
    for start in (1, 2):
        database.dispatch(start, start + 1, B)
    database.dispatch(100, 200)
    profile = database.read()
    assert profile.dispatches.total_ns == 2
    assert "processes 11 belong to another run" in texts(profile)


def test_views_are_not_needed_and_not_used(database: Database) -> None:
    """A view with a table's plain name that says otherwise changes nothing."""
    database.dispatch(1, 2)
    database.run("CREATE VIEW rocpd_kernel_dispatch AS SELECT 1 AS kernel_id, 5 AS start, 9 AS end")
    profile = database.read()
    assert profile.dispatches.total_ns == 1
    assert profile.problems == ()


def test_hostile_strings_are_only_strings(database: Database) -> None:
    """A kernel called like a statement is a name, as is one that is no UTF-8; a table called so is passed over."""
    database.connection.execute(f'UPDATE "rocpd_info_kernel_symbol{A}" SET display_name = ?', (HOSTILE,))
    quoted = HOSTILE.replace('"', '""')
    database.run(f'CREATE TABLE "rocpd_kernel_dispatch_{quoted}" ("start" INTEGER)')
    symbol = "id, nid, pid, code_object_id, display_name"
    database.run(
        f"INSERT INTO \"rocpd_info_kernel_symbol{{A}}\" ({symbol}) VALUES (8, 5, 11, 1, CAST(x'66ff' AS TEXT))"
    )
    database.dispatch(1, 2)
    database.dispatch(3, 4, kernel_id=8)
    profile = database.read()
    assert [shape.name for shape in profile.dispatches.shapes] == [HOSTILE, "f\ufffd"]
    assert profile.problems == ()


def test_nothing_private_is_in_the_profile(database: Database) -> None:
    """The environment, which rocprofv3 stores whole, is in no part of what is read."""
    database.dispatch(1, 2)
    assert "secret" not in repr(database.read())


def test_names_that_are_not_there(database: Database) -> None:
    """NULL names fall back to the mangled name and then to the number; kernels and agents not listed are said."""
    database.run('UPDATE "rocpd_info_kernel_symbol{A}" SET display_name = NULL')
    database.dispatch(1, 2)
    database.dispatch(3, 4, kernel_id=8)
    database.dispatch(5, 6, agent_id=9)
    profile = database.read()
    assert [(shape.name, shape.agent) for shape in profile.dispatches.shapes] == [
        ("_Z5flashPf.kd", "Agent 1"),
        ("kernel 8", "Agent 1"),
        ("_Z5flashPf.kd", ""),
    ]
    assert "kernel 8 has no name in rocpd_info_kernel_symbol" in texts(profile)
    assert "agent 9 of dispatches is not in rocpd_info_agent" in texts(profile)


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (9, 5, "end before they start, the first of them id 1: start 9, end 5"),
        (0, 0, "have no times"),
        ("soon", 5, "no whole number"),
        (1, 2.5, "no whole"),
        (0, 9 * 10**17, "take more than a day"),
    ],
)
def test_times_that_cannot_be(database: Database, start: object, end: object, said: str) -> None:
    """A dispatch that ends before it starts, takes days, or has no times is left out, counted, and said with its id."""
    database.dispatch(start, end)
    database.dispatch(10, 12)
    profile = database.read()
    assert profile.dispatches.total_ns == 2
    assert f"1 of 2 dispatches {said}" in texts(profile) or said in texts(profile)


def test_missing_columns(database: Database) -> None:
    """Sizes that a table lacks are unknown; without times its rows are not used, and the columns there are named."""
    database.run('ALTER TABLE "rocpd_kernel_dispatch{A}" DROP COLUMN "group_segment_size"')
    database.run('ALTER TABLE "rocpd_memory_copy{A}" DROP COLUMN "end"')
    database.run('DROP TABLE "rocpd_region{A}"')
    row = {name: value for name, value in DISPATCH.items() if name != "group_segment_size"}
    database.add("kernel_dispatch", **row, dispatch_id=1, start=1, end=2)
    profile = database.read()
    assert [(shape.lds_bytes, shape.vgprs) for shape in profile.dispatches.shapes] == [(None, 96)]
    assert "rocpd_memory_copy has no column end; it has: " in texts(profile)
    assert f"there is no table rocpd_region{A}" in texts(profile)


@pytest.mark.parametrize(("lacks", "queue"), [("dispatch_id", "stream 1"), ("stream_id", "queue 1")])
def test_dispatches_say_where_they_ran(database: Database, lacks: str, queue: str) -> None:
    """A dispatch has the number of its stream; where the table has none, that of its queue."""
    database.dispatch(10, 12)
    database.run(f'ALTER TABLE "rocpd_kernel_dispatch{{A}}" DROP COLUMN "{lacks}"')
    assert database.read().dispatches.queues == ("", queue)


def test_empty_tables(database: Database) -> None:
    """A database without a row to use is refused, with the options that record one."""
    with pytest.raises(ProfileError, match=r"holds no kernel dispatch, .*--kernel-trace"):
        database.read()


def test_time_grows_with_rows_only(database: Database) -> None:
    """60,000 dispatches with as many calls take far less than a second and a half each way."""
    columns = ", ".join(f'"{name}"' for name in DISPATCH)
    values = ", ".join(str(value) for value in DISPATCH.values())
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)"
    database.run(
        f'{rows} INSERT INTO "rocpd_kernel_dispatch{A}" ({columns}, dispatch_id, event_id, "start", "end") '
        f"SELECT {values}, i, i, i * 100, i * 100 + i % 90 FROM n"
    )
    database.run(f'{rows} INSERT INTO "rocpd_event{A}" (id, category_id) SELECT i, 3 FROM n')
    database.run(
        f'{rows} INSERT INTO "rocpd_region{A}" (nid, pid, tid, "start", "end", name_id, event_id) '
        "SELECT 5, 11, 1, i, i + 2, 4, i FROM n"
    )
    before = time.perf_counter()
    profile = database.read()
    assert time.perf_counter() - before < 3
    assert (len(profile.dispatches), profile.stats[0].spread.calls) == (60000, 60000)
