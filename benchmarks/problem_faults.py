"""Faults of solutions to published problems: each is the definition's own reference with one thing wrong.

A fault is code that follows the reference; it calls `right(*inputs)` with inputs changed, or changes the result. So it
fits any definition that has the inputs it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HEAD = """
import inspect, torch
right = run
NAMES = list(inspect.signature(right).parameters)
SEEN = {}
def by_name(args):
    return dict(zip(NAMES, args))
def again(given, **changed):
    return right(*{**given, **changed}.values())
"""


@dataclass(frozen=True)
class Fault:
    """A fault. `needs` are inputs and outputs (with a '>' before) that a definition must have; its name must hold
    `named`. `body` is that of `def run(*args)`, with `given` the inputs by name."""

    name: str
    needs: tuple[str, ...]
    body: str
    named: str = ""

    def fits(self, definition: Mapping[str, Any]) -> bool:
        """Whether a definition has what the fault needs."""
        known = {*definition["inputs"], *(f">{name}" for name in definition["outputs"])}
        return self.named in definition["name"] and all(need in known for need in self.needs)

    def write(self, reference: str) -> str:
        """The faulty solution."""
        body = "".join(f"    {line}\n" for line in ["given = by_name(args)", *self.body.strip().splitlines()])
        return f"{reference}\n{HEAD}\ndef run(*args):\n{body}"


LAST_PAGE = """
bounds = given["kv_indptr"].tolist()
last = given["kv_last_page_len"].clone()
last[last > 1] -= 1
return again(given, kv_last_page_len=last)
"""
LAST_KEY = """
bounds = given["kv_indptr"].tolist()
kept, sizes = [], [0]
for a, b in zip(bounds, bounds[1:]):
    kept.append(given["kv_indices"][a : max(b - 1, min(a + 1, b))])
    sizes.append(sizes[-1] + len(kept[-1]))
found = again(given, kv_indices=torch.cat(kept), kv_indptr=torch.tensor(sizes, dtype=torch.int32))
return found
"""
NEIGHBOUR = """
bounds = given["kv_indptr"].clone()
bounds[1:-1] = torch.minimum(bounds[1:-1] + 1, bounds[2:])
return again(given, kv_indptr=bounds)
"""
SWAPPED = """
q = given["{q}"]
heads = torch.arange(q.shape[1]).view({kv}, -1).T.reshape(-1)
swapped = again(given, {q}=q[:, heads])
back = torch.argsort(heads)
return swapped[0][:, back], swapped[1][:, back]
"""
FULL_PAGES = """
size = given["{}"].shape[1]
return again(given, kv_last_page_len=torch.full_like(given["kv_last_page_len"], size))
"""
RESULT = "found = again(given)\nfound = list(found) if isinstance(found, (tuple, list)) else [found]\n"
RETURN = "\nreturn tuple(found) if len(found) > 1 else found[0]"

FAULTS = (
    Fault("zeros", (), RESULT + "found = [torch.zeros_like(one) for one in found]" + RETURN),
    Fault("stale_output", (), 'SEEN.setdefault("found", again(given))\nreturn SEEN["found"]'),
    Fault("first_row_unwritten", (), RESULT + "found[0] = found[0].clone()\nfound[0][0] = 0" + RETURN),
    Fault("two_percent_large", (), RESULT + "found[0] = (found[0] * 1.02).to(found[0].dtype)" + RETURN),
    Fault("missing_scale", ("sm_scale",), "return again(given, sm_scale=1.0)"),
    Fault("scale_of_two_percent", ("sm_scale",), 'return again(given, sm_scale=given["sm_scale"] * 1.02)'),
    Fault("lse_in_base_e", (">lse",), "found = again(given)\nreturn found[0], found[1] * 0.6931471805599453"),
    Fault("skips_last_key", ("kv_indices", "kv_last_page_len"), LAST_PAGE),
    Fault("skips_last_key", ("kv_indices",), LAST_KEY, named="ps1"),
    Fault("ignores_page_length", ("kv_last_page_len", "k_cache"),
          FULL_PAGES.format("k_cache")),
    Fault("ignores_page_length", ("kv_last_page_len", "ckv_cache"),
          FULL_PAGES.format("ckv_cache")),
    Fault("page_off_by_one", ("kv_indices", "k_cache"),
          'return again(given, kv_indices=(given["kv_indices"] + 1) % len(given["k_cache"]))'),
    Fault("page_off_by_one", ("kv_indices", "ckv_cache"),
          'return again(given, kv_indices=(given["kv_indices"] + 1) % len(given["ckv_cache"]))'),
    Fault("reads_next_sequence", ("kv_indptr", "k"), NEIGHBOUR),
    Fault("bounds_off_by_one", ("qo_indptr",),
          'q = given["qo_indptr"].clone()\nq[1] -= 1\nreturn again(given, qo_indptr=q)'),
    Fault("swapped_heads", ("q", "k"), SWAPPED.format(q="q", kv='given["k"].shape[1]')),
    Fault("swapped_heads", ("q", "k_cache"), SWAPPED.format(q="q", kv='given["k_cache"].shape[2]')),
    Fault("heads_one_off", ("q_pe",), 'return again(given, q_pe=given["q_pe"].roll(1, 1))'),
    Fault("no_rope_part", ("q_pe",), 'return again(given, q_pe=torch.zeros_like(given["q_pe"]))'),
    Fault("fp8_queries", ("q",), 'return again(given, q=given["q"].to(torch.float8_e4m3fn).to(given["q"].dtype))'),
    Fault("clamped_scores", ("q", "sm_scale"), 'return again(given, q=given["q"].clamp(-3, 3))'),
    Fault("lost_column_of_a", ("A", "B"), 'a = given["A"].clone()\na[:, -1] = 0\nreturn again(given, A=a)'),
    Fault("lost_tile_of_k", ("A", "B"), 'a = given["A"].clone()\na[:, -16:] = 0\nreturn again(given, A=a)'),
    Fault("fp16_accumulate", ("A", "B"), """
a, b = given["A"], given["B"]
found = torch.zeros(len(a), len(b), dtype=a.dtype)
for first in range(0, a.shape[1], 16):
    found += a[:, first : first + 16] @ b[:, first : first + 16].T
return found
"""),
    Fault("swapped_columns", ("A", "B"), 'return again(given).roll(1, 1)'),
    Fault("no_weight", ("hidden_states", "weight"), 'return again(given, weight=torch.ones_like(given["weight"]))'),
    Fault("lost_last_column", ("hidden_states", "weight"), """
found = again(given)
x = given["hidden_states"].float() + (given["residual"].float() if "residual" in given else 0)
n = x.shape[-1]
factor = (x.square().mean(-1, keepdim=True) / (x[:, :-1].square().sum(-1, keepdim=True) / n)).sqrt()
return (found.float() * factor).to(found.dtype)
"""),
    Fault("large_eps", ("hidden_states", "weight"), """
x = given["hidden_states"].float() + (given["residual"].float() if "residual" in given else 0)
y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3)
return (y * given["weight"].float()).to(given["hidden_states"].dtype)
"""),
    Fault("no_residual", ("hidden_states", "residual"),
          'return again(given, residual=torch.zeros_like(given["residual"]))'),
)  # fmt: skip


def list_faults(definition: Mapping[str, Any]) -> list[Fault]:
    """The faults that fit a definition."""
    found = [fault for fault in FAULTS if fault.fits(definition)]
    alone = definition["axes"].get("num_kv_heads", {}).get("value")
    same = alone is not None and alone in (1, definition["axes"]["num_qo_heads"]["value"])
    return [fault for fault in found if not (same and fault.name == "swapped_heads")]
