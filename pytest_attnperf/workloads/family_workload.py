"""Base of the workloads of built-in families: an id that parses back, checks, and a definition of their fields."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import DTYPE_BYTES, TORCH_DTYPES, Workload
from pytest_attnperf.workloads.class_checks import require_class
from pytest_attnperf.workloads.fields import Grammar, require_dtype, require_positive
from pytest_attnperf.workloads.parts import Part, take_along

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self


@dataclass(frozen=True)
class FamilyWorkload(Workload):
    """One problem of a family, whose fields a `Grammar` names; subclasses are frozen dataclasses and define the work.

    grammar    fields of ids and lines, their defaults, and fields that a definition may leave out
    is_cold    whether calls are timed with inputs that are in no cache, for classes without a field `cold`
    row_field   field that counts the rows of a problem, which are computed independently of each other, e.g. 'batch';
               '' for a family that does not say
    row_inputs  number of inputs that hold these rows in dimension 0: the first ones
    row_outputs   output -> dimension that holds these rows
    NO_TRITON_YET    why this repository has no backend `triton.*` of the family; empty if it has one

    Raises WorkloadError naming the field for sizes that are not positive integers and for another dtype.
    """

    grammar: ClassVar[Grammar]
    is_cold: ClassVar[bool] = False
    row_field: ClassVar[str] = ""
    row_inputs: ClassVar[int] = 0
    row_outputs: ClassVar[Mapping[str, int]] = {"out": 0, "lse": 0}
    NO_TRITON_YET: ClassVar[str] = ""

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Makes the workload. Raises UsageError, with file and line, if its class lacks something."""
        require_class(cls)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._fill_in()
        sizes = [name for name in self.grammar.numbers.values() if name not in self.grammar.zeros]
        require_positive(self.family, ((name, getattr(self, name)) for name in sizes))
        require_dtype(self.family, self.dtype, self.grammar.dtypes)

    def _fill_in(self) -> None:
        """Sets fields that are 0 to the field that gives their default, e.g. kv_heads to heads: equal problems must be
        equal and hash equal."""
        for name, other in self.grammar.same.items():
            if getattr(self, name) == 0:
                self._set_field(name, getattr(self, other))

    def _set_field(self, name: str, value: object) -> None:
        """Sets a field of this frozen dataclass, during construction only."""
        object.__setattr__(self, name, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the workload of an id. Raises WorkloadError, also for an id whose words are in another order than
        `id` gives."""
        workload = cls(**cls._fields_of_id(text))
        if workload.id != text:
            raise WorkloadError(
                f"{workload.family} workload id {text!r} is not in its canonical form; write {workload.id!r}"
            )
        return workload

    @classmethod
    def _fields_of_id(cls, text: str) -> dict[str, Any]:
        return cls.grammar.parse_id(text)

    @classmethod
    def parse_line(cls, text: str) -> Self:
        """Returns the workload of a line such as `b=1,s=512,h=8,d=64,causal,f16`, fields in any order; a missing b is
        1, other fields have their own defaults. Raises WorkloadError for an invalid line."""
        ones = {cls.grammar.numbers[short]: 1 for short in cls.grammar.id_required}
        return cls(**{**ones, **cls.grammar.parse_line(text)})

    @property
    def family(self) -> str:
        """Name of the op family, the first word of the id."""
        return self.grammar.family

    @property
    @abc.abstractmethod
    def dtype(self) -> str:
        """Dtype of the inputs, one of DTYPE_BYTES, e.g. 'bf16'."""

    @property
    def cache_state(self) -> str:
        """'hot' or 'cold', from the field `cold` or from the family."""
        return "cold" if getattr(self, "cold", self.is_cold) else "hot"

    @property
    def non_finite_outputs(self) -> frozenset[str]:
        """Names of outputs that may hold NaN or Inf; empty unless a family overrides this."""
        return frozenset()

    @property
    def id(self) -> str:
        """Readable id, which `parse` parses back; words for default values (kv = s, hk = h, a 0) are left out."""
        implied = self._implied_values()
        numbers = ((short, name, getattr(self, name)) for short, name in self.grammar.numbers.items())
        told = (f"{short}{value}" for short, name, value in numbers if value != implied.get(name, 0))
        return "-".join([self.family, *self._first_words(), *told, self.dtype, *self._option_words()])

    def _implied_values(self) -> dict[str, object]:
        """Returns {field: value that an id may leave out}, for the fields whose default is another field's value."""
        return {name: getattr(self, other) for name, other in self.grammar.same.items()}

    def _first_words(self) -> Sequence[str]:
        """Returns the words of the id before its numbers."""
        return ()

    def _option_words(self) -> list[str]:
        """Returns the words of the id after its dtype: choices that are not the default, then flags."""
        chosen = {name: getattr(self, name) for name in self.grammar.choices}
        words = [word for name, word in chosen.items() if word and word != getattr(type(self), name, None)]
        return [*words, *(flag for flag in self.grammar.flags if getattr(self, flag))]

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the dtype."""
        return DTYPE_BYTES[self.dtype]

    @property
    def stored_as(self) -> torch.dtype:
        """The torch dtype that stores `dtype`."""
        import torch

        dtype: torch.dtype = getattr(torch, TORCH_DTYPES[self.dtype])
        return dtype

    def definition(self) -> dict[str, Any]:
        """Returns family, fields (those in `unsaid` only if set) and conventions, as builtins; stored with
        baselines."""
        fields = {name: value for name, value in asdict(self).items() if value or name not in self.grammar.unsaid}
        return {"family": self.family, **fields, **self._conventions()}

    @property
    def row_count(self) -> int:
        """Number of rows, which are computed independently of each other (`row_field`); 0 if the family does not
        say."""
        return int(getattr(self, self.row_field)) if self.row_field else 0

    def take_rows(self, rows: Sequence[int]) -> Part:
        """Returns the problem of these rows, by their numbers below `row_count` and in this order; a row may be taken
        twice."""
        workload = replace(self, **{self.row_field: len(rows)})
        return take_along(workload, rows, dict.fromkeys(range(self._count_row_inputs()), 0), self.row_outputs)

    def take_chunk(self) -> Part | None:
        """Returns the problem of the last queries of each sequence, with the same keys, as the last chunk of a chunked
        prefill has them; None for a family without chunks."""
        return None

    def _count_row_inputs(self) -> int:
        return self.row_inputs

    def _conventions(self) -> dict[str, Any]:
        """Returns, as builtins, what affects a result but is no field, e.g. the scale or the alignment of the mask; {}
        by default."""
        return {}
