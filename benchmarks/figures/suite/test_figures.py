"""The suite of the figures: every case plain, and some under every label. `collect.py` runs it through the plugin."""

from __future__ import annotations

from typing import Any

import pytest
from figures_cases import LABELS, Group, copy_bytes, groups, injected_groups, settings
from figures_copy import copy_of, reference_of, source_of
from figures_injection import injection_for, slowed

DEVICE = settings()["device"]


def _attention(group: Group, label: str) -> Any:
    """The test of a group under a label; it is named after both, so that -k can choose."""

    def test(attnperf: Any, backend: Any, workload: Any) -> None:
        """The result is right under this label, too."""
        attnperf.run(slowed(backend, workload, label), workload)

    test.__name__ = test.__qualname__ = f"test_{label}_{group.name}"
    marker = pytest.mark.attnperf(
        family="prefill",
        workloads=list(group.workloads),
        backends=list(group.backends),
        label="" if label == "plain" else label,
    )
    return marker(test)


def _copy(label: str) -> Any:
    """The copy under a label."""

    def test(attnperf: Any) -> None:
        """The result is right under this label, too."""
        size = copy_bytes(DEVICE)
        injection = injection_for("gate", "", label)
        attnperf.gate(
            "copy",
            copy_of(size, injection.share if injection else 0.0),
            reference=reference_of(size),
            inputs=source_of(size, DEVICE),
            bytes_min=2.0 * size,
        )

    test.__name__ = test.__qualname__ = f"test_{label}_copy"
    return pytest.mark.attnperf(label="" if label == "plain" else label)(test)


for _label in LABELS:
    for _group in groups(DEVICE) if _label == "plain" else injected_groups(DEVICE):
        globals()[f"test_{_label}_{_group.name}"] = _attention(_group, _label)
    if _label == "plain" or DEVICE == "cpu":
        globals()[f"test_{_label}_copy"] = _copy(_label)
