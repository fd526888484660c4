"""The grammar of workload lines and ids, shared by op families: `b=1,s=512,causal,f16` and `b1-s512-f16-causal`.

A family lists its fields. User input is converted to attributes here, or to a WorkloadError that names the field, the
value and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_attnperf.errors import WorkloadError, propose_name
from pytest_attnperf.workloads.base import DTYPE_BYTES

_TRUE = frozenset({"1", "true", "yes"})
_FALSE = frozenset({"0", "false", "no"})
SHOWN = 300
"""Number of characters of a text that a message repeats."""
HEAD_DIM_MAX = 512
_WORD = re.compile(r"([a-z]+)([0-9]+)")


@dataclass(frozen=True)
class Grammar:
    """Fields of one op family.

    family     its name, for messages
    numbers    short name -> attribute, in the order of the id
    required   short names that a line must contain
    flags      words that switch something on
    dtypes     allowed dtypes
    id_required   short names that only an id must contain, while a line may leave them out; 'b' where it is a number
    choices    attribute -> its allowed bare words, e.g. {'kind': ('copy', 'read')}
    texts      short name -> (attribute, pattern): a value that is neither a number nor a word, `q=63_1000` in a line
               and `q63_1000` in an id; the short name '' is for a bare word, whose pattern no other word may match
    read       attribute -> function that converts its text to its value
    same       attribute -> the attribute that gives its default
    zeros      attributes of numbers that may be 0, which an id leaves out
    unsaid     attributes that a definition leaves out while they are off
    """

    family: str
    numbers: dict[str, str]
    required: tuple[str, ...]
    flags: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = tuple(DTYPE_BYTES)
    id_required: tuple[str, ...] = ("b",)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    read: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    zeros: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "b" not in self.numbers and self.id_required == ("b",):
            object.__setattr__(self, "id_required", ())

    def parse_line(self, text: str) -> dict[str, Any]:
        """Parses `b=1, s=512, causal, f16` -> {'batch': 1, 'seq_q': 512, 'causal': True, 'dtype': 'f16'}, fields in any
        order. Raises WorkloadError for unknown, missing or repeated fields."""
        pairs = (_split_pair(token.strip(), text) for token in text.split(","))
        return self._collect_attributes(pairs, text, self.required)

    def parse_id(self, text: str) -> dict[str, Any]:
        """Parses an id, `prefill-b1-s512-f16-causal`, into the attributes that `parse_line` returns; words may be in
        any order. Raises WorkloadError as it does, and for another family."""
        first, *words = text.split("-")
        if first != self.family:
            raise WorkloadError(f"workload id {text!r} starts with {first!r}, not with {self.family!r}")
        return self._collect_attributes(
            (self._split_word(word) for word in words), text, (*self.id_required, *self.required)
        )

    @property
    def usage(self) -> str:
        """Everything that a line may contain, as text for messages: 'b=, s=, ..., causal'."""
        texts = (f"{short}=" if short else f"a bare {pattern}" for short, (_, pattern) in self.texts.items())
        words = (word for choice in self.choices.values() for word in choice)
        dtype = f"dtype= (or a bare {', '.join(self.dtypes)})"
        return ", ".join([*(f"{short}=" for short in self.numbers), *texts, dtype, *words, *self.flags])

    def _split_word(self, word: str) -> tuple[str, str | None]:
        if word in DTYPE_BYTES:
            return word, None
        match = _WORD.fullmatch(word)
        if match and match[1] in self.numbers:
            return match[1], match[2]
        for short, (_, pattern) in self.texts.items():
            if short and word.startswith(short) and re.fullmatch(pattern, word.removeprefix(short)):
                return short, word.removeprefix(short)
        return word, None

    def _collect_attributes(
        self, pairs: Iterable[tuple[str, str | None]], text: str, required: tuple[str, ...]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            attribute, converted = self._convert_value(name, value, text)
            if attribute in found:
                raise WorkloadError(
                    f"{self.family} workload {quote_short(text)} gives {_format_attribute(attribute, name)} twice; "
                    "give it once"
                )
            found[attribute] = converted
        missing = [short for short in required if self._find_attribute(short) not in found]
        if missing:
            raise WorkloadError(
                f"{self.family} workload {quote_short(text)} does not give {', '.join(missing)}; "
                f"required are {', '.join(required)}, allowed are {self.usage}"
            )
        return {name: self.read[name](value) if name in self.read else value for name, value in found.items()}

    def _convert_value(self, name: str, value: str | None, text: str) -> tuple[str, Any]:
        where = f"{self.family} workload {quote_short(text)}"
        if name in DTYPE_BYTES and value is None:
            return "dtype", name
        if name == "dtype" and value is not None:
            return "dtype", value
        for attribute, words in self.choices.items():
            if (name in words and value is None) or (name == attribute and value in words):
                return attribute, name if value is None else value
        if name in self.texts and name and value is not None:
            return self._convert_text(name, value, where)
        if value is None and "" in self.texts and re.fullmatch(self.texts[""][1], name):
            return self.texts[""][0], name
        if name in self.flags:
            return name, True if value is None else _parse_boolean(name, value, where)
        if name not in self.numbers:
            near = self._propose_field(name) or self._propose_field(name.rstrip("0123456789"))
            raise WorkloadError(f"{where} has an unknown field {quote_short(name)}{near}; allowed are {self.usage}")
        if value is None or not re.fullmatch(r"[0-9]{1,18}", value):
            got = "nothing" if value is None else quote_short(value)
            raise WorkloadError(f"{where}: {name} must be a positive integer of at most 18 digits, got {got}")
        return self.numbers[name], int(value)

    def _propose_field(self, name: str) -> str:
        words = (word for choice in self.choices.values() for word in choice)
        return propose_name(name, [*self.numbers, *self.texts, *self.flags, *self.dtypes, *words])

    def _convert_text(self, short: str, value: str, where: str) -> tuple[str, str]:
        attribute, pattern = self.texts[short]
        if not re.fullmatch(pattern, value):
            raise WorkloadError(f"{where}: {short} must match {pattern}, got {quote_short(value)}")
        return attribute, value

    def _find_attribute(self, required: str) -> str:
        """Returns the attribute that a required short name stands for; a choice such as 'kind' is its own attribute."""
        if required in self.choices:
            return required
        return self.texts[required][0] if required in self.texts else self.numbers[required]


def quote_short(text: str) -> str:
    """Returns the repr of a text; of a text above SHOWN characters the repr of its beginning, and its length."""
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}... ({len(text)} characters)"


def require_positive(family: str, values: Iterable[tuple[str, object]]) -> None:
    """Raises WorkloadError for the first (name, value) that is not an integer of at least 1."""
    for name, value in values:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise WorkloadError(f"{family} workload: {name} must be a positive integer, got {value!r}")


def require_positive_or_none(family: str, values: Iterable[tuple[str, object]]) -> None:
    """Raises WorkloadError for the first (name, value) that is not an integer of at least 0, where 0 means none."""
    for name, value in values:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise WorkloadError(f"{family} workload: {name} must be a positive integer, or 0 for none, got {value!r}")


def require_grouped_heads(family: str, heads: int, kv_heads: int) -> None:
    """Raises WorkloadError unless `kv_heads` divides `heads`, so that query heads share key heads evenly."""
    if heads % kv_heads:
        raise WorkloadError(
            f"{family} workload: heads must be a multiple of kv_heads, got heads={heads} and kv_heads={kv_heads}"
        )


def require_head_dim(family: str, head_dim: int, name: str = "head_dim") -> None:
    """Raises WorkloadError, calling the field `name`, for a head dimension above HEAD_DIM_MAX."""
    if head_dim > HEAD_DIM_MAX:
        raise WorkloadError(f"{family} workload: {name} must be at most {HEAD_DIM_MAX}, got {head_dim}")


def require_dtype(family: str, dtype: str, allowed: Collection[str] = DTYPE_BYTES) -> None:
    """Raises WorkloadError for a dtype that is not in `allowed`."""
    if dtype not in allowed:
        raise WorkloadError(f"{family} workload: dtype {dtype!r} is not one of {', '.join(allowed)}")


def _split_pair(token: str, text: str) -> tuple[str, str | None]:
    name, equals, value = (part.strip() for part in token.partition("="))
    if not name:
        raise WorkloadError(
            f"workload {quote_short(text)} has an empty field; write e.g. 'b=1,s=512,h=8,d=64,causal,f16'"
        )
    return name, value if equals else None


def _parse_boolean(name: str, value: str, where: str) -> bool:
    if value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise WorkloadError(f"{where}: {name} must be one of true, false, 1, 0, yes, no, got {quote_short(value)}")


def _format_attribute(attribute: str, name: str) -> str:
    return attribute if attribute == name else f"{attribute} ({name})"
