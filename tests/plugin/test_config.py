"""What the command line, the ini file and the environment ask for, read once."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pytest_attnperf.plugin import config, options
from pytest_attnperf.plugin.config import RunConfig, run_config
from pytest_attnperf.plugin.options import FLAGS, OPTIONS
from pytest_attnperf.plugin.switches import Option

pytest_plugins = ["pytester"]


def test_every_option_is_a_field() -> None:
    """Nothing is declared that the run would not read, and a field that nobody gave is its option's default."""
    known = {field.name for field in fields(RunConfig)} - {"root", "typed_in", "words", "typed", "others"}
    assert known == {option.field for option in OPTIONS} | FLAGS.keys()
    assert {option.name: RunConfig().text(option.name) for option in OPTIONS} == {
        option.name: option.default for option in OPTIONS
    }


def test_an_option_needs_no_field(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was added to the list alone is read by its name, typed and from the ini file."""
    added = Option("echo-text", "nothing", "what is printed")
    monkeypatch.setattr(options, "OPTIONS", (*OPTIONS, added))
    monkeypatch.setattr(config, "OPTIONS", (*OPTIONS, added))
    asked = [run_config(pytester.parseconfig(*words)) for words in ((), ("--attnperf-echo-text=hello",))]
    assert [one.text("echo-text") for one in asked] == ["nothing", "hello"]
    assert asked[1].typed == {"echo-text": "hello"}


def test_command_line_over_ini_over_default(pytester: pytest.Pytester) -> None:
    """A model's path is one from where it was typed, or of the ini file from its folder; others stay as they are."""
    pytester.makeini("[pytest]\nattnperf_model = a.json\nattnperf_effort = low\nattnperf_pairs = 5\n")
    asked = run_config(pytester.parseconfig("--attnperf-pairs=3", "--attnperf-results="))
    assert (asked.pairs, asked.effort, asked.second_look, asked.results) == ("3", "low", "3", "")
    assert asked.model == str(pytester.path / "a.json")
    assert asked.typed == {"pairs": "3", "results": ""}


@pytest.mark.parametrize(
    ("variable", "words", "strict"),
    [
        ("", (), False),
        ("true", (), True),
        ("0", (), False),
        ("1", ("--no-attnperf-strict",), False),
        ("", ("--attnperf-strict",), True),
    ],
)
def test_strict_where_ci_is_set(
    variable: str, words: tuple[str, ...], strict: bool, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI decides where the command line says nothing."""
    monkeypatch.setenv("CI", variable)
    assert run_config(pytester.parseconfig(*words)).strict is strict


def test_it_is_read_once(pytester: pytest.Pytester) -> None:
    """Every file takes fields of one object."""
    config = pytester.parseconfig("--attnperf")
    assert run_config(config) is run_config(config)


def test_a_key_of_another_type_is_a_usage_error(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TOML file may have a number, which pytest 9.0 refuses by a TypeError; the line says how to write it."""

    def refuse(name: str) -> str:
        raise TypeError(f"expected a string for {name}")

    asked = pytester.parseconfig()
    with (
        monkeypatch.context() as patched,
        pytest.raises(pytest.UsageError, match=r'^attnperf_backend in .*; write attnperf_backend = "\.\.\."$'),
    ):
        patched.setattr(asked, "getini", refuse)
        RunConfig.from_pytest(asked)
