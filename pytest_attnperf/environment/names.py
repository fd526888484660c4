"""Product names as vendors print them -> the slug that names a folder of baselines."""

from __future__ import annotations

import re

_VENDOR = re.compile(r"^(NVIDIA|AMD|Advanced Micro Devices)\b,?\s*", re.IGNORECASE)
_INSTINCT = re.compile(r"\bMI\d{3}[AX]?\b", re.IGNORECASE)


def slug(text: str) -> str:
    """Lower case, runs of anything but letters and digits as one hyphen: 'H100 80GB HBM3' -> 'h100-80gb-hbm3'."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def gpu_product(name: str) -> str:
    """'NVIDIA H200' -> 'h200', 'AMD Instinct MI300X VF' -> 'mi300x', 'NVIDIA H100 PCIe' -> 'h100-pcie'.

    NVIDIA's suffix stays: PCIe, NVL and SXM boards of one name differ in clock and memory. AMD's is dropped after an
    Instinct model, because it only says how the card is passed through.
    """
    instinct = _INSTINCT.search(name)
    return instinct[0].lower() if instinct else slug(_VENDOR.sub("", name.strip()))
