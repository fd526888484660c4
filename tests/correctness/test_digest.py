"""Two figures tell one tensor from another, and not from itself summed in another order."""

from __future__ import annotations

import math

import pytest
import torch

from pytest_attnperf.correctness import scan
from pytest_attnperf.correctness.digest import ROW, compute_digest, compute_input_digests, hash_bits


@pytest.mark.parametrize("size", [1, 7, ROW, ROW + 1, 3 * ROW - 1])
def test_what_changes_an_element_changes_a_figure_and_rounding_does_not(size: int) -> None:
    """One of many, by the root of their number."""
    x = torch.randn(size, generator=torch.Generator().manual_seed(size))
    size_of, projection = compute_digest(x) or (0.0, 0.0)
    assert size_of == pytest.approx(float(x.double().square().mean().sqrt()), rel=1e-5)
    assert compute_digest(x + 1e-6) == pytest.approx((size_of, projection), abs=1e-4)
    other = x.clone()
    other[-1] += 2 * math.sqrt(size)
    assert abs((compute_digest(other) or (0.0, 0.0))[1] - projection) == pytest.approx(2, rel=1e-3)


def test_stretches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the layout in memory; figures are those of this text for ever, because files hold them."""
    x = torch.arange(2.0 * ROW + 5).sin()
    whole = compute_digest(x)
    assert whole == pytest.approx((0.707081, -0.149233), abs=2e-6)
    monkeypatch.setattr(scan, "CHUNK", ROW)
    assert compute_digest(x) == pytest.approx(whole, rel=1e-5)
    square = torch.randn(64, 64)
    assert compute_digest(square.t().contiguous().t()) == compute_digest(square)


def test_what_has_no_size_has_no_figures() -> None:
    """Nothing, zeros, NaN and complex numbers; of the rest finite elements count, of any real type."""
    for none in (torch.zeros(3), torch.empty(0), torch.full((2,), math.nan), torch.ones(2, dtype=torch.complex64)):
        assert compute_digest(none) is None
    assert compute_digest(torch.tensor([math.inf, 3.0, math.nan, 3.0])) == pytest.approx((3.0, 3 * 2**0.5), rel=1e-5)
    named = compute_input_digests(("a", "b"), (torch.ones(2, dtype=torch.bool), torch.zeros(2)))
    assert named.keys() == {"inputs(): a"}
    assert compute_digest(torch.ones(8).to(torch.float8_e4m3fn)) == compute_digest(torch.ones(8))


def test_a_hash_of_bits_knows_every_bit() -> None:
    """Also shape, dtype and order; not the layout in memory."""
    x = torch.randn(6, 4)
    same = hash_bits([x])
    assert len(same) == 16
    assert hash_bits([x.t().contiguous().t()]) == same
    other = x.clone()
    other.view(torch.int32)[5, 3] ^= 1
    assert len({same, hash_bits([other]), hash_bits([x.view(4, 6)]), hash_bits([x.view(torch.int32)])}) == 4
    assert hash_bits([x, other]) != hash_bits([other, x])
    assert hash_bits([torch.empty(0)]) != hash_bits([])
    assert hash_bits([torch.tensor(1.0)]) != hash_bits([torch.tensor(2.0)])
    assert hash_bits([torch.zeros(3).to(torch.float8_e4m3fn)]) != hash_bits([torch.ones(3).to(torch.float8_e4m3fn)])
