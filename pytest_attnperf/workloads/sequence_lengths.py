"""Sequences packed end to end without padding: their lengths as one word, and the base of problems over them.

`8x512_63` is eight sequences of 512 and one of 63.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar, require_positive
from pytest_attnperf.workloads.parts import Part, last_of_each, last_rows, take

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

PATTERN = r"([0-9]+x)?[0-9]+(_([0-9]+x)?[0-9]+)*"
"""Pattern of a word of lengths; also for a text field of `fields.Grammar`."""

SEQUENCES_MAX = 65_536
"""Largest number of sequences of one batch; a larger one is taken for a typing error."""

OFFSET_BYTES = 4
_LENGTHS = {"q": "seqs_q", "kv": "seqs_kv"}


def parse_lengths(text: str) -> tuple[int, ...]:
    """Returns the lengths in a text: `8x512_63` is eight times 512, then 63, in that order. Raises WorkloadError for
    another form, for a length or a count of zero, and for more than SEQUENCES_MAX sequences."""
    if not re.fullmatch(PATTERN, text):
        raise WorkloadError(
            f"sequence lengths {text!r} are malformed; write positive lengths joined by '_', each with an optional "
            "count before it, e.g. '63_1000' or '8x512_63'"
        )
    runs: list[tuple[int, int]] = []
    for word in text.split("_"):
        count, _, length = word.rpartition("x")
        runs.append((int(count or 1), int(length)))
    if any(count == 0 or length == 0 for count, length in runs):
        raise WorkloadError(f"sequence lengths {text!r} hold a zero; every length and every count must be at least 1")
    if (sequences := sum(count for count, _ in runs)) > SEQUENCES_MAX:
        raise WorkloadError(f"sequence lengths {text!r} are {sequences} sequences; at most {SEQUENCES_MAX} are allowed")
    return tuple(length for count, length in runs for _ in range(count))


def format_lengths(lengths: Sequence[int]) -> str:
    """Formats lengths as the word that `parse_lengths` reads; equal lengths in a row are written with a count."""
    runs = ((length, len(list(run))) for length, run in itertools.groupby(lengths))
    return "_".join(f"{count}x{length}" if count > 1 else str(length) for length, count in runs)


def make_grammar(
    family: str,
    *,
    flags: tuple[str, ...],
    dtypes: tuple[str, ...],
    further: Mapping[str, str] | None = None,
    choices: Mapping[str, tuple[str, ...]] | None = None,
    texts: Mapping[str, tuple[str, str]] | None = None,
    unsaid: tuple[str, ...] = (),
) -> Grammar:
    """Returns the grammar of packed sequences' ids: q, kv, h, hk, d, `further` ones that may be 0, dtype, `flags`;
    `choices` and `texts` as in `fields.Grammar`."""
    numbers = {"h": "heads", "hk": "kv_heads", "d": "head_dim"}
    return Grammar(
        family=family,
        numbers={**numbers, **(further or {})},
        required=("q", "h", "d"),
        flags=flags,
        dtypes=dtypes,
        id_required=(),
        choices=choices or {},
        texts={**{short: (name, PATTERN) for short, name in _LENGTHS.items()}, **(texts or {})},
        read=dict.fromkeys(_LENGTHS.values(), parse_lengths),
        same={"kv_heads": "heads"},
        zeros=tuple((further or {}).values()),
        unsaid=unsaid,
    )


@dataclass(frozen=True)
class PackedSequences(FamilyWorkload):
    """One problem over packed sequences; subclasses define the work.

    seqs_q     queries of every sequence, in order; B sequences, Tq queries in total
    heads      H, query heads
    head_dim   D, at most 512
    seqs_kv    keys of every sequence, Tk in total; () means seqs_q. In text they are `kv`, and runs of equal lengths
               are written with their count: `q8x512_63-kv8x1024_63`
    kv_heads   Hk, key and value heads; 0 means H. Query head h reads key head h // (H / Hk)
    dtype      one of the family's
    causal     bottom-right aligned in every sequence: its query row i sees key j iff j <= i + Skv - Sq

    packed_inputs    of each input before the offsets: 'q' or 'kv', whose rows it holds, and the dimension that does
    packed_outputs   the same of each output, by name
    """

    row_field = "batch"
    packed_inputs: ClassVar[tuple[tuple[str, int], ...]]
    packed_outputs: ClassVar[Mapping[str, tuple[str, int]]]

    seqs_q: tuple[int, ...]
    heads: int
    head_dim: int
    seqs_kv: tuple[int, ...] = ()
    kv_heads: int = 0
    dtype: str = "f16"
    causal: bool = False

    def _fill_in(self) -> None:
        self._set_field("seqs_q", tuple(self.seqs_q))
        self._set_field("seqs_kv", tuple(self.seqs_kv) or self.seqs_q)
        super()._fill_in()

    def _require_lengths(self) -> None:
        for name in _LENGTHS.values():
            require_positive(self.family, ((name, length) for length in getattr(self, name) or (0,)))
        if len(self.seqs_q) != len(self.seqs_kv):
            raise WorkloadError(
                f"{self.family} workload: seqs_q and seqs_kv must be equally many, got {len(self.seqs_q)} and "
                f"{len(self.seqs_kv)}"
            )

    def _first_words(self) -> list[str]:
        keys = [f"kv{format_lengths(self.seqs_kv)}"] if self.seqs_kv != self.seqs_q else []
        return [f"q{format_lengths(self.seqs_q)}", *keys]

    @property
    def batch(self) -> int:
        """B, the number of sequences."""
        return len(self.seqs_q)

    @property
    def max_q(self) -> int:
        """Number of queries of the longest sequence."""
        return max(self.seqs_q)

    @property
    def max_kv(self) -> int:
        """Number of keys of the longest sequence."""
        return max(self.seqs_kv)

    def definition(self) -> dict[str, Any]:
        """Returns the fields and conventions that baselines store, with sequence lengths as text, e.g. '8x512_63'."""
        texts = {name: format_lengths(getattr(self, name)) for name in _LENGTHS.values()}
        return super().definition() | texts

    def iterate_slices(self) -> Iterator[tuple[slice, slice]]:
        """Yields (its rows of the packed q, its rows of the packed k) as slices for every sequence, in order."""
        ends = (itertools.pairwise(list_offsets(lengths)) for lengths in (self.seqs_q, self.seqs_kv))
        for rows, keys in zip(*ends, strict=True):
            yield slice(*rows), slice(*keys)

    def take_rows(self, rows: Sequence[int]) -> Part:
        """Returns the problem of these sequences, by number and in this order."""
        return self._take_sequences(rows, chunk=False)

    def _take_sequences(self, numbers: Sequence[int], *, chunk: bool) -> Part:
        """Returns the problem of these sequences; with `chunk` of the last queries of each, with all of its keys."""
        packed = {
            "q": last_of_each(self.seqs_q, numbers, chunk=chunk),
            "kv": last_of_each(self.seqs_kv, numbers, chunk=False),
        }
        lengths = (self.seqs_q[number] for number in numbers)
        seqs_q = tuple(len(last_rows(length)) if chunk else length for length in lengths)
        part = replace(self, seqs_q=seqs_q, seqs_kv=tuple(self.seqs_kv[number] for number in numbers))

        def take_inputs(whole: Tensors) -> Tensors:
            count = len(self.packed_inputs)
            held = (take(tensor, packed[of], dim) for tensor, (of, dim) in zip(whole, self.packed_inputs, strict=False))
            return (*held, *part._make_offsets(str(whole[0].device)), *part._cut_further(whole[count + 2 :]))

        def take_outputs(whole: Outputs) -> Outputs:
            known = {name: place for name, place in self.packed_outputs.items() if name in whole}
            return {name: take(whole[name], packed[of], dim) for name, (of, dim) in known.items()}

        return Part(part, take_inputs, take_outputs)

    def _cut_further(self, further: Tensors) -> Tensors:
        """Returns the inputs behind the offsets, of a problem of more or longer sequences, as this problem has them."""
        return further

    def _make_offsets(self, device: str) -> Iterator[torch.Tensor]:
        """Yields cu_seqlens_q, then cu_seqlens_k: where each sequence begins in the packed rows and where the last
        ends, (B + 1,) int32."""
        import torch

        for lengths in (self.seqs_q, self.seqs_kv):
            yield torch.tensor(list_offsets(lengths), dtype=torch.int32, device=device)


def list_offsets(lengths: Sequence[int]) -> list[int]:
    """Returns where every packed sequence begins, from 0, and, as the last number, where the last one ends."""
    return [0, *itertools.accumulate(lengths)]
