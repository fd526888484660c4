"""A baseline that cannot be read is named, gates nothing, and is never written over."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.testing.project import FakeProject

KEY = "fake.a/prefill-b1-s64-h1-d16-f16"


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def _binary(path: Path) -> None:
    path.write_bytes(b"\x80\x02\xff not json")


def _newer(path: Path) -> None:
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))


def _wrong_type(path: Path) -> None:
    values = json.loads(path.read_text())
    values["entries"][KEY]["processes"][0]["median_us"] = "fast"
    path.write_text(json.dumps(values))


def _edited(path: Path) -> None:
    values = json.loads(path.read_text())
    (policy,) = values["policies"].values()
    policy["threshold_percent"] = 50.0
    path.write_text(json.dumps(values))


def _not_positive(path: Path) -> None:
    values = json.loads(path.read_text())
    values["entries"][KEY]["processes"][2]["min_us"] = -1.0
    path.write_text(json.dumps(values))


def _copied(path: Path) -> None:
    path.write_text(path.read_text().replace('"product": "fake1"', '"product": "fake2"', 1))


DAMAGES = [
    pytest.param(_truncated, "is not readable as JSON", id="truncated"),
    pytest.param(_binary, "is not readable as JSON", id="binary"),
    pytest.param(_newer, "field `schema` is 2; this version reads 1", id="newer"),
    pytest.param(_wrong_type, f"entry '{KEY}': Expected `float`, got `str` - at `$.processes[0].median_us`", id="type"),
    pytest.param(_edited, "field `policies` has ", id="edited"),
    pytest.param(_not_positive, f"entry '{KEY}': field `processes[2]` holds a time that is not positive", id="time"),
    pytest.param(_copied, "field `product` is 'fake2', but its path says 'fake1'", id="copied"),
]


@pytest.fixture
def stored(attnperf_project: FakeProject) -> FakeProject:
    """A project whose only case has a baseline at 100 us."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.store_baselines()
    return attnperf_project


@pytest.mark.parametrize(("damage", "text"), DAMAGES)
def test_a_gate_names_file_and_field(stored: FakeProject, damage: Callable[[Path], None], text: str) -> None:
    """The case is an ERROR that says where and what, and the file is as it was."""
    damage(stored.baseline())
    before = stored.baseline().read_bytes()
    result = stored.run("--attnperf")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    (case,) = stored.results()["cases"]
    assert case["verdict"] == "ERROR"
    assert case["summary"].startswith(f"{stored.baseline()}: ")
    assert text in case["summary"]
    assert text in result.stdout.str()
    assert stored.baseline().read_bytes() == before


@pytest.mark.parametrize(("damage", "text"), [DAMAGES[0], DAMAGES[2], DAMAGES[3]])
def test_an_update_leaves_it_untouched(stored: FakeProject, damage: Callable[[Path], None], text: str) -> None:
    """--update-baselines onto such a file says what is wrong with it, writes nothing, and exits 1."""
    damage(stored.baseline())
    before = stored.baseline().read_bytes()
    result = stored.run("--update-baselines")
    assert result.ret == 1
    assert text in result.stdout.str()
    result.stdout.no_fnmatch_line("baseline written:*")
    assert stored.baseline().read_bytes() == before
    assert [path.name for path in stored.baseline().parent.glob("*.json")] == ["prefill.json"]


def test_an_update_does_not_lose_fields_it_does_not_know(stored: FakeProject) -> None:
    """A readable file with a field of a later version is refused by an update instead of rewritten without it."""
    values = json.loads(stored.baseline().read_text())
    values["entries"][KEY]["energy_j"] = 3.0
    stored.baseline().write_text(json.dumps(values))
    before = stored.baseline().read_bytes()
    assert stored.run("--attnperf").ret == 0
    result = stored.run("--update-baselines")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"finding: *this version does not know $.entries.{KEY}.energy_j*nothing was written*"])
    assert stored.baseline().read_bytes() == before


def test_a_folder_in_its_place_is_named(stored: FakeProject) -> None:
    """What is no file at all cannot be read, and says so."""
    path = stored.baseline()
    path.unlink()
    path.mkdir()
    assert stored.run("--attnperf").ret == 1
    (case,) = stored.results()["cases"]
    assert case["verdict"] == "ERROR"
    assert case["summary"] == f"{path}: cannot be read (Is a directory)"


def test_correctness_does_not_read_baselines(stored: FakeProject) -> None:
    """Without --attnperf a broken baseline keeps nobody from proving a kernel right."""
    _truncated(stored.baseline())
    stored.run().assert_outcomes(passed=1)
