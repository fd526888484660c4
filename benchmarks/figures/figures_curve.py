"""Detection curves as a plot of characters, and as SVG or PNG where matplotlib is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WIDTH = 50


def text_plot(curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """A bar for every (size, share caught), both fractions, curve by curve."""
    lines = []
    for name, points in curves.items():
        lines.append(f"{name}: share caught by true slowdown")
        lines += [
            f"  {100 * size:5.2f} % |{'#' * round(share * WIDTH):<{WIDTH}}| {100 * share:6.2f} %"
            for size, share in points
        ]
    return "\n".join(lines)


def save_plot(curves: Mapping[str, Sequence[tuple[float, float]]], path: Path) -> str:
    """Write the curves as the kind of picture `path` ends with; returns what was done, or why not."""
    if importlib.util.find_spec("matplotlib") is None:
        return f"{path}: not written, matplotlib is not installed; the plot of characters says the same"
    figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, points in curves.items():
        axes.plot([100 * size for size, _ in points], [100 * share for _, share in points], marker="o", label=name)
    axes.set_xlabel("true slowdown, %")
    axes.set_ylabel("caught, %")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path)
    return f"{path}: written"
