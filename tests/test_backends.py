from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.triton.prefill import TritonFlash
from pytest_attnperf.backends import Backend, Pinnable, pinned


class Fixed:
    """A backend without choices: only what `pinned` looks at."""


class Choosing(Fixed):
    """One that chooses."""

    def __init__(self, chosen: str = "own") -> None:
        self.chosen = chosen

    def pinned(self, config: Mapping[str, str]) -> Any:
        """Take what is stored."""
        return Choosing(config["chosen"])


def test_a_backend_with_a_choice_replays_it() -> None:
    """What has `pinned` is asked for itself with the stored configuration."""
    own: Any = Choosing()
    replayed: Any = pinned(own, {"chosen": "stored"})
    assert (own.chosen, replayed.chosen) == ("own", "stored")


def test_a_backend_without_a_choice_stays_as_it_is() -> None:
    """What makes no choice is given back unchanged."""
    fixed: Any = Fixed()
    assert pinned(fixed, {"chosen": "stored"}) is fixed


def test_a_backend_of_ours_is_both() -> None:
    """The protocols can be asked at run time."""
    backend = TritonFlash("triton.flash")
    assert isinstance(backend, Backend)
    assert isinstance(backend, Pinnable)
    assert not isinstance(Fixed(), Pinnable)
