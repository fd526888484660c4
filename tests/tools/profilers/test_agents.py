from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.tools.profilers.agents import match_agents, parse_arch_version, read_agents
from pytest_attnperf.tools.profilers.csv_table import CsvTable
from pytest_attnperf.tools.profilers.reading import read_profile

COLUMNS = "Node_Id,Logical_Node_Id,Agent_Type,Cu_Count,Wave_Front_Size,Gfx_Target_Version,Max_Engine_Clk_Fcompute"
COLUMNS += ",Name,Product_Name"
ROWS = (
    "0,0,CPU,48,0,0,0,AMD Ryzen,AMD Ryzen",
    "2,1,GPU,304,64,90402,2100,gfx942,AMD Instinct MI300X",
    "5,2,GPU,40,32,110501,2900,,Radeon 8060S",
)


@pytest.mark.parametrize(
    ("version", "arch"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (90008, "gfx908"),
        (90006, "gfx906"),
        (90500, "gfx950"),
        (100300, "gfx1030"),
        (110000, "gfx1100"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
        (0, ""),
    ],
)
def test_architectures(version: int, arch: str) -> None:
    """Major is decimal, minor and step are one hexadecimal digit each."""
    assert parse_arch_version(version) == arch


@pytest.mark.parametrize(
    ("used", "named", "unknown"),
    [
        (["2", "5"], ["Agent 0", "2", "5"], ()),
        (["Agent 1", "Agent 2"], ["Agent 0", "Agent 1", "Agent 2"], ()),
        (["GPU 0", "CPU 0"], ["CPU 0", "GPU 0", "Agent 5"], ()),
        (["Agent 9", "7", "GPU 2", "?"], ["Agent 0", "Agent 2", "Agent 5"], ("7", "?", "Agent 9", "GPU 2")),
    ],
)
def test_names_of_every_version(tmp_path: Path, used: list[str], named: list[str], unknown: tuple[str, ...]) -> None:
    """A bare number is a node, 'Agent n' a logical node, 'GPU n' counts GPUs."""
    path = tmp_path / "a.csv"
    path.write_text("\n".join([COLUMNS, *ROWS]))
    with CsvTable(path) as table:
        agents, lost = match_agents(read_agents(table), used)
    assert [agent.name for agent in agents] == named
    assert lost == unknown
    assert [agent.arch for agent in agents] == ["", "gfx942", "gfx1151"]
    assert [agent.compute_units for agent in agents] == [None, 304, 40]
    assert [agent.wave_size for agent in agents] == [None, 64, 32]


def test_a_device_that_is_not_listed(tmp_path: Path) -> None:
    """Its time is used; that nothing is known of it is said."""
    (tmp_path / "a_agent_info.csv").write_text("\n".join([COLUMNS, *ROWS]))
    trace = "Kernel_Name,Agent_Id,Start_Timestamp,End_Timestamp\nflash,Agent 9,1,5\nflash,Agent 1,5,6\n"
    (tmp_path / "a_kernel_trace.csv").write_text(trace)
    profile = read_profile(tmp_path)
    assert profile.dispatches.total_ns == 5
    assert [str(problem) for problem in profile.problems] == [
        f"{tmp_path / 'a_agent_info.csv'}: has no device 'Agent 9', which dispatches name; it has: Agent 0, Agent 1, "
        "Agent 5; their times are used, their device is unknown"
    ]
