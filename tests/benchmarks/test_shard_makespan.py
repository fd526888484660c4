"""How close sharded runs come to the ideal time, as the program says it."""

from __future__ import annotations

import pytest

from benchmarks.shard_makespan import MOST_RATIO, draw_run, main, measure_ratio

RUN = draw_run(2000, 64, 1.5, 0.1, seed=0)


def test_64_shards_on_nodes_of_known_speed_are_within_15_per_cent() -> None:
    """2,000 cases on nodes of speed 1 to 1.5, whose seconds differ by 10 % from the stored ones."""
    assert measure_ratio(RUN, 64, known=True) <= MOST_RATIO


def test_eight_shards_per_node_need_no_speeds() -> None:
    """Where a queue hands them out. One per node waits for the slowest node."""
    assert measure_ratio(RUN, 512) <= MOST_RATIO < measure_ratio(RUN, 64)


def test_the_program_prints_a_row_for_each_way(capsys: pytest.CaptureFixture[str]) -> None:
    """And ends with 1 where the ratio is not reached, as with long starts."""
    assert main(["--draws", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("2000 cases on 64 nodes of speed 1 to 1.5, 1 draws")
    assert [line.split()[:3] for line in printed.splitlines()[3:]] == [
        ["known", "1", "64"],
        *(["unknown", str(number), str(64 * number)] for number in (1, 2, 4, 8)),
    ]
    assert main(["--draws", "1", "--cases", "200", "--nodes", "8", "--start-s", "60"]) == 1
