"""Reads rocprofv3's agent_info CSV: the devices of a profile, and which of them is 'Agent 4', '4' or 'GPU 0'."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_attnperf.records.profiles import Agent
from pytest_attnperf.tools.profilers.csv_table import CsvTable, parse_whole_number


@dataclass(frozen=True)
class AgentRow:
    """One row: a device, its node and its logical node. `of_kind` is its index among devices of its kind, from 0."""

    agent: Agent
    node: str
    logical: str
    of_kind: int


def read_agents(table: CsvTable) -> list[AgentRow]:
    """Returns every device of an agent_info CSV in the file's order, including CPUs."""
    found: list[AgentRow] = []
    for values in table:
        row = dict(zip(table.columns, values, strict=True))
        node = row["Node_Id"].strip()
        kind = row["Agent_Type"].strip().lower()
        gpu = kind == "gpu"
        agent = Agent(
            f"Agent {node}",
            kind=kind,
            arch=_read_arch(row),
            product=row.get("Product_Name", "").strip(),
            compute_units=_read_positive(row, "Cu_Count") if gpu else None,
            wave_size=_read_positive(row, "Wave_Front_Size"),
            # Max_Engine_Clk_Ccompute is the clock of the CPU cores
        )
        of_kind = sum(other.agent.kind == kind for other in found)
        found.append(AgentRow(agent, node, row.get("Logical_Node_Id", node).strip() or node, of_kind))
    return found


def parse_arch_version(version: int) -> str:
    """Returns the architecture of a Gfx_Target_Version: 90402 is gfx942, 90010 gfx90a, 110501 gfx1151; '' for 0."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}" if major else ""


def match_agents(rows: Sequence[AgentRow], used: Iterable[str]) -> tuple[tuple[Agent, ...], tuple[str, ...]]:
    """Returns all devices, renamed as dispatches name them (`used`), and the sorted names of `used` without a device.

    A bare number is a node, 'Agent n' a logical node, 'GPU n' counts GPUs, as rocprofv3's --agent-index defines."""
    names: dict[int, str] = {}
    unknown = []
    for name in sorted(set(used)):
        index = _find_row(rows, name)
        if index is None:
            unknown.append(name)
        else:
            names[index] = name
    agents = [dataclasses.replace(row.agent, name=names.get(at, row.agent.name)) for at, row in enumerate(rows)]
    return tuple(agents), tuple(unknown)


def _find_row(rows: Sequence[AgentRow], name: str) -> int | None:
    kind, _, number = name.rpartition(" ")
    if kind.lower() in ("gpu", "cpu"):
        keys = [(str(row.of_kind), row.agent.kind == kind.lower()) for row in rows]
    elif kind:
        keys = [(row.logical, True) for row in rows]
    else:
        keys = [(row.node, True) for row in rows]
    return next((at for at, key in enumerate(keys) if key == (number, True)), None)


def _read_arch(row: dict[str, str]) -> str:
    name = row.get("Name", "").strip()
    if re.fullmatch(r"gfx[0-9a-f]+", name):
        return name
    return parse_arch_version(parse_whole_number(row.get("Gfx_Target_Version", "").strip()) or 0)


def _read_positive(row: dict[str, str], column: str) -> int | None:
    return parse_whole_number(row.get(column, "").strip()) or None
