"""The list of dependencies in docs/doctor.md against pyproject.toml and against what is installed."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = ("MIT", "BSD", "Apache", "Python Software Foundation", "PSF", "ISC", "LGPL", "MPL")
"""What may be named: permissive licences, and the weak copyleft of libraries that are imported and never shipped."""

ROW = re.compile(r"^\| ([\w-]+) \| ([a-z]*) ?\| ([^|]+) \|$", re.MULTILINE)


def listed() -> dict[tuple[str, str], str]:
    """(package, extra) -> licence, as the page says."""
    page = (ROOT / "docs" / "doctor.md").read_text()
    section = page.partition("## Dependencies and their licences")[2]
    return {(name, extra): licence.strip() for name, extra, licence in ROW.findall(section) if name != "package"}


def declared() -> set[tuple[str, str]]:
    """(package, extra) of pyproject.toml; Python 3.10 has no reader of TOML, and this needs two tables of it."""
    text = (ROOT / "pyproject.toml").read_text()
    (core,) = re.findall(r"^dependencies = \[(.*)\]", text, re.MULTILINE)
    extras = text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    lines = [("", core), *re.findall(r"^([a-z]+) = \[(.*?)\](?: #.*)?$", extras, re.MULTILINE)]
    return {(name, extra) for extra, line in lines for name in re.findall(r'"([A-Za-z0-9-]+)', line)}


def said_by(package: str) -> str:
    """The licence in a distribution's metadata, old forms and new. Skips where it is not installed."""
    try:
        found = metadata.metadata(package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    classifiers = [one.rpartition(" :: ")[2] for one in found.get_all("Classifier", []) if one.startswith("License")]
    short = [value.partition("\n")[0] for key in ("License-Expression", "License") if (value := found.get(key))]
    return " / ".join([*short, *classifiers])


def test_every_dependency_is_listed_and_no_other() -> None:
    """The page's table and pyproject.toml name the same packages with the same extras, all of licences allowed here."""
    table = listed()
    assert set(table) == declared()
    assert ("msgspec", "") in table
    assert [one for one in table.values() if not one.startswith(ALLOWED)] == []


@pytest.mark.parametrize(("package", "licence"), sorted((name, text) for (name, _), text in listed().items()))
def test_the_licence_is_what_the_package_says(package: str, licence: str) -> None:
    """As its metadata has it, by the first word at least: one spells 'MIT', another 'MIT License'."""
    assert licence in said_by(package)
