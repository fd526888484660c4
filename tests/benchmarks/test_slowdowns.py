"""Edits that make our kernels slower: each applies to the tree as it is, is not compiled away, and keeps results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.slowdowns import EDITS, ROOT, Edit, environment, make_tree
from pytest_attnperf.workloads.families import parse_workload

PROGRAM = Path(__file__).with_name("run_edited.py")
GROUPS = {
    "instructions": [edit for edit in EDITS.values() if edit.kind == "extra_instruction"],
    "tiles": [edit for edit in EDITS.values() if edit.kind == "smaller_tile"],
    "loads": [edit for edit in EDITS.values() if edit.kind == "lost_vector_load"],
}
"""Edits of one tree: no two of them change the same kernel's build."""


def asked(folder: Path, what: str, trees: Mapping[Path, list[str]], **environ: str) -> Any:
    """What `run_edited.py` finds."""
    named = {str(tree.resolve()): sorted(set(names)) for tree, names in trees.items()}
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), what, json.dumps(named)],
        env=environment(folder, os.environ) | environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A clean tree and one of each group, every edit at its weakest."""
    folder = tmp_path_factory.mktemp("edited")
    edited = {
        name: make_tree(folder / name, {edit.name: edit.strengths[0] for edit in edits})
        for name, edits in GROUPS.items()
    }
    return {"clean": make_tree(folder / "clean"), **edited}


@pytest.mark.parametrize("edit", EDITS.values(), ids=lambda edit: edit.name)
def test_an_edit_applies_to_the_tree(edit: Edit) -> None:
    """At every strength its old text is in the file once, strengths differ, and its cases are cases."""
    source = (ROOT / edit.file).read_text()
    texts = {edit.applied(source, strength) for strength in edit.strengths}
    assert source not in texts
    assert len(texts) == len(edit.strengths)
    assert list(edit.strengths) == sorted(edit.strengths) or edit.kind == "smaller_tile"
    assert [parse_workload(text).id for text in (edit.workload, edit.small)] == [edit.workload, edit.small]
    assert (ROOT / edit.suite).is_file()


def test_there_are_all_kinds() -> None:
    """Instructions, tiles and loads; every kernel that is compiled is named once in each group."""
    assert all(GROUPS.values())
    for edits in GROUPS.values():
        assert len({edit.built for edit in edits} - {""}) == len({edit.built for edit in edits if edit.built})


@pytest.mark.soak  # compiles 18 kernels
def test_machine_code_changes(trees: dict[str, Path], tmp_path: Path) -> None:
    """No edit is compiled away."""
    wanted = {trees["clean"]: [edit.built for edit in EDITS.values()]}
    wanted |= {trees[name]: [edit.built for edit in edits] for name, edits in GROUPS.items()}
    found = asked(tmp_path, "code", wanted)
    clean = found[str(trees["clean"].resolve())]
    for name, edits in GROUPS.items():
        edited = found[str(trees[name].resolve())]
        assert [edit.name for edit in edits if edited[edit.built] == clean[edit.built]] == []


def test_results_keep_their_bits(trees: dict[str, Path], tmp_path: Path) -> None:
    """An extra instruction and a lost vector load compute the same; of smaller tiles the gate asks."""
    wanted = {trees[name]: [f"{e.backend}/{e.small}" for e in GROUPS[name]] for name in ("instructions", "loads")}
    both = [name for names in wanted.values() for name in names]
    found = asked(tmp_path, "outputs", {trees["clean"]: both, **wanted}, TRITON_INTERPRET="1")
    clean = found.pop(str(trees["clean"].resolve()))
    for edited in found.values():
        assert {name: clean[name] for name in edited} == edited


def test_an_edit_of_what_is_not_there_fails() -> None:
    """The error names the edit, the file, and how often its text is there."""
    edit = replace(EDITS["softmax_power"], old="nothing like it")
    with pytest.raises(ValueError, match=r"softmax_power: its old text is 0 times in kernels/triton/rows/softmax"):
        edit.applied("text", 1)
    with pytest.raises(ValueError, match="is 2 times in"):
        replace(edit, old="x").applied("xx", 1)


def test_an_unknown_name_and_kind_fail(tmp_path: Path) -> None:
    """What exists is said."""
    with pytest.raises(ValueError, match="edit 'faster' is not known; there are flash_rescale, "):
        make_tree(tmp_path / "tree", {"faster": 1})
    with pytest.raises(ValueError, match="kind 'slow' is not known; one of extra_instruction, "):
        replace(EDITS["softmax_power"], kind="slow")
    with pytest.raises(ValueError, match="does not say STRENGTH"):
        replace(EDITS["softmax_power"], new="always the same")


def test_the_path_of_a_tree_has_this_plugin_only(tmp_path: Path) -> None:
    """This repository is not on it, so that a tree's own kernels are found."""
    found = environment(tmp_path, {"PYTHONPATH": os.pathsep.join([str(ROOT), "/opt/x"]), "PYTEST_ADDOPTS": "-x"})
    assert found == {"PYTHONPATH": os.pathsep.join([str(tmp_path / "harness"), "/opt/x"])}
    assert (tmp_path / "harness/pytest_attnperf/__init__.py").is_file()
