"""A liar and its honest twin: two prefill backends that differ by one trick, on the one workload that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_attnperf.backends import Backend, Declares, Outputs, Prepared, Tensors
from pytest_attnperf.records import DeviceInfo, Tolerance, Verdict
from pytest_attnperf.testing.liars.honest import prepare_attention, take_outputs
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.prefill import Prefill

Kernel = Callable[[Prefill, Tensors], Callable[..., Any]]
"""Takes a workload and its timed inputs, and makes the call that is judged and timed."""

Packing = tuple[Callable[[Tensors], Tensors], Callable[..., Any]]
"""The conversion of inputs into a layout, and the call that takes that layout."""

OFF = r"'out' is off by"
"""Clue of a liar that writes everything, but wrong values."""

UNWRITTEN = r"'out' (holds|is off by)"
"""Clue of a liar that does not write some memory: it keeps the judge's NaN, or its old content."""

WHILE_READ = r"(while the result|when it) is read"
"""Clue of a liar that computes after the timed call, while the result is read."""


@dataclass(frozen=True)
class OneWorkload(Backend[Prefill]):
    """A prefill backend in the canonical layout that supports exactly one workload; where it declares `invariant`, also
    parts of it: other batches, and fewer queries over the same keys.

    name       as registered, `liar.<trick>` or `twin.<trick>`
    workload   the only one supported
    kernel     makes the timed call
    outputs    makes canonical outputs of what the call returned
    declares   what it declares to run
    device     'gpu' or 'cpu' where it runs on these only, '' where it runs anywhere
    packs      in place of `kernel`, for a backend with its own layout
    """

    families = ("prefill",)
    workload: Prefill
    kernel: Kernel
    outputs: Callable[[Any], Outputs] = take_outputs
    declares: Declares = field(default_factory=Declares)
    device: str = ""
    packs: Callable[[Prefill], Packing] | None = None
    cpu_flops_max: float = field(init=False)
    times_on_cpu: bool = field(default=True, init=False)
    tolerance: Tolerance = field(default_factory=Tolerance, kw_only=True)

    def __post_init__(self) -> None:
        """Sets `cpu_flops_max` so that its own workload may run on a CPU; 0 if it needs a GPU."""
        object.__setattr__(self, "cpu_flops_max", 0.0 if self.device == "gpu" else self.workload.flops)

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """Returns, in words, why it cannot run: any workload but its own, and a device on which the trick does not
        work."""
        found, own = [], self.workload
        if self.invariant and isinstance(workload, Prefill):
            own = replace(own, batch=workload.batch, seq_q=workload.seq_q)
        if workload != own:
            found.append(f"{self.name} is made for {self.workload.id} only, not for {workload.id}")
        if self.device and self.device != ("cpu" if device.kind == "cpu" else "gpu"):
            found.append(f"{self.name} needs a {self.device.upper()}, this is {device.kind}")
        return found

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """Returns the call that `kernel` makes, with copies of the inputs; with `packs`, the call and layout that it
        gives."""
        assert isinstance(workload, Prefill)
        convert, call = (
            (lambda given: given, self.kernel(workload, inputs)) if self.packs is None else self.packs(workload)
        )
        return Prepared(
            call=call,
            tensors=tuple(tensor.clone() for tensor in convert(inputs)),
            convert=convert,
            outputs=self.outputs,
            declares=self.declares,
        )


@dataclass(frozen=True)
class Liar:
    """One trick, and the judge's required answer.

    trick         its name, snake_case
    says          the trick in one sentence
    workload      that shows the trick; the twin is right on the same one
    clue          regular expression that the failure's text, which names the trick's effect, must match
    lying         the backend with the trick, named `liar.<trick>`
    honest        the same without it, named `twin.<trick>`
    verdict       of the liar
    needs_gpu     the trick does not exist on a CPU
    needs_cpu     the trick runs on the host in every call, which no GPU graph does
    needs_timing  right whenever it is only checked; the verdict comes from a timed run
    needs_trial   right unless it is proven again by this trial; '' if the usual proof shows it
    """

    trick: str
    says: str
    workload: Prefill
    clue: str
    lying: Backend
    honest: Backend
    verdict: Verdict = Verdict.INCORRECT
    needs_gpu: bool = False
    needs_cpu: bool = False
    needs_timing: bool = False
    needs_trial: str = ""

    @property
    def as_honest(self) -> Backend:
        """Returns the honest counterpart under the liar's name, to record a baseline with which the liar is
        compared."""
        assert isinstance(self.honest, OneWorkload)
        return replace(self.honest, name=self.lying.name)


def make_liar(
    trick: str,
    says: str,
    workload: Prefill,
    kernel: Kernel,
    clue: str,
    *,
    twin: Kernel = prepare_attention,
    outputs: Callable[[Any], Outputs] = take_outputs,
    packs: tuple[Callable[[Prefill], Packing], Callable[[Prefill], Packing]] | None = None,
    declares: Declares | None = None,
    invariant: bool = False,
    verdict: Verdict = Verdict.INCORRECT,
    needs_gpu: bool = False,
    needs_cpu: bool = False,
    needs_timing: bool = False,
    needs_trial: str = "",
) -> Liar:
    """Returns a liar (a backend that cheats by `trick`) made of `kernel`, with an honest counterpart made of `twin`; or
    both of `packs`: the liar's, the counterpart's. Only the liar uses `outputs`; both use `declares`, `invariant`."""
    lying_packs, honest_packs = packs or (None, None)
    said = declares or Declares()
    device = "gpu" if needs_gpu else "cpu" if needs_cpu else ""
    both: Any = {"declares": said, "device": device, "invariant": invariant}
    return Liar(
        trick=trick,
        says=says,
        workload=workload,
        clue=clue,
        lying=OneWorkload(f"liar.{trick}", workload, kernel, outputs, packs=lying_packs, **both),
        honest=OneWorkload(f"twin.{trick}", workload, twin, packs=honest_packs, **both),
        verdict=verdict,
        needs_gpu=needs_gpu,
        needs_cpu=needs_cpu,
        needs_timing=needs_timing,
        needs_trial=needs_trial,
    )
