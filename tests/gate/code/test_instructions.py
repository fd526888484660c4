from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.gate.code.changes import find_worse_instructions
from pytest_attnperf.gate.code.code_policy import CodePolicy
from pytest_attnperf.gate.code.rules import Compared
from pytest_attnperf.records.code import CodeFinding, SourceLine
from tests.gate.code.compared_kernels import BASE, LOAD, LOOPS, WHERE, compared, with_counts


def found(pair: Compared, *, promised: bool = True) -> list[CodeFinding]:
    """What is worse."""
    return [one for one in find_worse_instructions(pair, promised=promised) if isinstance(one, CodeFinding)]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"global_load_16B": 0, "global_load_2B": 64},
            "global loads narrowed from 16 to 2 bytes per lane: global_load_16B 8 -> 0, global_load_2B 0 -> 64",
        ),
        (
            {"global_load_16B": 7, "global_load_4B": 4},
            "global loads narrowed from 16 to 11.6 bytes per lane: global_load_16B 8 -> 7, global_load_4B 0 -> 4",
        ),
        (
            {"global_store_4B": 0, "global_store_2B": 8},
            "global stores narrowed from 4 to 2 bytes per lane: global_store_4B 4 -> 0, global_store_2B 0 -> 8",
        ),
        (
            {"lds_read_16B": 0, "lds_read_8B": 64},
            "LDS reads narrowed from 16 to 8 bytes per lane: lds_read_16B 32 -> 0, lds_read_8B 0 -> 64",
        ),
        (
            {"lds_write_8B": 4, "lds_write_2B": 16},
            "LDS writes narrowed from 8 to 3.2 bytes per lane: lds_write_8B 8 -> 4, lds_write_2B 0 -> 16",
        ),
    ],
)
def test_narrower_loads_and_stores_are_found(changes: dict[str, int], text: str) -> None:
    """Each kind by itself, with the classes and their counts before and after; of LDS it is a warning."""
    (finding,) = found(compared(instructions=with_counts(**changes)))
    assert (finding.kind, finding.fails) == ("wider_loads", not text.startswith("LDS"))
    assert finding.text.startswith(text)
    assert finding.before.partition(" ")[2] == finding.after.partition(" ")[2]
    assert finding.before.partition(" bytes per ")[2] == text.partition("s narrowed")[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"global_load_16B": 4},
        {"global_load_4B": 6},
        {"global_load_16B": 0, "global_load_lds_16B": 8},
        {"global_load_16B": 0, "scalar_load": 8},
        {"global_load_16B": 16, "lds_read_16B": 64},
        {"global_load_16B": 0, "global_load_32B": 2, "global_load_8B": 4},
    ],
    ids=["fewer", "more narrow ones", "straight into LDS", "scalar", "unrolled", "equal mean"],
)
def test_loads_that_are_not_narrower_are_no_finding(changes: dict[str, int]) -> None:
    """Fewer loads, further narrow ones, or loads of another kind lose no width."""
    assert list(find_worse_instructions(compared(instructions=with_counts(**changes)), promised=True)) == []


def test_loads_that_narrow_inside_loops_only_warn() -> None:
    """Wide loads that moved out of the loop leave narrow ones in it: worth a look, and no proof."""
    (finding,) = found(compared(instructions=with_counts(global_load_2B=32), in_loops={**LOOPS, "global_load_16B": 0,
        "global_load_2B": 32}))  # fmt: skip
    assert (finding.kind, finding.fails) == ("wider_loads", False)
    assert finding.text.startswith(
        "global loads inside loops narrowed from 16 to 2 bytes per lane: global_load_16B 4 -> 0, global_load_2B 0 -> 32"
    )


@pytest.mark.parametrize("name", ["global_load", "global_load_tile"])
def test_loads_without_a_width_are_not_compared(name: str) -> None:
    """Where wide loads may have become tile loads, that cannot be told, and is said."""
    changed = with_counts(global_load_16B=0, global_load_2B=4, **{name: 4})
    (note,) = find_worse_instructions(compared(instructions=changed), promised=True)
    expected = f"global_load_16B 8 -> 0, global_load_2B 0 -> 4, {name} 0 -> 4"
    assert note == f"not compared: widths of global loads, some of which have no known width ({expected})"


def test_lost_matrix_instructions_fail_even_unpromised() -> None:
    """A kernel whose stored code had some and now has none fails; a promised one is the rules' own finding."""
    pair = compared(instructions=with_counts(matrix=0), in_loops={"global_load_16B": 4}, policy=CodePolicy(frozenset()))
    (finding,) = found(pair, promised=False)
    assert (finding.kind, finding.fails, finding.before) == ("matrix", True, "64 matrix instructions")
    assert finding.text.startswith("all 64 matrix instructions are gone; BLOCK_M 64 -> 128")
    assert found(pair, promised=True) == []


def test_fewer_matrix_instructions_inside_loops_warn() -> None:
    """They may have been unrolled away or moved; the counts inside loops and in all are both named."""
    (finding,) = found(compared(in_loops={**LOOPS, "matrix": 31}))
    assert (finding.kind, finding.fails) == ("matrix", False)
    assert finding.text.startswith("matrix instructions inside loops 32 -> 31 (in all 64 -> 64)")
    assert found(compared(instructions=with_counts(matrix=32))) == []


def test_a_narrowed_load_names_its_line() -> None:
    """The setting that changed and the line whose loads did stand behind the counts."""
    narrow = with_counts(global_load_16B=0, global_load_2B=64)
    line = SourceLine("prefill.py", 88, LOAD.text, {"global_load_2B": 64})
    (finding,) = found(compared(instructions=narrow, lines=(line,)))
    assert finding.text.endswith(
        f"; BLOCK_M 64 -> 128 in {WHERE}; prefill.py:88 `k = tl.load(k_ptrs)`: "
        "global_load_16B 8 -> 0, global_load_2B 0 -> 64"
    )


def test_a_narrow_class_that_shrank_is_no_loss_of_width() -> None:
    """Fewer of the narrowest and fewer still of the wide: only what is wider than the narrowest left counts."""
    old = replace(BASE, instructions=with_counts(global_load_2B=8), in_loops={})
    assert found(compared(old, instructions=with_counts(global_load_2B=4))) == []
    assert found(compared(old, instructions=with_counts(global_load_4B=99, global_load_2B=4))) == []
    (finding,) = found(compared(old, instructions=with_counts(global_load_16B=4, global_load_2B=8)))
    assert "global_load_16B 8 -> 4" in finding.text


def test_further_wide_loads_do_not_pay_for_narrow_ones() -> None:
    """The widest class grew, but 8-byte loads became 2-byte loads, and the mean fell."""
    old = replace(BASE, instructions=with_counts(global_load_8B=8), in_loops={})
    (finding,) = found(compared(old, instructions=with_counts(global_load_16B=9, global_load_2B=32)))
    assert finding.text.startswith("global loads narrowed from 12 to 5.07 bytes per lane: global_load_16B 8 -> 9, ")


@pytest.mark.parametrize("changes", [{"instructions": {}}, {"undecoded": "calls"}])
def test_a_candidate_that_was_not_decoded_is_not_compared(changes: dict[str, Any]) -> None:
    """What it lost cannot be told from what was not seen; the rules have already said so."""
    hidden = {"instructions": {"global_load_2B": 64}, "in_loops": {}, **changes}
    assert list(find_worse_instructions(compared(**hidden), promised=False)) == []
