"""Every command that the output prints works where it is printed."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import FakeProject
from tests.plugin.printed import other_situations, timed_situations  # noqa: F401 (they list themselves)
from tests.plugin.printed.arranging import SITUATIONS
from tests.plugin.printed.templates import EXCUSED, MET, list_templates, matches
from tests.plugin.printed.typed_commands import Shell

IS_RUN = "test session starts"
RESULTS = (".attnperf/results.json", "build/run.json")
LOOKED_AT_BY = (
    "attnperf explain --results {results}",
    "attnperf report {results}",
    "attnperf report {results} --markdown -",
)


@pytest.fixture
def shell(
    attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Shell:
    """A shell in an empty project of somebody whom git knows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    settings = tmp_path_factory.mktemp("git") / "config"
    settings.write_text("[user]\nname = Somebody\nemail = a@b\n[commit]\ngpgsign = false\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GITHUB_BASE_REF", "")  # so that what a situation sets is taken back
    return Shell(attnperf_project, tmp_path_factory.mktemp("photograph"))


QUICK = (
    *("slower_than_local_in_a_dirty_tree", "slower_than_local_without_git", "without_baseline_of_a_typed_workload"),
    *("wrong_without_timing", "without_baseline", "grew", "crept", "accepted_too_early", "reported_without_results"),
    *("shown_without_history", "misnamed", "compiled_without_baseline", "compiled_worse"),
)
"""Situations that `make test` has: one of each kind that was a dead end."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.soak) for name in SITUATIONS]
)
def test_what_is_printed_can_be_typed(shell: Shell, name: str) -> None:
    """The run's own output and what explains it; a command of several lines in its order, each in the same state."""
    text = SITUATIONS[name](shell.project)
    shell.keep_state()
    for results in RESULTS if IS_RUN in text else ():
        if (shell.project.path / results).exists():
            looks = [shell.type(command.format(results=results)) for command in LOOKED_AT_BY]
            text += "".join(f"\n\n{look.text}" for look in looks)
    shell.type_all(text)
    failed = [f"$ {one.command}  [{one.status}]\n{one.text[-600:]}" for one in shell.typed if not one.is_allowed]
    assert not failed, "\n\n".join(failed)
    typed = [one.command for one in shell.typed]
    unmet = [one for one, where in MET.items() if where == name and not any(matches(one, each) for each in typed)]
    assert not unmet, typed


def test_every_text_that_names_a_command_is_met_or_excused() -> None:
    """A new text with a command needs a situation that prints it, or a reason; none is listed that is gone."""
    templates = list_templates()
    files = [file for listed in EXCUSED.values() for file in listed]
    excused = [one for one in templates if one not in MET and one.startswith(tuple(files))]
    assert sorted({*MET, *excused}) == templates
    assert [file for file in files if not any(one.startswith(file) for one in excused)] == []
    assert set(MET.values()) | set(QUICK) <= set(SITUATIONS)
