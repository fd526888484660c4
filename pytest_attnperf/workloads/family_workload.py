"""What workloads of every built-in family share: an id that parses back, checks, and a definition of their fields."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import DTYPE_BYTES, TORCH_DTYPES, Workload
from pytest_attnperf.workloads.fields import Grammar, require_dtype, require_positive

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self


@dataclass(frozen=True)
class FamilyWorkload(Workload):
    """One problem of a family, whose fields a `Grammar` names; subclasses are frozen dataclasses and give the work.

    grammar    what ids and lines may hold, what fields stand for where they are left out, and what goes unsaid
    is_cold    whether calls are timed with inputs that are in no cache, where no field `cold` says so
    NO_TRITON_YET    why this repository has no backend `triton.*` of the family; empty where it has one

    Raises WorkloadError naming the field for sizes that are not positive integers and for another dtype.
    """

    grammar: ClassVar[Grammar]
    is_cold: ClassVar[bool] = False
    NO_TRITON_YET: ClassVar[str] = ""

    def __post_init__(self) -> None:
        self._fill_in()
        sizes = [name for name in self.grammar.numbers.values() if name not in self.grammar.zeros]
        require_positive(self.family, ((name, getattr(self, name)) for name in sizes))
        require_dtype(self.family, self.dtype, self.grammar.dtypes)

    def _fill_in(self) -> None:
        """Give fields that were left out the value they stand for: equal problems must be equal and hash equal."""
        for name, other in self.grammar.same.items():
            if getattr(self, name) == 0:
                self._set_field(name, getattr(self, other))

    def _set_field(self, name: str, value: object) -> None:
        """Set a field of this frozen dataclass, which nobody else has seen yet."""
        object.__setattr__(self, name, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The workload of an id. Raises WorkloadError, also for an id whose words are in another order."""
        workload = cls(**cls._fields_of_id(text))
        if workload.id != text:
            raise WorkloadError(f"{workload.family} workload id {text!r} is not in its one form; write {workload.id!r}")
        return workload

    @classmethod
    def _fields_of_id(cls, text: str) -> dict[str, Any]:
        return cls.grammar.parse_id(text)

    @classmethod
    def parse_line(cls, text: str) -> Self:
        """The workload of a line such as `b=1,s=512,h=8,d=64,causal,f16`, fields in any order; b is 1, and others are
        at their defaults unless given. Raises WorkloadError."""
        ones = {cls.grammar.numbers[short]: 1 for short in cls.grammar.id_required}
        return cls(**{**ones, **cls.grammar.parse_line(text)})

    @property
    def family(self) -> str:
        """The family's name."""
        return self.grammar.family

    @property
    @abc.abstractmethod
    def dtype(self) -> str:
        """What inputs are stored in."""

    @property
    def cache_state(self) -> str:
        """'hot' or 'cold', as the field `cold` says, or the family."""
        return "cold" if getattr(self, "cold", self.is_cold) else "hot"

    @property
    def non_finite_outputs(self) -> frozenset[str]:
        """None."""
        return frozenset()

    @property
    def id(self) -> str:
        """Readable and parsed back by `parse`; words that say nothing new (kv = s, hk = h, a 0) are left out."""
        implied = self._implied_values()
        numbers = ((short, name, getattr(self, name)) for short, name in self.grammar.numbers.items())
        told = (f"{short}{value}" for short, name, value in numbers if value != implied.get(name, 0))
        return "-".join([self.family, *self._first_words(), *told, self.dtype, *self._option_words()])

    def _implied_values(self) -> dict[str, object]:
        """Attribute -> value that an id leaves out, where that is not 0."""
        return {name: getattr(self, other) for name, other in self.grammar.same.items()}

    def _first_words(self) -> Sequence[str]:
        """Words of the id before its numbers."""
        return ()

    def _option_words(self) -> list[str]:
        """Words of the id behind its dtype: choices that are not the default one, then flags."""
        chosen = {name: getattr(self, name) for name in self.grammar.choices}
        words = [word for name, word in chosen.items() if word and word != getattr(type(self), name, None)]
        return [*words, *(flag for flag in self.grammar.flags if getattr(self, flag))]

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the dtype."""
        return DTYPE_BYTES[self.dtype]

    @property
    def stored_as(self) -> torch.dtype:
        """The torch dtype of the dtype."""
        import torch

        dtype: torch.dtype = getattr(torch, TORCH_DTYPES[self.dtype])
        return dtype

    def definition(self) -> dict[str, Any]:
        """Every field but those that go unsaid while they are off, and the conventions, as builtins; baselines store
        this."""
        fields = {name: value for name, value in asdict(self).items() if value or name not in self.grammar.unsaid}
        return {"family": self.family, **fields, **self._conventions()}

    def _conventions(self) -> dict[str, Any]:
        """What no field says, and a result depends on: the scale, the alignment of the mask."""
        return {}
