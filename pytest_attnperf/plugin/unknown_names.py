"""Answers names that do not exist: an old option or ini key with its new spelling, a misspelt one with the nearest."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.options import BY_NAME, OPTIONS
from pytest_attnperf.plugin.switches import HELP, SWITCHES

PREFIX, KEY_PREFIX = "--attnperf-", "attnperf_"

FIELDS_OF = {
    "blocks": ("effort", "blocks={}"),
    "block-us": ("effort", "block_us={}"),
    "budget-ms": ("effort", "budget_ms={}"),
    "tp": ("model", "FILE,tp={}"),
    "model-batch": ("model", "FILE,batch={}"),
    "model-seq": ("model", "FILE,seq={}"),
    "model-ignore": ("model", "FILE,ignore={}"),
}
"""Option of version 0.1 -> the option that has it as a field, and the new value."""

NEAR, NEAR_WITHOUT_PREFIX, NEAR_MARKER = 0.6, 0.85, 0.75
"""Least similarity of a name that is suggested; words that do not begin as our options do may be another plugin's."""

OTHER_WORDS = {"html": "report", "json": "results", "junit": "report", "base": "against", "quick": "effort"}
"""Words that were looked for -> option that does it."""


def refuse_old_options(unknown: Sequence[str]) -> None:
    """Raises pytest.UsageError for words of the command line that are options of version 0.1, with their new form."""
    answers = []
    for word in unknown:
        flag, _, value = word.partition("=")
        name = flag.removeprefix(PREFIX)
        if flag.startswith(PREFIX) and (new := _find_new_form(name, value or "VALUE")):
            answers.append(f"{word} is now {new}")
    if answers:
        raise pytest.UsageError("; ".join(answers))


def _find_new_form(name: str, value: str) -> str:
    """Returns what to type in place of an old option; '' if `name` is none."""
    if name in FIELDS_OF:
        option, field = FIELDS_OF[name]
        return f"{PREFIX}{option}={field.format(value.replace(',', ':'))}"
    if name in BY_NAME and BY_NAME[name].key:
        field = BY_NAME[name].field
        return f"--attnperf-override={field}={value} (or the ini key {BY_NAME[name].dest}, or the marker's {field}=)"
    return ""


def suggest_options(unknown: Iterable[str]) -> dict[str, str]:
    """Returns misspelt option -> 'did you mean ...?', for words that look like options of this plugin."""
    return {flag: answer for flag in (word.partition("=")[0] for word in unknown) if (answer := _suggest(flag))}


def _suggest(flag: str) -> str:
    """Returns 'did you mean ...?' for an unknown option of this plugin; '' for another plugin's."""
    flags = [*(switch.flag for switch in SWITCHES), *(option.flag for option in OPTIONS if not option.key)]
    if not flag.startswith(("--attnperf", "--no-attnperf")):
        near = difflib.get_close_matches(flag, [*flags, "--update-baselines"], n=1, cutoff=NEAR_WITHOUT_PREFIX)
        return f"did you mean {near[0]}?" if near else ""
    by_stem = {one.removeprefix(PREFIX): one for one in flags}
    by_stem |= {word: f"{PREFIX}{name}" for word, name in OTHER_WORDS.items()}
    by_stem |= {"update": "--update-baselines"}
    by_stem |= {name: _find_new_form(name, "VALUE") for name in FIELDS_OF}
    by_stem |= {option.name: _find_new_form(option.name, "VALUE") for option in OPTIONS if option.key}
    near = difflib.get_close_matches(flag.removeprefix(PREFIX), by_stem, n=1, cutoff=NEAR)
    return f"did you mean {by_stem[near[0]]}?" if near else f"no such option; {HELP} lists all"


def refuse_unknown_keys(config: pytest.Config) -> None:
    """Raises UsageError for a key of the ini file, or of `-o`, that begins with attnperf_ and that nobody declared: for
    one of version 0.1 with its new form, else with the nearest key. pytest itself only warns."""
    # pytest has no public list of what the ini file holds; 8 and 9 have it under these names.
    held = vars(config).get("_inicfg") or vars(config).get("inicfg") or {}
    typed = {text.partition("=")[0] for text in config.getoption("override_ini", default=None) or ()}
    for key in sorted({*held, *typed}):
        if key.startswith(KEY_PREFIX) and not _is_declared(config, key):
            where = f" in {config.inipath.name}" if config.inipath and key not in typed else ""
            raise UsageError(f"{key}{where} {_answer_key(key)}")


def _is_declared(config: pytest.Config, key: str) -> bool:
    try:
        config.getini(key)
    except (KeyError, ValueError):
        return False
    except TypeError:  # declared, and its value is of another type
        return True
    return True


def _answer_key(key: str) -> str:
    """Returns the end of the sentence that begins with an unknown key."""
    name = key.removeprefix(KEY_PREFIX).replace("_", "-")
    if name in FIELDS_OF:
        option, field = FIELDS_OF[name]
        return f"is now {KEY_PREFIX}{option} = {field.format('VALUE')}"
    if f"{PREFIX}{name}" in (switch.flag for switch in SWITCHES):
        return f"is no ini key; write addopts = {PREFIX}{name}"
    near = difflib.get_close_matches(name, [option.name for option in OPTIONS], n=1, cutoff=NEAR)
    return (
        f"is no ini key; did you mean {BY_NAME[near[0]].dest}?" if near else f"is no ini key; pytest {HELP} lists all"
    )


def refuse_misspelt_marker(config: pytest.Config, item: pytest.Item, marker: str) -> None:
    """Raises UsageError if a marker of the item, which nobody declared, has nearly the name `marker`."""
    declared = {str(line).partition(":")[0].partition("(")[0].strip() for line in config.getini("markers")}
    for name in (mark.name for mark in item.iter_markers()):
        if name not in declared and difflib.get_close_matches(name, [marker], cutoff=NEAR_MARKER):
            raise UsageError(f"{item.nodeid}: nobody declared the marker {name!r}; did you mean @pytest.mark.{marker}?")
