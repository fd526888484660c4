"""Which cases the figures are about, under which labels, and what a tree's `settings.json` says of them.

Every case exists plain; those of INJECTED also slowed by about half, one, three and five per cent. A tree without
`settings.json` is the GPU's suite with every injection switched off: so the base tree of a pair is a copy without that
file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETTINGS = Path(__file__).with_name("settings.json")

LABELS = {"plain": 0.0, "slow05": 0.005, "slow1": 0.01, "slow3": 0.03, "slow5": 0.05}
"""Label -> nominal slowdown as a fraction. The true one is measured by `size_injections.py` and printed."""

LIBRARIES = ("native.sdpa_flash", "native.sdpa_cudnn")
PREFILL = (
    "prefill-b4-s512-h8-d256-f16-causal",
    "prefill-b4-s4096-h8-d256-f16-causal",
    "prefill-b4-s1024-h8-d64-f16-causal",
    "prefill-b1-s16-h4-d32-f16-causal",
    "prefill-b4-s4096-h32-d128-f16-causal",
)
DECODE = "prefill-b64-s1-kv4096-h32-d128-f16"
OUR_PREFILL = PREFILL[:3]

INJECTED = (
    ("native.sdpa_flash", PREFILL[0]),
    ("native.sdpa_cudnn", PREFILL[2]),
    ("native.sdpa_flash", PREFILL[3]),
    ("triton.flash", PREFILL[2]),
)
"""Cases that are slowed on a GPU: of both libraries and our own. Blocks of the shortest hold hundreds of calls, so that
one extra in a hundred is exactly 1 %. A long call at the power cap does not become slower by what is added to it, nor
does a memory-bound one by calls on a slice (both were tried): no true size can be stated there."""

CPU_PREFILL = ("prefill-b1-s64-h2-d32-f32-causal", "prefill-b1-s128-h2-d32-f32-causal")

COPY_BYTES = 256 << 20
CPU_COPY_BYTES = 1 << 20
COPY = "copy"


@dataclass(frozen=True)
class Group:
    """Cases of one test function: every backend on every workload id."""

    name: str
    backends: tuple[str, ...]
    workloads: tuple[str, ...]

    @property
    def cases(self) -> list[tuple[str, str]]:
        """(backend, workload id) in the order of the suite."""
        return [(backend, workload) for workload in self.workloads for backend in self.backends]


def groups(device: str) -> tuple[Group, ...]:
    """What is measured on 'gpu' or 'cpu'; the copy is beside these."""
    if device == "cpu":
        return (Group("prefill", ("native.eager_fp32", "native.sdpa_flash"), CPU_PREFILL),)
    return (
        Group("prefill", LIBRARIES, PREFILL),
        Group("decode", LIBRARIES[:1], (DECODE,)),
        Group("ours", ("triton.flash",), OUR_PREFILL),
    )


def injected_groups(device: str) -> tuple[Group, ...]:
    """What is measured slowed: on a GPU every case of INJECTED by itself, on a CPU everything."""
    if device == "cpu":
        return groups(device)
    return tuple(Group(f"case{index}", (backend,), (workload,)) for index, (backend, workload) in enumerate(INJECTED))


def copy_bytes(device: str) -> int:
    """Bytes read by the copy."""
    return CPU_COPY_BYTES if device == "cpu" else COPY_BYTES


def case_name(backend: str, workload: str) -> str:
    """What the figures call a case, whatever its label: 'native.sdpa_flash/prefill-...', or 'copy'."""
    return COPY if backend == "gate" else f"{backend}/{workload}"


def settings(path: Path = SETTINGS) -> dict[str, Any]:
    """{'device': 'gpu' | 'cpu', 'injections': {case: {label: {...}}}}; the defaults where there is no such file."""
    if not path.exists():
        return {"device": "gpu", "injections": {}}
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded
