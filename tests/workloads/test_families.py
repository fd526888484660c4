from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from pytest_attnperf.errors import UnknownNameError, UsageError, WorkloadError
from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.families import BUILT_IN, Families, Family, parse_workload, workloads_from_text
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.rope import Rope

PREFILL = Families().get("prefill")
SMALL = Prefill(1, 8, 4, 16, causal=True)
BACKWARD = Backward(1, 8, 4, 16, causal=True)
LONG = Prefill(2, 16, 4, 32, seq_kv=64, kv_heads=2, dtype="bf16", lse=True)


def test_an_id_finds_its_family() -> None:
    """The first word of an id says which family parses it."""
    assert parse_workload(SMALL.id) == SMALL
    assert parse_workload(BACKWARD.id) == BACKWARD


def test_an_unknown_family_lists_those_that_exist() -> None:
    """A family nobody registered is answered with those that are."""
    with pytest.raises(UnknownNameError, match=r"unknown family 'prefil'; known: .*prefill, "):
        parse_workload("prefil-b1-s8-h4-d16-f16")


def test_a_project_adds_its_own_family() -> None:
    """A registered family parses, in its own registry and in no other."""
    families = Families()
    families.add(Family("mine", lambda text: SMALL, lambda text: LONG))
    assert families.parse_workload("mine-x") == SMALL
    assert [family.name for family in families] == [*(family.name for family in BUILT_IN), "mine"]
    assert [family.name for family in Families()] == [family.name for family in BUILT_IN]


class Half(FamilyWorkload):
    """A class that lacks most of what a workload is."""

    grammar = dataclasses.replace(Rope.grammar, family="half")
    dtype = "f16"


def test_a_class_that_lacks_something_is_named_when_its_family_is_asked_for() -> None:
    """With what it does not give, and the file and line of the class; other families are as ever."""
    families = Families((Family.of(Half, "half of one"), PREFILL))
    assert families.parse_workload(SMALL.id) == SMALL
    line = Path(__file__).read_text().partition("class Half")[0].count("\n") + 1
    said = f"{__file__}:{line}: Half does not define bytes_min, flops, make_inputs, plain, reference; pytest_"
    with pytest.raises(UsageError, match=re.escape(said)):
        families.parse_workload("half-b1-s4-h1-d16-f16")


def test_why_a_family_has_no_triton_backend() -> None:
    """Its class says so, for messages; of a family that says nothing, or is none, there is nothing to add."""

    class Spin(Rope):
        grammar = dataclasses.replace(Rope.grammar, family="spin")
        NO_TRITON_YET = "its table does not fit"

    families = Families((Family.of(Spin, "rotation"), PREFILL))
    assert families.reason_no_triton("spin") == "; family spin has no Triton backend yet: its table does not fit"
    assert (families.reason_no_triton("prefill"), families.reason_no_triton("none")) == ("", "")


@pytest.mark.parametrize(("name", "message"), [("my-op", "one word without hyphens"), ("prefill", "registered twice")])
def test_a_family_name_is_one_new_word(name: str, message: str) -> None:
    """Ids are split at hyphens, so a name with one, like one that is taken, is refused."""
    with pytest.raises(UsageError, match=message):
        Families().add(Family(name, Prefill.parse, Prefill.parse_line))


@pytest.mark.parametrize("text", ["s=8,h=4,d=16,causal", SMALL.id])
def test_a_line_or_an_id_is_one_workload(text: str) -> None:
    """The command line takes a line of fields or an id."""
    assert workloads_from_text(text, PREFILL) == [SMALL]


FILES = {
    "header.csv": "b,s,kv,h,hk,d,dtype,causal,lse\n1,8,,4,,16,f16,1,0\n\n# long\n2,16,64,4,2,32,bf16,no,yes\n",
    "lines.csv": "s=8,h=4,d=16,causal\n'prefill'\n".replace("'prefill'", LONG.id),
    "window.csv": "s,kv,h,hk,d,w,b,dtype,causal,lse\n8,,4,,16,,1,f16,1,0\n16,64,4,2,32,0,2,bf16,no,yes\n",
    "quoted.csv": '"s=8,h=4,d=16,causal"\n"b=2,s=16,kv=64,h=4,hk=2,d=32,bf16,lse"\n',
    "mixed.jsonl": '{"s": 8, "h": 4, "d": 16, "causal": true, "kv": null}\n"' + LONG.id + '"\n',
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_files_hold_a_workload_per_line(name: str, tmp_path: Path) -> None:
    """CSV with or without a header and JSON lines of objects or strings give the same workloads."""
    path = tmp_path / name
    path.write_text(FILES[name], encoding="utf-8")
    assert workloads_from_text(str(path), PREFILL) == [SMALL, LONG]


BAD_FILES = [
    ("a.csv", "b,s,h,d\n1,8,4,16\n1,8,4\n", "a.csv, line 3: 3 cells under a header of 4 (b,s,h,d): '1,8,4'"),
    (
        "a.csv",
        "b,s,h,d,color\n1,8,4,16,red\n",
        "a.csv, line 2: prefill workload 'b=1,s=8,h=4,d=16,color=red' has an un",
    ),
    ("a.csv", "s=8,h=4,d=16\ns=8,h=4,d=0\n", "a.csv, line 2: prefill workload: head_dim must be a positive integer"),
    ("a.jsonl", '\n{"s": 8,\n', "a.jsonl, line 2: not JSON"),
    ("a.jsonl", "[1, 2]\n", "a.jsonl, line 1: expected an object of fields or a string, got '[1, 2]'"),
    ("a.jsonl", '{"s": 8.0, "h": 4, "d": 16}\n', "line 1: prefill workload 's=8.0,h=4,d=16': s must be a positive"),
    ("a.csv", "# nothing\n", "a.csv holds no workload"),
    ("a.csv", "b,s,h,d\n", "a.csv holds no workload"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES)
def test_a_bad_file_names_its_line(name: str, content: str, message: str, tmp_path: Path) -> None:
    """What is wrong in a file is said with its name and line number."""
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(WorkloadError, match=re.escape(message)):
        workloads_from_text(str(path), PREFILL)


def test_a_missing_file_is_not_read_as_a_line() -> None:
    """A path that does not exist is said to be one."""
    with pytest.raises(WorkloadError, match=r"the workload file shapes/none\.csv does not exist"):
        workloads_from_text("shapes/none.csv", PREFILL)
