"""Whether elements follow an input in proportion, as those do that were moved, cast or scaled; an exp does not.

Each is looked at for an input x, for -x/2 and for x/4. A straight line through the first two says what the third is.
Scales and what is divided by them are on no line, because they know no sign, but go with a power of the input. Factors
that are powers of two leave every rounding as it is, so that honest casts and scales are exact, and quantisation with
a scale of its tensor, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FACTORS = (1.0, -0.5, 0.25)
"""What the input is multiplied by; in this order everywhere here."""

STEPS = 2
"""Rounding steps of the narrower type, of the sizes of all three, that an element may be off by."""

SHARE = 0.05
"""More than this share of the elements must be off: some may be too small for their type to be halved exactly."""

SAMPLE = 2**16
"""Elements that are looked at, drawn at random."""

LEVELS = 256
"""So few different values are 8-bit ones with a scale that does not go with the tensor: rounded on purpose."""


def strays(seen: tuple[torch.Tensor, ...], changed: torch.Tensor, dtype: torch.dtype) -> int:
    """How many of the elements that changed do not follow the input in proportion; 0 where some may not.

    seen      what came of the input multiplied by each of FACTORS
    changed   where that follows from the input at all
    dtype     the input's
    """
    import torch

    given = {tensor.dtype for tensor in seen}
    if len(given) > 1 or any(tensor.shape != changed.shape for tensor in seen):
        return 0
    if not (is_wide(dtype) and is_wide(seen[0].dtype)):  # 8-bit ones cannot be halved exactly
        return 0
    places = _sampled(changed)
    one, half, quarter = (tensor.reshape(-1)[places].double() for tensor in seen)
    levels = len(one.unique())  # type: ignore[no-untyped-call]
    if levels <= min(LEVELS, len(places) // 2):
        return 0
    limits = torch.finfo(seen[0].dtype)
    size = one.abs() + half.abs() + quarter.abs()
    allowed = STEPS * max(limits.eps, torch.finfo(dtype).eps) * size + 4 * limits.smallest_normal * limits.eps
    fits = ((one + half) / 2 - quarter).abs() <= allowed
    for power in (-1, 0, 1):
        halved = (half.abs() - one.abs() * 0.5**power).abs() <= allowed
        fits |= halved & ((quarter.abs() - one.abs() * 0.25**power).abs() <= allowed)
    off = int((~fits & size.isfinite()).sum())
    return off if off > SHARE * len(places) else 0


def is_wide(dtype: torch.dtype) -> bool:
    """Floating point of two bytes or more."""
    return dtype.is_floating_point and dtype.itemsize >= 2


def _sampled(changed: torch.Tensor) -> torch.Tensor:
    """Places of elements that changed, in the flattened tensor, from all or from as many as SAMPLE."""
    import torch

    count, flat = changed.numel(), changed.reshape(-1)
    if count <= SAMPLE:
        return flat.nonzero()[:, 0]
    generator = torch.Generator()
    generator.seed()
    places = torch.randint(count, (SAMPLE,), generator=generator).to(changed.device)
    return places[flat[places]]
