"""Where a published attention problem keeps its keys, so that the judge's planted keys can be laid into its inputs.

Recognised are the inputs of FlashInfer-Bench: `q` (T, H, D) with `k` and `v` of packed sequences, or with `k_cache` and
`v_cache` (pages, page size, Hk, D); and latent attention, `q_nope` and `q_pe` with `ckv_cache` and `kpe_cache` (pages,
page size, D), whose scores sum over both parts. `kv_indptr`, `kv_indices` and `kv_last_page_len` say which sequence has
which keys, `qo_indptr` which queries; without it each sequence has one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.problems.trace_schema import TraceDefinition
from pytest_attnperf.workloads.base import Unread
from pytest_attnperf.workloads.garbage import fill_unread
from pytest_attnperf.workloads.planted_keys import plant_keys, plant_strangers

if TYPE_CHECKING:
    import torch

LAYOUTS = (
    (("q",), ("k",), ("v",)),
    (("q",), ("k_cache",), ("v_cache",)),
    (("q_nope", "q_pe"), ("ckv_cache", "kpe_cache"), ()),
)
"""Names of (queries, keys, values) of each layout. In the last one values are the first part of the keys."""

FREE_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class AttentionLayout:
    """The inputs of an attention, by name.

    paged        keys lie in pages that `kv_indices` lists
    packed       queries of several tokens, whose sequences `qo_indptr` bounds
    log_sums     outputs that hold -inf where a row sees no key
    loud         a row may have very large scores: no log-sum-exp is stored in 16 bits
    """

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    values: tuple[str, ...]
    paged: bool
    packed: bool
    causal: bool
    log_sums: tuple[str, ...]
    loud: bool

    def plant(self, inputs: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Returns `inputs` with planted keys. Slots of a cache that no sequence has hold NaN and Inf where their whole
        page is unused, and large numbers behind the last key of a page."""
        q = _join_parts([inputs[name] for name in self.queries])
        k = _join_parts([inputs[name].flatten(0, 1) if self.paged else inputs[name] for name in self.keys])
        q, k = q.view(len(q), -1, q.shape[-1]), k.reshape(len(k), -1, k.shape[-1])
        if q.shape[1] % max(1, k.shape[1]):
            return dict(inputs)
        sequences = self.list_sequences(inputs)
        usual = 1.0 / math.sqrt(q.shape[-1])
        for number, (rows, slots) in enumerate(sequences):
            if rows.start < rows.stop and len(slots):
                own, keys = q[rows][None].clone(), k[slots][None]
                plant_keys(own, keys, causal=self.causal, seed=seed + number, loud=self.loud)
                q[rows], k[slots] = own[0], keys[0]
        if not self.paged and len(sequences) > 1:
            slices = [
                (rows, slice(int(s[0]), int(s[-1]) + 1)) for rows, s in sequences if rows.start < rows.stop and len(s)
            ]
            plant_strangers(q, k, slices, seed=seed)
        scale = float(inputs.get("sm_scale") or usual)
        planted = dict(inputs)
        _write_parts(planted, self.queries, _scale_changed(q, planted, self.queries, usual / scale))
        _write_parts(planted, self.keys, k)
        return self._fill_unused(planted, sequences)

    def list_sequences(self, inputs: Mapping[str, Any]) -> list[tuple[slice, torch.Tensor]]:
        """Returns (its query rows, the slots of its keys in order) of each sequence. Raises UsageError for bounds or
        pages that lie outside of the inputs."""
        import torch

        keys = inputs[self.keys[0]]
        bounds = inputs["kv_indptr"].tolist()
        rows = inputs["qo_indptr"].tolist() if self.packed else list(range(len(bounds)))
        entries = len(inputs["kv_indices"]) if self.paged else len(keys)
        _require_bounds("kv_indptr", bounds, entries)
        _require_bounds("qo_indptr", rows, len(inputs[self.queries[0]]))
        if len(rows) != len(bounds):
            raise UsageError(
                f"qo_indptr has {len(rows)} bounds, kv_indptr {len(bounds)}; they are of the same sequences"
            )
        if not self.paged:
            spans = [torch.arange(a, b, device=keys.device) for a, b in itertools.pairwise(bounds)]
            return [(slice(rows[n], rows[n + 1]), span) for n, span in enumerate(spans)]
        pages, size = inputs["kv_indices"].long(), keys.shape[1]
        if len(pages) and not 0 <= int(pages.min()) <= int(pages.max()) < len(keys):
            raise UsageError(
                f"kv_indices has pages from {int(pages.min())} to {int(pages.max())}; there are {len(keys)}, from 0"
            )
        last = inputs.get("kv_last_page_len")
        found = []
        for number, (first, end) in enumerate(itertools.pairwise(bounds)):
            slots = (pages[first:end, None] * size + torch.arange(size, device=keys.device)).flatten()
            if last is not None and len(slots):
                length = int(last[number])
                if not 0 < length <= size:
                    raise UsageError(f"kv_last_page_len has {length}; a page holds {size} keys")
                slots = slots[: len(slots) - size + length]
            found.append((slice(rows[number], rows[number + 1]), slots))
        return found

    def _fill_unused(self, inputs: dict[str, Any], sequences: list[tuple[slice, torch.Tensor]]) -> dict[str, Any]:
        """Fills slots of the cache that no sequence has."""
        import torch

        if not self.paged:
            return inputs
        pages, size = inputs[self.keys[0]].shape[:2]
        unused = torch.ones(pages * size, dtype=torch.bool, device=inputs[self.keys[0]].device)
        for _, slots in sequences:
            unused[slots] = False
        unused = unused.view(pages, size)
        empty = unused.all(1, keepdim=True).expand_as(unused)
        for name in (*self.keys, *self.values):
            mask = (..., *(None,) * (inputs[name].dim() - 2))
            found = [Unread(0, name, empty[mask]), Unread(0, name, (unused & ~empty)[mask], finite=True)]
            for one in found:
                inputs[name] = fill_unread((inputs[name],), [one], 0).inputs[0]
        return inputs


def find_attention(definition: TraceDefinition) -> AttentionLayout | None:
    """Returns where a definition's keys are; None if it is no attention that is recognised."""
    inputs, outputs = definition.inputs, definition.outputs
    for queries, keys, values in LAYOUTS:
        names = (*queries, *keys, *values, "kv_indptr")
        paged = keys[0].endswith("_cache")
        if not all(name in inputs for name in names) or (paged and "kv_indices" not in inputs):
            continue
        if any(inputs[name].dtype not in FREE_DTYPES for name in names[:-1]):
            return None
        log_sums = tuple(name for name in outputs if name in ("lse", "logsumexp"))
        return AttentionLayout(
            queries, keys, values, paged, packed="qo_indptr" in inputs, causal="causal" in definition.name,
            log_sums=log_sums, loud=all(outputs[name].dtype == "float32" for name in log_sums),
        )  # fmt: skip
    return None


def _join_parts(parts: list[torch.Tensor]) -> torch.Tensor:
    """Returns fp32 copies of the parts side by side along the last axis."""
    import torch

    return torch.cat([part.float() for part in parts], dim=-1)


def _write_parts(inputs: dict[str, Any], names: tuple[str, ...], joined: torch.Tensor) -> None:
    """Replaces the inputs of these names by the parts of `joined`, in their own shapes and dtypes."""
    first = 0
    for name in names:
        old = inputs[name]
        part = joined[..., first : first + old.shape[-1]]
        inputs[name] = part.reshape(old.shape).to(old.dtype)
        first += old.shape[-1]


def _scale_changed(q: torch.Tensor, inputs: dict[str, Any], names: tuple[str, ...], factor: float) -> torch.Tensor:
    """Multiplies the rows that planting changed: it takes the scores' scale for 1 / sqrt(D)."""
    import torch

    before = _join_parts([inputs[name] for name in names]).view_as(q)
    changed = (q != before).any(-1, keepdim=True)
    return torch.where(changed, q * factor, q)


def _require_bounds(name: str, bounds: list[int], most: int) -> None:
    if not bounds or bounds[0] < 0 or bounds[-1] > most or any(a > b for a, b in itertools.pairwise(bounds)):
        raise UsageError(f"{name} is {str(bounds)[:80]}; it must not decrease, and lie between 0 and {most}")
