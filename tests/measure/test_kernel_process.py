"""The process that serves a kernel: what it loads, and what it says of results and errors."""

from __future__ import annotations

import pytest

from pytest_attnperf.errors import UnsupportedError
from pytest_attnperf.measure.kernel_process import describe_error, describe_outputs

torch = pytest.importorskip("torch")


def test_what_is_no_tensor_is_refused() -> None:
    """With its kind and its name."""
    with pytest.raises(TypeError, match="the kernel returned a str as 'out1'; it must return tensors or numbers"):
        describe_outputs((torch.ones(1), "text"), "cpu")


def test_outputs_are_dense() -> None:
    """Views, conjugates and numbers become tensors of their own."""
    x = torch.arange(6.0).reshape(2, 3)
    message, tensors = describe_outputs((x.T, torch.complex(x, x).conj(), 2.5), "cpu")
    assert [one["shape"] for one in message["outputs"]] == [(3, 2), (2, 3), ()]
    assert all(tensor.is_contiguous() and not tensor.is_conj() for tensor in tensors)
    assert torch.equal(tensors[0], x.T)


class Hostile(Exception):
    """An error that raises when it is described."""

    def __str__(self) -> str:
        raise RuntimeError("again")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("first\nsecond"), "ValueError: first"),
        (UnsupportedError("it needs a GPU"), "it needs a GPU"),
        (Hostile(), "Hostile: its text cannot be read"),
        (KeyError("x" * 9000), f"KeyError: '{'x' * 1989}"),
    ],
)
def test_errors_are_one_line(error: Exception, text: str) -> None:
    """Of at most 2,000 letters, whatever its class does."""
    assert describe_error(error) == text
