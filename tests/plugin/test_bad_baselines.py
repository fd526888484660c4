"""A baseline that cannot be read is named, gates nothing, and is never written over."""

import json
from collections.abc import Callable
from pathlib import Path

from pytest_attnperf.testing.project import WORKLOAD, FakeProject

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


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (_truncated, "is not readable as JSON"),
    "binary": (_binary, "is not readable as JSON"),
    "newer": (_newer, "field `schema` is 2; this version reads 1"),
    "type": (_wrong_type, f"entry '{KEY}': Expected `float`, got `str` - at `$.processes[0].median_us`"),
    "edited": (_edited, "field `policies` has "),
    "time": (_not_positive, f"entry '{KEY}': field `processes[2]` holds a time that is not positive"),
    "copied": (_copied, "field `product` is 'fake2', but its path says 'fake1'"),
}
"""Suite -> how its baseline is damaged, and what is said of it."""


def damaged(project: FakeProject, *suites: str) -> dict[str, bytes]:
    """Give the project these suites alone, each with its own damaged baseline; what is in them then."""
    (project.path / "suites" / "test_prefill.py").unlink()
    for suite in suites:
        project.suite([WORKLOAD], name=f"test_{suite}.py")
    project.backend("fake.a", time_us=100.0)
    project.store_baselines()
    for suite in suites:
        DAMAGES[suite][0](project.baseline(suite=suite))
    return {suite: project.baseline(suite=suite).read_bytes() for suite in suites}


def test_a_gate_names_file_and_field(attnperf_project: FakeProject) -> None:
    """Every such case is an ERROR that says where and what, and the file is as it was."""
    before = damaged(attnperf_project, *DAMAGES)
    result = attnperf_project.run("--attnperf")
    assert result.ret == 1
    result.assert_outcomes(failed=len(DAMAGES))
    cases = {case["key"]["suite"]: case for case in attnperf_project.results()["cases"]}
    assert cases.keys() == DAMAGES.keys()
    for suite, (_, text) in DAMAGES.items():
        path = attnperf_project.baseline(suite=suite)
        assert cases[suite]["verdict"] == "ERROR"
        assert cases[suite]["summary"].startswith(f"{path}: ")
        assert text in cases[suite]["summary"]
        assert cases[suite]["summary"] in result.stdout.str()
        assert path.read_bytes() == before[suite]


def test_an_update_leaves_it_untouched(attnperf_project: FakeProject) -> None:
    """--update-baselines onto such files says what is wrong with each, writes nothing, and exits 1."""
    before = damaged(attnperf_project, "truncated", "newer", "type")
    result = attnperf_project.run("--update-baselines")
    assert result.ret == 1
    result.stdout.no_fnmatch_line("baseline written:*")
    for suite, content in before.items():
        path = attnperf_project.baseline(suite=suite)
        assert any(str(path) in line and DAMAGES[suite][1] in line for line in result.stdout.lines)
        assert path.read_bytes() == content
    assert {path.stem for path in path.parent.glob("*.json")} == before.keys()


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
    assert case["summary"] == f"{path} is a folder; give a regular file"


def test_correctness_does_not_read_baselines(stored: FakeProject) -> None:
    """Without --attnperf a broken baseline keeps nobody from proving a kernel right."""
    _truncated(stored.baseline())
    stored.run().assert_outcomes(passed=1)
