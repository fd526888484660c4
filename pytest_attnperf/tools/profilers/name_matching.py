"""Matches the kernels of two profiles, although compilers and libraries may rename them.

Exact names are matched first. Then names are compared without what tuning or a version changes: numbers among template
arguments, function arguments, the macro tile and all that follows it in a Tensile name, and suffixes of profilers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from pytest_attnperf.reports.run.profile_figures import cut_middle

ANONYMOUS = "(anonymous namespace)"
_ANONYMOUS_MARK = "\0"
_SUFFIXES = (" [clone .kd]", ".kd")
_TENSILE = re.compile(r"^(Cijk_\w*?)_MT\d.*$", re.DOTALL)
_LITERAL = re.compile(r"(?<![\w.)])(?:\d[\w.]*|true|false)(?![\w.])")
SHORT = 60
"""Most characters of a name in a sentence."""


@dataclass(frozen=True)
class Match:
    """Kernels that do the same work in two profiles.

    name            name to show: the exact or the normalised one
    before, after   exact names; one side is empty if the kernel is gone or new
    """

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Whether the kernel has the same name in both profiles."""
        return self.before == self.after


def match_names(before: Collection[str], after: Collection[str]) -> tuple[Match, ...]:
    """Returns every name of two profiles once: exact matches, matches of normalised names, names that only one has."""
    found = [Match(name, (name,), (name,)) for name in before if name in after]
    left: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, (names, others) in enumerate(((before, after), (after, before))):
        for name in names:
            if name not in others:
                left[normalise_name(name)][side].append(name)
    for short, (gone, new) in left.items():
        if gone and new:
            found.append(Match(short, tuple(gone), tuple(new)))
        else:
            found += [Match(name, (name,), ()) for name in gone] + [Match(name, (), (name,)) for name in new]
    return tuple(found)


def normalise_name(name: str) -> str:
    """Returns a kernel's name without what tuning or a version changes, to match names of two profiles.

    'void f<float, 128>(float*) [clone .kd]' gives 'f<float, #>', 'Cijk_Ailk_HB_MT64x64x16_SN' gives 'Cijk_Ailk_HB'. A
    cast enumerator such as (ggml_type)2 names a type and stays.
    """
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    tensile = _TENSILE.match(name)
    if tensile:
        return tensile.group(1)
    plain, template = _split_template(name.replace(ANONYMOUS, _ANONYMOUS_MARK).removeprefix("void ").strip())
    return (plain + _LITERAL.sub("#", template)).replace(_ANONYMOUS_MARK, ANONYMOUS)


def shorten_name(name: str) -> str:
    """Returns a kernel's name for a sentence: without template and function arguments, in `SHORT` characters. A longer
    one loses its middle, because names of one library differ at their ends."""
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    plain = _split_template(name.replace(ANONYMOUS, _ANONYMOUS_MARK).removeprefix("void ").strip())[0]
    plain = plain.replace(_ANONYMOUS_MARK, ANONYMOUS)
    return cut_middle(plain, SHORT)


def _split_template(name: str) -> tuple[str, str]:
    """Splits 'a::f<b<c>, 2>(float*)' into ('a::f', '<b<c>, 2>'), without the function's arguments.

    Unpaired brackets, as in operator<, give a shortened name and never an error."""
    depth = 0
    plain: list[str] = []
    template: list[str] = []
    for index, char in enumerate(name):
        if char == "(" and depth == 0:
            break
        depth += (char == "<") - (char == ">" and depth > 0 and name[index - 1] != "-")
        (template if depth or char == ">" else plain).append(char)
    return "".join(plain), "".join(template)
