"""CONTRIBUTING.md and docs/doctor.md: files, targets and commands that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE_LATER = {"dist/", ".venv/bin/python", ".venv/bin/attnperf", ".attnperf/results.json", "make"}


def paths_in(text: str) -> set[str]:
    """Files of this repository that a page names: in backquotes, in links, and as arguments of its shell lines."""
    inline = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    blocks = "\n".join(re.findall(r"```\n(.*?)```", text, re.DOTALL))
    words = {word.rstrip(":,;") for one in [*inline, blocks] for word in one.split()}
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)#]+)", text)}
    named = {word for word in words if re.fullmatch(r"\.?[\w.-]+(/[\w.-]+)+|tests|[\w-]+\.(?:md|toml)", word)}
    return {one for one in named | links if one not in MADE_LATER}


def test_paths_of_contributing_exist() -> None:
    """Every file and folder named in CONTRIBUTING.md is there, and the list is not empty."""
    named = paths_in((ROOT / "CONTRIBUTING.md").read_text())
    assert {"docs/design.md", "kernels/native/rope.py", ".ci/matrix.py", "tests/gate/test_decide.py"} <= named
    assert [one for one in sorted(named) if not (ROOT / one).exists()] == []


def test_targets_of_make_exist() -> None:
    """`make X` in CONTRIBUTING.md and README.md is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z]+(?: [a-z]+)*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {name for line in targets for name in line.split()}
    for page in ("CONTRIBUTING.md", "README.md"):
        typed = set(re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / page).read_text(), re.MULTILINE))
        assert {"test", "attnperf"} <= typed
        assert typed <= known


@pytest.mark.parametrize("text", ["`docs/none.md`", "[a](docs/none.md#part)", "```\npython docs/none.md --write\n```"])
def test_a_path_is_found_wherever_it_stands(text: str) -> None:
    """In backquotes, in a link with an anchor, and in a shell line."""
    assert paths_in(text) == {"docs/none.md"}
