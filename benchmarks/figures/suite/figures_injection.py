"""Slowdowns whose size is known: what is added to a case under a label, and how it is added.

    calls   every `every`-th call of a block is preceded by an extra one. `rows` 0 repeats the whole call (one in 100
            is exactly 1 %); with `rows` the extra call is the same operator on one batch and that many queries or keys
    inside  our Triton kernel does extra work in every program (see `slowed_flash`)
    copy    the one copy moves a larger buffer by `share`

A block of a one-millisecond kernel holds one to three calls, so "one extra call per 100" cannot be said of it: there
every call is preceded by a small one. What a slice costs does not follow from its share of the work (a launch has a
least duration), so `size_injections.py` chooses it by measuring and records the true size beside the nominal one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from figures_cases import case_name, settings

from pytest_attnperf.testing.saboteurs import Sabotaged

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Prepared, Tensors
    from pytest_attnperf.workloads.base import Workload

KINDS = ("calls", "inside", "copy")


@dataclass(frozen=True)
class Injection:
    """One slowdown. `true` is its measured size as a fraction, with `true_sd` over places; `nominal` was aimed at."""

    kind: str
    nominal: float
    every: int = 1
    rows: int = 0
    extra: int = 0
    share: float = 0.0
    calls_per_block: int = 0
    true: float | None = None
    true_sd: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"injection kind {self.kind!r} is not known; one of {', '.join(KINDS)}")

    def describe(self) -> str:
        """What is added, in words."""
        if self.kind == "inside":
            return f"{self.extra} extra steps in every program of the kernel"
        if self.kind == "copy":
            return f"{100 * self.share:.3g} % more bytes in the one copy"
        what = f"a call on one batch and {self.rows} rows" if self.rows else "a whole extra call"
        return f"{what} before one call in {self.every}"


def injection_for(backend: str, workload: str, label: str) -> Injection | None:
    """What this tree adds to a case under a label; None where its settings name nothing, as in a base tree."""
    stored = settings()["injections"].get(case_name(backend, workload), {}).get(label)
    return Injection(**stored) if stored else None


def slowed(backend: Backend, workload: Workload, label: str) -> Backend:
    """The backend as it runs under this label in this tree."""
    injection = injection_for(backend.name, workload.id, label)
    return backend if injection is None else Slowed(backend, injection)


@dataclass(frozen=True)
class Slowed(Sabotaged):
    """A backend with an injection of kind 'calls' or 'inside'."""

    injection: Injection

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """The honest preparation, its call slowed; the configuration says by what."""
        prepared = self.backend.prepare(workload, inputs)
        if self.injection.kind == "inside":
            from slowed_flash import slowed_call

            call = slowed_call(workload, prepared, self.injection.extra)
        else:
            call = with_extra_calls(prepared.call, self.injection.every, self.injection.rows)
        return replace(prepared, call=call, config={**prepared.config, "injected": self.injection.describe()})


def with_extra_calls(call: Callable[..., Any], every: int, rows: int) -> Callable[..., Any]:
    """`call` with an extra one before the call in the middle of every `every`.

    Counting begins anew with each captured graph, so that a block of c calls holds round(c / every) extra ones
    wherever it was captured.
    """
    captures = capture_counter()
    seen, count = captures(), 0

    def slowed_calls(*tensors: Any) -> Any:
        nonlocal seen, count
        if captures() != seen:
            seen, count = captures(), 0
        if count % every == every // 2:
            call(*(part(tensor, rows) for tensor in tensors) if rows else tensors)
        count += 1
        return call(*tensors)

    return slowed_calls


def part(tensor: Any, rows: int) -> Any:
    """A view of the first batch and the first `rows` rows of (B, H, S, D), or all where there are fewer."""
    return tensor[:1, :, :rows]


_captures = 0


def capture_counter() -> Callable[[], int]:
    """How many CUDA or HIP graph captures this process has begun; 0 for ever without a GPU.

    torch does not say in which capture a call runs, so entering `torch.cuda.graph` is counted.
    """
    import torch

    if not hasattr(torch.cuda.graph, "attnperf_counted"):
        enter = torch.cuda.graph.__enter__

        def counted(self: Any) -> Any:
            global _captures
            _captures += 1
            return enter(self)

        torch.cuda.graph.__enter__ = counted  # type: ignore[method-assign]
        torch.cuda.graph.attnperf_counted = True  # type: ignore[attr-defined]
    return lambda: _captures
