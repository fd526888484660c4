"""Launch configurations of the Triton kernels, read from the JSON files beside this one.

A gated run never autotunes: a configuration picked by timing would make two runs compare different kernels. The files
hold a list of rules per architecture; the first rule that takes the problem is used, and `source` says where it comes
from. An architecture without rules of its own uses those of 'default', and the result records that it did.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_attnperf.errors import AttnperfError, UsageError

PREFILL_FORWARD = Path(__file__).parent / "configs" / "prefill_forward.json"
SCHEMA = 1
REQUIRED = frozenset({"BLOCK_M", "BLOCK_N", "PRELOAD_V", "num_warps", "num_stages"})
ALLOWED = REQUIRED | {"waves_per_eu"}
BOOLEANS = frozenset({"PRELOAD_V"})

PINNED = "pinned: "
"""Begins the source of a configuration that was replayed from a baseline instead of read from a file."""


class KernelConfigError(AttnperfError):
    """A configuration file is malformed, or holds no rule for a problem; names the file and the rule."""


@dataclass(frozen=True)
class Rule:
    """One configuration and the problems it is for.

    head_dim_max    largest head dimension it takes
    causal          True or False for one of them, None for either
    element_bits    16 (fp16, bf16) or 32
    config          block sizes, and the compiler's options
    source          the measurement or publication the figures come from
    """

    head_dim_max: int
    causal: bool | None
    element_bits: int
    config: dict[str, Any]
    source: str

    def takes(self, head_dim: int, causal: bool, element_bits: int) -> bool:
        """Whether this rule is for such a problem."""
        return head_dim <= self.head_dim_max and self.causal in (None, causal) and element_bits == self.element_bits


@dataclass(frozen=True)
class Choice:
    """The rule picked for a problem, and the architecture whose list it stands in ('default' if not its own).

    One that was replayed has a rule of its own, which takes no problem but this.
    """

    arch: str
    rule: Rule


def choose(arch: str, head_dim: int, *, causal: bool, element_bits: int, path: Path = PREFILL_FORWARD) -> Choice:
    """The first rule of `arch`, or of 'default', that takes the problem. Raises KernelConfigError when none does."""
    rules = load(path)
    listed = arch if arch in rules else "default"
    for rule in rules[listed]:
        if rule.takes(head_dim, causal, element_bits):
            return Choice(listed, rule)
    held = ", ".join(f"{r.element_bits}-bit up to {r.head_dim_max}" for r in rules[listed])
    raise KernelConfigError(
        f"{path}: {listed} has no rule for head_dim {head_dim}, {'causal' if causal else 'not causal'}, "
        f"{element_bits}-bit elements; it has: {held}. Add one, with its source"
    )


def replayed(stored: Mapping[str, str]) -> Choice:
    """The choice that a stored `Prepared.config` holds, whatever the files say now.

    Raises UsageError where a value is missing, or is none that a configuration can have.
    """
    missing = sorted(REQUIRED - stored.keys())
    if missing:
        raise UsageError(
            f"the stored configuration lacks {', '.join(missing)}; it has {', '.join(sorted(stored)) or 'nothing'}; "
            "record the baseline again, or run without --attnperf-pin-config"
        )
    config = {name: _stored_value(name, stored[name]) for name in sorted(ALLOWED & stored.keys())}
    source = stored.get("config_source", "unknown").removeprefix(PINNED)
    return Choice(
        stored.get("config_arch", "unknown"),
        Rule(head_dim_max=0, causal=None, element_bits=0, config=config, source=PINNED + source),
    )


def _stored_value(name: str, text: str) -> Any:
    if name in BOOLEANS and text in ("True", "False"):
        return text == "True"
    if name not in BOOLEANS and text.isdecimal() and int(text) > 0:
        return int(text)
    wanted = "True or False" if name in BOOLEANS else "a positive whole number"
    raise UsageError(
        f"the stored configuration has {name} = {text!r}, which is not {wanted}; record the baseline again, or run "
        "without --attnperf-pin-config"
    )


@functools.cache
def load(path: Path) -> dict[str, tuple[Rule, ...]]:
    """All rules by architecture, checked. Raises KernelConfigError naming file, architecture and rule."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KernelConfigError(f"{path}: cannot be read as JSON ({error}); restore it or write it anew") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise KernelConfigError(f"{path}: schema is {found!r}, this version reads {SCHEMA}; update one of the two")
    archs = document.get("archs")
    if not isinstance(archs, dict) or "default" not in archs:
        raise KernelConfigError(f"{path}: 'archs' must be an object with an entry 'default' for all that is not listed")
    return {arch: tuple(_rule(path, arch, i, entry) for i, entry in enumerate(rules)) for arch, rules in archs.items()}


def _rule(path: Path, arch: str, index: int, entry: Any) -> Rule:
    where = f"{path}: {arch}[{index}]"
    fields = {"head_dim_max", "causal", "element_bits", "config", "source"}
    if not isinstance(entry, dict) or entry.keys() != fields:
        found = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        raise KernelConfigError(f"{where} has {found}, needs exactly {sorted(fields)}")
    config = entry["config"]
    missing, unknown = sorted(REQUIRED - config.keys()), sorted(config.keys() - ALLOWED)
    if missing or unknown:
        raise KernelConfigError(f"{where}.config lacks {missing} and has unknown {unknown}; known: {sorted(ALLOWED)}")
    if not entry["source"]:
        raise KernelConfigError(f"{where} has no source; say which measurement or publication its figures come from")
    return Rule(**entry)


def padded_head_dim(head_dim: int) -> int:
    """The next power of two, at least the 16 that a matrix instruction needs."""
    return max(16, 1 << (head_dim - 1).bit_length())
