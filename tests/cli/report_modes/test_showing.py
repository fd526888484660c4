from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.cli.report_modes import showing
from pytest_attnperf.cli.report_modes.showing import KINDS, read_all_sections, split_files
from pytest_attnperf.errors import UsageError
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.testing.sample_runs import sample_run
from tests.tools.tuner.test_tuned_files import TUNED

PUBLISHED = Path(__file__).parents[3] / "baselines/published/mi300x_ck_triton_native.json"

PROFILE = Path(__file__).parents[2] / "data/profiles/public/h100_vit.json.gz"


@pytest.fixture
def dispatch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """What `attnperf dispatch --json` prints."""
    assert main(["dispatch", str(PUBLISHED), "--json"]) == 0
    path = tmp_path / "dispatch.json"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """The folder of a finished tuning run."""
    folder = tmp_path / "tuned"
    folder.mkdir()
    (folder / "tune.json").write_bytes(msgspec.json.encode(TUNED))
    return folder


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results of a run."""
    json_results.write(tmp_path / "results.json", sample_run(3))
    return tmp_path / "results.json"


def test_files_are_known_by_their_content(dispatch: Path, tuned: Path, results: Path, tmp_path: Path) -> None:
    """Whatever a file is called; a folder of a tuning run is its tune.json; what has no kind is left to results."""
    renamed = dispatch.rename(tmp_path / "anything.json")
    odd = tmp_path / "odd.json"
    odd.write_bytes(b"\xff[")
    found = split_files([results, tuned, renamed, odd, tmp_path / "absent"])
    assert found == ([results, odd, tmp_path / "absent"], [tuned / "tune.json", renamed])


def test_sections_of_several_files_have_names_of_their_own(dispatch: Path, tuned: Path) -> None:
    """The same kind twice is two parts of one page."""
    names = [section.name for section in read_all_sections([dispatch, dispatch, tuned / "tune.json"])]
    assert len(names) == len(set(names)) > 5
    assert {"dispatch-1", "dispatch-2", "tune-3"} <= set(names)


def test_a_profile_is_known_by_its_form(results: Path, tmp_path: Path) -> None:
    """What a profiler wrote is no result; its sections stand under its name, apart from those of the page."""
    assert split_files([PROFILE, results, PROFILE.parent]) == ([results], [PROFILE, PROFILE.parent])
    sections = read_all_sections([PROFILE])
    assert {section.name.partition("-")[0] for section in sections} == {"profile"}
    assert all(section.title.startswith("h100_vit.json.gz: ") for section in sections)
    folder = tmp_path / "pages"
    assert main(["report", str(results), str(PROFILE), "--report", str(folder)]) in (0, 1)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.index('id="cases"') < page.index('id="profile-time"')


def test_a_folder_of_several_profiles_is_refused(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names them, and says what this command takes."""
    assert main(["report", str(results), str(PROFILE.parent), "--report", str(tmp_path / "pages")]) == 2
    said = capsys.readouterr().err
    assert "holds 13 profiles: a100_alexnet, b200_eager" in said
    assert "name the files of those that the page is to show" in said


def test_results_are_not_read_to_tell_them_apart(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large they are: their beginning has a number as `schema`."""
    monkeypatch.setattr(showing, "BYTES_MAX", 100)
    assert results.stat().st_size > 100
    assert split_files([results]) == ([results], [])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_reader_of_its_schema(kind: str) -> None:
    """A line of the list is a module whose schema is of that kind."""
    assert KINDS[kind]().SCHEMA.rpartition("/")[0] == kind


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("attnperf.dispatch/99", "this version reads attnperf.dispatch/1"),
        ("attnperf.else/1", "a page shows: attnperf.dispatch, attnperf.tune"),
        ("x" * 10_000, "a page shows: "),
    ],
)
def test_unknown_kinds_and_versions_are_refused(tmp_path: Path, schema: str, said: str) -> None:
    """The message names the file, the value seen and what can be read."""
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"schema": schema}))
    with pytest.raises(UsageError, match=r"other\.json: field `schema` is") as raised:
        split_files([path])
    assert said in str(raised.value)
    assert len(str(raised.value)) < 500


def test_a_damaged_file_of_a_known_kind_is_refused(dispatch: Path) -> None:
    """It is never half a page."""
    stored = json.loads(dispatch.read_text())
    dispatch.write_text(json.dumps({"schema": stored["schema"]}))
    with pytest.raises(UsageError, match="is not what attnperf dispatch --json printed"):
        read_all_sections([dispatch])


def test_one_page_for_everything(
    dispatch: Path, tuned: Path, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`attnperf report` shows them behind the cases; without results they are the page; without a page it refuses."""
    folder = tmp_path / "pages"
    assert main(["report", str(results), str(dispatch), str(tuned), "--report", str(folder)]) in (0, 1)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.index('id="cases"') < page.index('id="dispatch-1"') < page.index('id="tune-2"')
    assert (folder / "results.csv").exists()
    assert main(["report", str(tuned), "--report", str(tmp_path / "alone")]) == 0
    assert [path.name for path in (tmp_path / "alone").iterdir()] == ["report.html"]
    capsys.readouterr()
    for words, said in (
        (["report", str(results), str(tuned)], "tune.json is shown only in the page: add --report DIR, or --open"),
        (["report", str(tuned), "--report", str(folder), "--csv", "-"], "--csv needs results, and none of these"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err
