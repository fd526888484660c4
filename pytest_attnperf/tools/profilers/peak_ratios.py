"""Compares the peaks of two devices, and how much of that advantage a measured speed ratio uses.

A data sheet's peak and a measured ceiling are different figures: a device with its measured ceiling looks worse next to
one with its data sheet's peak. So every figure has its kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.profile_changes import PeakRatio
from pytest_attnperf.roofline.floors import MARGIN, UNRELIABLE

DATA_SHEET = "data sheet"
MEASURED = "measured"
KINDS = (DATA_SHEET, MEASURED)
SHARES_DIFFER = 0.005
"""Advantages that differ by less count as equal."""


@dataclass(frozen=True)
class PeakFigure:
    """A figure of devices that can be compared. No device exceeds `most`; a larger value has another unit."""

    what: str
    unit: str
    most: float


FIGURES: dict[str, PeakFigure] = {
    "mem_gb_s": PeakFigure("DRAM bandwidth", "GB/s", 1e5),
    "cache_gb_s": PeakFigure("cache bandwidth", "GB/s", 1e6),
    "f16_tflops": PeakFigure("f16 matrix rate", "TFLOP/s", 1e5),
    "f8_tflops": PeakFigure("f8 matrix rate", "TFLOP/s", 1e5),
    "f32_tflops": PeakFigure("f32 rate", "TFLOP/s", 1e5),
}
"""Figures by the name that a user gives; the name contains the unit."""

SPEED = "speed"
"""Name of a measured rate of the same work in any unit; only its ratio is used."""


@dataclass(frozen=True)
class Peaks:
    """Figures of one device by their names in `FIGURES`. `kind` is 'data sheet' or 'measured'."""

    figures: Mapping[str, float]
    kind: str = DATA_SHEET

    @classmethod
    def parse(cls, text: str) -> Peaks:
        """Makes Peaks of an option's text, such as 'mem_gb_s=212,f16_tflops=36.9,measured'.

        Raises UsageError for another form, and for figures that no device can have."""
        figures, kind = {}, DATA_SHEET
        for part in filter(None, map(str.strip, text.split(","))):
            name, sign, value = part.partition("=")
            if not sign and part == MEASURED:
                kind = MEASURED
                continue
            try:
                figures[name] = float(value)
            except ValueError as error:
                raise UsageError(
                    f"{part!r} is no peak; give e.g. mem_gb_s=212,f16_tflops=36.9 (and ,measured if they are not "
                    f"from a data sheet); known: {', '.join((*FIGURES, SPEED))}"
                ) from error
        check_peaks(figures, kind)
        return cls(figures, kind)


def peak_ratios(
    own: Mapping[str, float],
    other: Mapping[str, float],
    *,
    own_kind: str = DATA_SHEET,
    other_kind: str = DATA_SHEET,
    speed_unit: str = "1/s",
) -> tuple[PeakRatio, ...]:
    """Returns the ratio (other / own) of every figure that both devices have, as `FIGURES` orders them, speed last.

    Raises UsageError for an unknown figure, and for a value that no device can have."""
    for side, kind in ((own, own_kind), (other, other_kind)):
        check_peaks(side, kind)
    ratios = [
        PeakRatio(figure.what, own[name], other[name], figure.unit, own_kind, other_kind)
        for name, figure in FIGURES.items()
        if name in own and name in other
    ]
    if SPEED in own and SPEED in other:
        ratios.append(PeakRatio(SPEED, own[SPEED], other[SPEED], speed_unit, MEASURED, MEASURED))
    return tuple(ratios)


def check_peaks(peaks: Mapping[str, float], kind: str, spec: DeviceSpec | None = None) -> None:
    """Raises UsageError for impossible peaks: unknown, not above 0, above every device's, or above those of `spec`."""
    if kind not in KINDS:
        raise UsageError(f"a peak's kind is {kind!r}; known: {', '.join(KINDS)}")
    limits = _compute_limits(spec) if spec else {}
    for name, value in peaks.items():
        if name != SPEED and name not in FIGURES:
            raise UsageError(f"peak {name!r} is not known; known: {', '.join((*FIGURES, SPEED))}")
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"the peak {name} is {value:g}, must be finite and above 0")
        if name in FIGURES and value > FIGURES[name].most:
            figure = FIGURES[name]
            raise UsageError(
                f"{name} {value:g}: no device has more {figure.what} than {figure.most:g} {figure.unit}; is the value "
                "in another unit?"
            )
        if spec and name in limits and value > limits[name] * (1 + MARGIN):
            raise UsageError(
                f"{name} {value:g}: {spec.name} has at most {limits[name]:.4g}, by its data sheet and maximum clock"
            )


def spec_peaks(spec: DeviceSpec) -> Peaks:
    """Returns the data sheet's bandwidth and, if known, f16 rate of a device; no figures if they are not reliable."""
    if spec.confidence == UNRELIABLE:
        return Peaks({})
    return Peaks({"mem_gb_s": spec.mem_gb_s} | ({"f16_tflops": spec.f16_tflops} if spec.f16_tflops else {}))


def _compute_limits(spec: DeviceSpec) -> dict[str, float]:
    """Returns the device's bandwidth and, if known, f16 rate at the maximum clock; {} without reliable data."""
    if spec.confidence == UNRELIABLE:
        return {}
    rate = spec.peak_flops("f16")
    return {"mem_gb_s": spec.mem_gb_s} | ({"f16_tflops": rate / 1e12} if rate else {})


def describe_mixed_kinds(ratios: Sequence[PeakRatio]) -> tuple[str, ...]:
    """Returns a sentence for every ratio that compares a data sheet's figure with a measured one."""
    return tuple(
        f"{ratio.what}: {ratio.own:.4g} {ratio.unit} is {_format_kind(ratio.own_kind)} and {ratio.other:.4g} "
        f"{ratio.unit} "
        f"{_format_kind(ratio.other_kind)}: the ratio {ratio.ratio:.2f} compares different kinds"
        for ratio in ratios
        if ratio.own_kind != ratio.other_kind
    )


def describe_advantage(ratios: Sequence[PeakRatio]) -> str:
    """Returns '1.71 x as fast with 3.17 x the bandwidth: 54% ...', where the share is the speed ratio over the peak's
    ratio; '' without ratios of speed or of a peak."""
    speed = next((ratio.ratio for ratio in ratios if ratio.what == SPEED), None)
    peaks = [ratio for ratio in ratios if ratio.what != SPEED]
    if speed is None or not peaks:
        return ""
    having = _join_words([f"{ratio.ratio:.2f} x the {ratio.what}" for ratio in peaks])
    shares = [speed / ratio.ratio for ratio in peaks]
    if max(shares) - min(shares) < SHARES_DIFFER:
        used = f"{shares[0]:.0%} of each of these ratios"
    else:
        used = _join_words(
            [f"{share:.0%} of the ratio in {ratio.what}" for share, ratio in zip(shares, peaks, strict=True)]
        )
    return f"{speed:.2f} x as fast with {having}: {used}"


def _format_kind(kind: str) -> str:
    return "from a data sheet" if kind == DATA_SHEET else "measured"


def _join_words(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
