"""Names that do not exist: options and keys of an earlier version, and misspelt options, keys and markers."""

from __future__ import annotations

import pytest

from pytest_attnperf.plugin.options import BY_NAME, OPTIONS
from pytest_attnperf.plugin.unknown_names import FIELDS_OF, OTHER_WORDS, suggest_options
from pytest_attnperf.testing.project import FakeProject

pytest_plugins = ["pytester"]

MARKED = """
import pytest

@pytest.mark.{name}
def test_it(attnperf):
    pass
"""


def refused(pytester: pytest.Pytester, *words: str) -> str:
    """The one line with which pytest refuses these words, with exit status 4."""
    result = pytester.runpytest_subprocess("-p", "no:randomly", *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.stderr.lines if line]
    assert "collect" not in result.stdout.str()
    return line.removeprefix("ERROR: ")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--attnperf-blocks=9", "--attnperf-blocks=9 is now --attnperf-effort=blocks=9"),
        ("--attnperf-block-us=99", "--attnperf-block-us=99 is now --attnperf-effort=block_us=99"),
        ("--attnperf-budget-ms=9", "--attnperf-budget-ms=9 is now --attnperf-effort=budget_ms=9"),
        ("--attnperf-tp=8", "--attnperf-tp=8 is now --attnperf-model=FILE,tp=8"),
        ("--attnperf-model-batch=1,16", "--attnperf-model-batch=1,16 is now --attnperf-model=FILE,batch=1:16"),
        ("--attnperf-model-seq=64", "--attnperf-model-seq=64 is now --attnperf-model=FILE,seq=64"),
        ("--attnperf-model-ignore=a,b", "--attnperf-model-ignore=a,b is now --attnperf-model=FILE,ignore=a:b"),
        (
            "--attnperf-floor-us=1",
            "--attnperf-floor-us=1 is now --attnperf-override=floor_us=1 (or the ini key attnperf_floor_us, or the "
            "marker's floor_us=)",
        ),
    ],
)
def test_an_old_option_is_answered_with_its_new_form(word: str, said: str, pytester: pytest.Pytester) -> None:
    """In one line, with the value that was typed."""
    assert refused(pytester, word) == said


def test_every_setting_without_an_option_was_one(pytester: pytest.Pytester) -> None:
    """Each is answered with --attnperf-override; several old options are answered in one line."""
    line = refused(pytester, *(f"{option.flag}=1" for option in OPTIONS if option.key))
    for option in OPTIONS:
        assert (f"{option.flag}=1 is now --attnperf-override={option.field}=1 (or" in line) == option.key


@pytest.mark.parametrize("name", FIELDS_OF)
def test_an_old_key_is_answered_with_its_new_form(name: str, pytester: pytest.Pytester) -> None:
    """The line names the file."""
    key = f"attnperf_{name.replace('-', '_')}"
    pytester.makeini(f"[pytest]\n{key} = 2\n")
    option, field = FIELDS_OF[name]
    assert refused(pytester) == f"{key} in tox.ini is now attnperf_{option} = {field.format('VALUE')}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--attnperf-treshold=3",), ["--attnperf-treshold: did you mean --attnperf-threshold?"]),
        (("--attnperf-agaist", "main"), ["--attnperf-agaist: did you mean --attnperf-against?"]),
        (("--update-baseline",), ["--update-baseline: did you mean --update-baselines?"]),
        (("--attnperf-htlm",), ["--attnperf-htlm: did you mean --attnperf-report?"]),
        (("--atnperf",), ["--atnperf: did you mean --attnperf?"]),
        (("--attnperf-block=9",), ["--attnperf-block: did you mean --attnperf-effort=blocks=VALUE?"]),
        (("--attnperf-qqqqq",), ["--attnperf-qqqqq: no such option; --attnperf-help lists all"]),
        (
            ("--attnperf-treshold=3", "--attnperf-pair=3"),
            ["--attnperf-pair: did you mean --attnperf-pairs?", "--attnperf-treshold: did you mean *threshold?"],
        ),
    ],
)
def test_a_misspelt_option_is_answered_with_the_nearest(
    words: tuple[str, ...], said: list[str], pytester: pytest.Pytester
) -> None:
    """By a line below pytest's own error."""
    result = pytester.runpytest_subprocess(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*: error: unrecognized arguments: *", *(f"  {line}" for line in said)])


def test_options_of_others_are_left_alone(pytester: pytest.Pytester) -> None:
    """Nothing is said of a word that is not like ours; an option that a conftest adds is known, whatever its name."""
    assert suggest_options(["--cov-report=html", "--durations-min=3", "-Q"]) == {}
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addoption('--attnperf-treshold')\n")
    assert pytester.runpytest_subprocess("--attnperf-treshold=3").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result = pytester.runpytest_subprocess("--benchmark-treshold=3")
    assert "did you mean" not in result.stderr.str()


def test_other_words_name_options() -> None:
    """What a word is answered with exists."""
    assert set(OTHER_WORDS.values()) | {option for option, _ in FIELDS_OF.values()} <= BY_NAME.keys()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("attnperf_treshold", "attnperf_treshold in tox.ini is no ini key; did you mean attnperf_threshold?"),
        ("attnperf_strict", "attnperf_strict in tox.ini is no ini key; write addopts = --attnperf-strict"),
        ("attnperf_qqqqq", "attnperf_qqqqq in tox.ini is no ini key; pytest --attnperf-help lists all"),
    ],
)
def test_an_unknown_key_is_a_usage_error(key: str, said: str, pytester: pytest.Pytester) -> None:
    """pytest itself would only warn, and not heed it."""
    pytester.makeini(f"[pytest]\n{key} = 3\n")
    assert refused(pytester) == said


def test_an_unknown_key_is_found_wherever_it_stands(pytester: pytest.Pytester) -> None:
    """On the command line, and in pyproject.toml."""
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\nattnperf_pair = 3\n")
    assert refused(pytester) == "attnperf_pair in pyproject.toml is no ini key; did you mean attnperf_pairs?"
    (pytester.path / "pyproject.toml").unlink()
    said = "attnperf_timr is no ini key; did you mean attnperf_timer?"
    assert refused(pytester, "-o", "attnperf_timr=host") == said


def test_a_key_that_another_plugin_declares_is_known(pytester: pytest.Pytester) -> None:
    """Its name may begin as ours."""
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addini('attnperf_mine', 'mine')\n")
    pytester.makeini("[pytest]\nattnperf_mine = 3\nother = 4\n")
    assert pytester.runpytest_subprocess().ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("name", ["atnperf", "attnpef", "attn_perf(threshold=3)"])
def test_a_misspelt_marker_fails_its_test(name: str, attnperf_project: FakeProject) -> None:
    """A test that uses the fixture would otherwise run without its settings."""
    (attnperf_project.path / "suites" / "test_it.py").write_text(MARKED.format(name=name))
    result = attnperf_project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    wrong = name.partition("(")[0]
    said = f"suites/test_it.py::test_it: nobody declared the marker {wrong!r}; did you mean @pytest.mark.attnperf?"
    assert said in result.outlines


def test_another_marker_is_left_alone(attnperf_project: FakeProject) -> None:
    """One that is declared may have any name, and one that is not like ours needs no declaration."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.pytester.makeini("[pytest]\nmarkers =\n    attn_perf: mine\n")
    for name in ("attn_perf", "slow"):
        (attnperf_project.path / "suites" / "test_it.py").write_text(MARKED.format(name=name))
        assert attnperf_project.run("--co", "-k", "test_it").ret == pytest.ExitCode.OK
