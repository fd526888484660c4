"""Checks a class of workloads before its first use: errors name its file and line, and what to write."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_attnperf.errors import UsageError, known_names
from pytest_attnperf.records.listing import find_class_place
from pytest_attnperf.workloads.fields import Grammar

PROPERTIES = ("family", "id", "dtype", "cache_state", "flops", "bytes_min", "non_finite_outputs")
METHODS: Mapping[str, tuple[str, int, dict[str, bool]]] = {
    "make_inputs": ("(self, seed, device, *, planted)", 3, {"planted": True}),
    "reference": ("(self, inputs)", 2, {}),
    "plain": ("(self, inputs)", 2, {}),
}
"""Method -> how it is written, and the number of arguments and the keywords that it is called with."""


@functools.cache
def require_class(kind: type) -> None:
    """Raises UsageError, with file and line, if a class over FamilyWorkload lacks its grammar, its decorator, a member
    or an argument of one, if its grammar names no field, or if a property is a method. Looks once at each class."""
    for problem in (*_list_form_problems(kind), *_list_member_problems(kind), *_list_grammar_problems(kind)):
        raise UsageError(f"{find_class_place(kind)}: {kind.__name__} {problem}")


def require_grammar(kind: Any) -> Grammar:
    """Returns the grammar of a workload class. Raises UsageError, with file and line, if it has none."""
    grammar = getattr(kind, "grammar", None)
    if not isinstance(grammar, Grammar):
        lacks = "has no grammar" if grammar is None else f"has grammar = {grammar!r}"
        raise UsageError(
            f"{find_class_place(kind)}: {kind.__name__} {lacks}{_propose_renaming(kind, 'grammar')}; "
            "write grammar = Grammar(family=..., numbers={...}, required=(...)) in it"
        )
    return grammar


def _list_form_problems(kind: type) -> Iterator[str]:
    require_grammar(kind)
    annotated = inspect.get_annotations(kind)
    fields = [name for name, said in annotated.items() if "ClassVar" not in str(said)]
    if fields and "__dataclass_params__" not in vars(kind):
        yield f"has fields ({', '.join(fields)}), but is no dataclass; write @dataclass(frozen=True) above it"


def _list_member_problems(kind: Any) -> Iterator[str]:
    if missing := sorted(kind.__abstractmethods__):
        renamed = "".join(_propose_renaming(kind, name) for name in missing)
        told = ", ".join(missing)
        yield f"does not define {told}{renamed}; pytest_attnperf/workloads/base.py describes each of them"
    for name in PROPERTIES:
        if inspect.isfunction(inspect.getattr_static(kind, name)):
            yield f"has a method {name}(), which must be a property; write @property above it"
    for name, (written, count, keywords) in METHODS.items():
        signature = inspect.signature(getattr(kind, name))
        try:
            signature.bind(*[None] * count, **keywords)
        except TypeError:
            yield f"has {name}({', '.join(signature.parameters)}); write def {name}{written}"


def _list_grammar_problems(kind: Any) -> Iterator[str]:
    grammar: Grammar = kind.grammar
    texts = [attribute for attribute, _ in grammar.texts.values()]
    named = (*grammar.numbers.values(), *texts, *grammar.flags, *grammar.choices, *grammar.same, *grammar.same.values())
    fields = [field.name for field in dataclasses.fields(kind)]
    for name in named:
        if name not in fields:
            yield f"has a grammar that names {name!r}, which is no field of it; {known_names(name, fields)}"


def _propose_renaming(kind: type, name: str) -> str:
    """Returns '; rename refrence to reference', from a name that only this class has; '' if none is similar."""
    own = [one for one in vars(kind) if not any(hasattr(base, one) for base in kind.__bases__)]
    near = difflib.get_close_matches(name, own, 1)
    return f"; rename {near[0]} to {name}" if near else ""
