from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.aiter.backends import ENTRY_POINTS
from kernels.aiter.signatures import EntryPoint
from tests.conftest import AITER_CONTRACT, pytest_terminal_summary
from tests.kernels.aiter.contract.recorded import (
    Recorded,
    commit_of,
    main,
    offers,
    record,
    recorded_releases,
    release_order,
)
from tests.kernels.aiter.contract.source import HOW, Source, misfits, place_of

RELEASES = recorded_releases()


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_every_call_fits_the_recorded_release(release: Recorded) -> None:
    """Each function that an adapter calls takes what the adapter gives, and asks for nothing else, in every release
    that has it by the adapter's `since` and `until`; before and after, the call does not fit: the adapter's word is
    exact."""
    wrong = {point.name: misfits(release, point) for point in ENTRY_POINTS if offers(release.version, point)}
    assert {name: found for name, found in wrong.items() if found} == {}
    early = [point for point in ENTRY_POINTS if not offers(release.version, point)]
    assert [point.name for point in early if not misfits(release, point)] == []


def test_four_releases_are_recorded_whole() -> None:
    """The file has the oldest release that was read, the newest, and two between; each with its commit, and every
    function of every adapter is in at least one."""
    assert [release.version for release in RELEASES] == ["v0.1.5", "v0.1.9", "v0.1.16", "v0.1.20.post1"]
    assert all(len(release.commit) == 40 for release in RELEASES)
    nowhere = [point.name for point in ENTRY_POINTS if all(place_of(release, point) is None for release in RELEASES)]
    assert nowhere == []


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("q, k, v, softmax_scale", ["takes no scale; it takes q, k, v, softmax_scale"]),
        ("q, k, v, scale, sink", ["asks for sink, which the adapter does not give"]),
        ("q, k, v, scale, sink=", []),
        ("q, v, k, scale", ["takes q, v, k, scale in this order, not q, k, v, scale"]),
        ("q, **", []),
        ("", ["takes no q, k, v, scale; it takes "]),
    ],
)
def test_a_release_that_differs_is_found(parameters: str, said: list[str]) -> None:
    """A renamed parameter, a new one without a default and another order are misfits; a new one with a default, and
    any keyword, are none."""
    release = Recorded("v9", "0" * 40, frozenset({"aiter.ops.x"}), {"aiter.ops.x.f": parameters})
    point = EntryPoint("aiter.ops.x", "f", positional=("q", "k", "v", "scale"))
    if parameters == "q, **":
        point = replace(point, positional=("q",), needed=("k", "v", "scale"))
    found = misfits(release, point)
    assert found[: len(said)] == said
    assert bool(found) == bool(said)


def test_a_release_has_only_what_was_recorded() -> None:
    """A function that is not there, and a module at its old place, are told from one that is there."""
    release = Recorded("v9", "0" * 40, frozenset({"aiter.old"}), {"aiter.old.f": "q"})
    assert misfits(release, EntryPoint("aiter.new", "f", needed=("q",), old="aiter.old")) == []
    assert misfits(release, EntryPoint("aiter.new", "f")) == ["no module aiter.new"]
    assert misfits(release, EntryPoint("aiter.old", "g")) == ["aiter.old has no g"]


@pytest.mark.parametrize(
    ("version", "offered"),
    [
        ("v0.1.9", False),
        ("v0.1.11.post1", False),
        ("v0.1.12", True),
        ("v0.1.17.post3", True),
        ("v0.1.18", False),
        ("v0.1.100", False),
    ],
)
def test_releases_are_ordered_by_their_numbers(version: str, offered: bool) -> None:
    """v0.1.12 comes after v0.1.9; a release's own post releases still have what went after it."""
    assert offers(version, EntryPoint("m", "f", since="v0.1.12", until="v0.1.17")) is offered
    assert release_order("v0.1.6.post2") == (0, 1, 6, 2)


TREE = "def dense(q, k, scale=1.0, *, out=None, **more): ...\ndef other(x): ..."


def test_recording_holds_names_and_nothing_else(tmp_path: Path) -> None:
    """What is recorded of a tree is what its misfits are found by; functions that no adapter calls are left out."""
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "dense.py").write_text(TREE, encoding="utf-8")
    point = EntryPoint("aiter.new", "dense", needed=("q",), old="aiter.dense")
    found = record(Source(tmp_path), [point, EntryPoint("aiter.gone", "f")])
    assert found == {"modules": ["aiter.dense"], "functions": {"aiter.dense.dense": "q, k, scale=, out=, **"}}
    release = Recorded("v9", "", frozenset(found["modules"]), found["functions"])
    assert release.function("aiter.dense", "dense") == Source(tmp_path).function("aiter.dense", "dense")
    assert (
        misfits(release, point) == misfits(Source(tmp_path), point) == ["asks for k, which the adapter does not give"]
    )


def test_the_commit_is_that_of_the_folder_itself(tmp_path: Path) -> None:
    """A folder inside another checkout has no commit of its own, and nothing is recorded from it."""
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x", "--allow-empty"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    (tmp_path / "aiter").mkdir()
    assert len(commit_of(tmp_path)) == 40
    assert commit_of(tmp_path / "aiter") == ""
    with pytest.raises(SystemExit, match="is no git checkout: clone aiter and check the tag v9 out"):
        main(str(tmp_path / "aiter"), "v9")


def test_the_record_is_what_the_tree_says(source: Source) -> None:
    """A checkout of a recorded release has exactly what was recorded of it."""
    commit = commit_of(source.root)
    release = next((one for one in RELEASES if one.commit == commit), None)
    if release is None:
        pytest.skip(
            f"AITER_SOURCE is at {commit[:10] or 'no commit'}, not at {', '.join(one.version for one in RELEASES)}"
        )
    assert record(source) == {"modules": sorted(release.modules), "functions": release.functions}


def test_contract_tests_without_a_tree_are_counted() -> None:
    """pytest's last lines count the contract tests that had no tree; other skipped tests, and none, add nothing."""
    lines: list[str] = []
    skipped = [
        SimpleNamespace(nodeid=f"{AITER_CONTRACT}test_paths.py::a", longrepr=("conftest.py", 19, f"Skipped: {HOW}")),
        SimpleNamespace(nodeid=f"{AITER_CONTRACT}test_paths.py::b", longrepr=("conftest.py", 19, f"Skipped: {HOW}")),
        SimpleNamespace(nodeid=f"{AITER_CONTRACT}test_configs.py::c", longrepr=("x.py", 1, "Skipped: no gfx950")),
        SimpleNamespace(nodeid="tests/test_exports.py::d", longrepr=("x.py", 1, f"Skipped: {HOW}")),
    ]
    for stats in ({"skipped": skipped}, {"skipped": skipped[2:]}, {}):
        reporter: Any = SimpleNamespace(stats=stats, write_line=lines.append)
        pytest_terminal_summary(reporter)
    assert [line.partition(" (")[0] for line in lines] == [
        "contract tests of aiter skipped for want of its source tree: 2"
    ]
