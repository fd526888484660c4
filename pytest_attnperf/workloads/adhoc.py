"""A workload and a backend made of plain callables: what `attnperf.gate("my_kernel", fn, ...)` proves and measures.

A function does not say where its edges are, so inputs are planted by their observed values (`adhoc_planting`).
References run as their authors wrote them, so the dtypes that they name are replaced (`adhoc_reference`).
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.records import Tolerance
from pytest_attnperf.records.call_fit import format_kind
from pytest_attnperf.workloads import gradients
from pytest_attnperf.workloads.adhoc_planting import Planting, draw_incoming
from pytest_attnperf.workloads.adhoc_reference import MADE, Reference, require_fit, results_of
from pytest_attnperf.workloads.defined import ADHOC, PLANTS, TENSORS
from pytest_attnperf.workloads.garbage import UnreadSearch
from pytest_attnperf.workloads.gradients import Apart, Withheld
from pytest_attnperf.workloads.input_memory import copy_guarded, copy_tensors
from pytest_attnperf.workloads.input_notes import note_left, notes_on, notes_on_unsearched
from pytest_attnperf.workloads.returned import name_outputs

if TYPE_CHECKING:
    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.base import Unread, Workload

CACHE_STATES = ("hot", "cold")


@dataclass(frozen=True)
class AdHoc:
    """One problem given by functions instead of shapes.

    name             identifies the problem, e.g. the test's name
    make_inputs_fn   `f(seed)` or `f()` -> a tensor or a tuple of tensors on the device, the same for the same seed;
                     torch is seeded before the call, so a function without a parameter may use torch's generator. If it
                     has a parameter `planted`, it must make inputs that show a lost element when that is True
    reference_fn     `f(*inputs)` -> a tensor, a number, or a tuple, dict or dataclass of them, by torch's operators:
                     run in wider types for the exact result, and as it is for the budget; gradients are enabled, and
                     its inputs are leaves, so that it may set `requires_grad_` on them and differentiate
    flops            useful floating-point operations of one call, if known
    bytes_min        unique bytes one call must move, if known
    dtype            one of DTYPE_BYTES, or '' if unknown: then there is no compute floor
    cache_state      'hot', or 'cold' for a call that is timed with inputs that are in no cache
    non_finite_outputs    names of outputs whose reference may hold NaN or Inf, to be matched exactly
    times            '' for the function alone; 'both', 'forward' or 'backward': that pass is timed, and gradients are
                     checked, too
    overwrites       names of inputs that a call may overwrite; each call gets copies of them
    host_sync        the call may wait for the device, and is timed by the host's clock
    contiguous       callers pass contiguous inputs only, so that no other layout is tried

    Raises WorkloadError for another cache state or pass, and for cold inputs where every call gets its own copies.
    """

    name: str
    make_inputs_fn: Callable[..., Any]
    reference_fn: Callable[..., Any]
    flops: float | None = None
    bytes_min: float | None = None
    dtype: str = ""
    cache_state: str = "hot"
    non_finite_outputs: frozenset[str] = frozenset()
    times: str = ""
    overwrites: tuple[str, ...] = ()
    host_sync: bool = False
    contiguous: bool = False
    learned: Reference = field(init=False, repr=False, compare=False)
    planting: Planting = field(init=False, repr=False, compare=False)
    search: UnreadSearch = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.cache_state not in CACHE_STATES:
            raise WorkloadError(
                f"cache_state of {self.name!r} must be one of {', '.join(CACHE_STATES)}, got {self.cache_state!r}"
            )
        if self.times not in ("", *gradients.PASSES):
            raise WorkloadError(
                f"times of {self.name!r} must be one of {', '.join(gradients.PASSES)}, got {self.times!r}"
            )
        if self.cache_state == "cold" and (self.overwrites or self.times == gradients.BACKWARD):
            raise WorkloadError(
                f"{self.name!r} is to be timed with cold inputs, but its calls get copies of their own "
                f"({'in_place' if self.overwrites else 'times=backward'}), which are written just before: use "
                "cache_state='hot'"
            )
        object.__setattr__(self, "learned", Reference(self.name, self.reference_fn, self.times, self.overwrites))
        object.__setattr__(self, "planting", Planting(self.learned))
        object.__setattr__(self, "search", UnreadSearch(self.learned))

    @property
    def family(self) -> str:
        """'adhoc', the op family of all functions that `attnperf.gate` measures."""
        return ADHOC

    @property
    def id(self) -> str:
        """`adhoc-` and the name, with everything but letters, digits, '_' and '.' replaced by '_'."""
        return f"adhoc-{re.sub(r'[^A-Za-z0-9_.]', '_', self.name)}"

    @property
    def unplanted(self) -> str:
        """Why no elements of the last check's inputs were made large (planted), in words; '' if some were."""
        return self.planting.unplanted

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs: the reference's parameters, then the incoming gradients; () until inputs were made."""
        return self.learned.names

    @property
    def input_notes(self) -> tuple[str, ...]:
        """Notes about errors that no check can detect because of what the inputs are; empty before inputs are made."""
        planting, learned = self.planting, self.learned
        notes = notes_on(learned.names, learned.dtypes, planting.constant_names, planting.one_signed)
        return (*notes, *note_left(planting.left_names), *notes_on_unsearched(self.search.note))

    @property
    def proven_with(self) -> AdHoc | None:
        """This problem with times='both' if it times a forward pass alone, so that a check proves gradients too; else
        None."""
        return replace(self, times=gradients.BOTH) if self.times == gradients.FORWARD else None

    def definition(self) -> dict[str, Any]:
        """Returns what defines the problem, as builtins for baselines: name, work figures, dtype, module and name of
        both functions.

        Fields from `cache_state` on are left out at their default. Once inputs have been made, it describes their
        shapes and dtypes, and says whether the user's function plants them.
        """
        unusual: dict[str, Any] = {}
        if self.non_finite_outputs:
            unusual["non_finite_outputs"] = sorted(self.non_finite_outputs)
        if self.cache_state != "hot":
            unusual["cache_state"] = self.cache_state
        if self.times:
            unusual["times"] = self.times
        if self.overwrites:
            unusual["in_place"] = sorted(self.overwrites)
        if self.host_sync:
            unusual["host_sync"] = True
        if self.learned.tensors:
            unusual[TENSORS] = self.learned.tensors
            unusual[PLANTS] = _takes_planted(self.make_inputs_fn)
        return {
            "family": self.family,
            "name": self.name,
            "inputs": _source_name(self.make_inputs_fn),
            "reference": _source_name(self.reference_fn),
            "flops": self.flops,
            "bytes_min": self.bytes_min,
            "dtype": self.dtype,
            **unusual,
        }

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Returns the tensors of `make_inputs_fn`, then the incoming gradients; with `planted`, single elements are
        made large where the problem allows it (else `unplanted` says why not). Raises WorkloadError when it gives
        anything but tensors on `device`, or the same for another seed."""
        own = self._make_own_inputs(seed, device, planted=planted)
        if not self.learned.count:
            self.learned.learn(own)
        tensors = (*own, *draw_incoming(self.learned.incoming, device, seed, planted=planted))
        self.planting.refuse_unchanged(own, seed)
        if planted:
            self.search.note_seed(seed)
        if planted and not _takes_planted(self.make_inputs_fn):
            return self.planting.plant_inputs(tensors, seed)
        if planted:
            self.planting.look_at_own(own, lambda: self._make_own_inputs(seed, device, planted=False))
        return tensors

    def unread(self, inputs: Tensors) -> tuple[Unread, ...]:
        """Returns the elements that `reference_fn` does not read of the planted inputs that were made last; those of
        one seed only, because the search takes several calls of the reference (see `UnreadSearch`). () if
        `make_inputs_fn` plants, because it then says itself what its inputs hold."""
        return () if _takes_planted(self.make_inputs_fn) else self.search.find(inputs)

    def reference(self, inputs: Tensors) -> Outputs:
        """Returns by name the outputs of `reference_fn`, run in fp32 or fp64. Raises WorkloadError when they are no
        tensors, or narrower than that."""
        return self.planting.compute_truth(inputs)

    def plain(self, inputs: Tensors) -> Outputs:
        """Returns by name the outputs of `reference_fn`, run on copies of `inputs` in their own dtypes. Raises
        WorkloadError when they are no tensors."""
        return self.planting.compute_plain(inputs)

    def in_low_precision(self, inputs: Tensors) -> tuple[Outputs, ...]:
        """Returns several results of `reference_fn`, each with all intermediate values rounded at random to the
        precision of the narrowest input; () if that fails."""
        return self.learned.in_low_precision(inputs)

    def _make_own_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        import torch

        with torch.random.fork_rng():
            (torch.default_generator if _only_cpu() else torch).manual_seed(seed)
            args, named = _find_arguments(self.make_inputs_fn, seed, planted)
            require_fit(f"inputs of {self.name!r}", "it is called with a seed", self.make_inputs_fn, *args, **named)
            made = self.make_inputs_fn(*args, **named)
        tensors = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        for number, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor):
                what = "it is" if tensor is made else f"number {number} is"
                raise WorkloadError(
                    f"inputs of {self.name!r} must be a tensor or a tuple of tensors; {what} {format_kind(tensor)}"
                )
            if tensor.device.type != torch.device(device).type:
                raise WorkloadError(
                    f"inputs of {self.name!r}: tensor {number} is on {tensor.device}, but this case is measured on "
                    f"{device}; create it with device={device!r}"
                )
        if not tensors:
            raise WorkloadError(f"inputs of {self.name!r} must be a tensor or a tuple of tensors; it is empty")
        return tuple(tensor.detach() for tensor in tensors)


@dataclass(frozen=True)
class CallableBackend(Backend["Workload"]):
    """A function of a workload's inputs as a backend; runs wherever its inputs are.

    declares   what must run, and what must not; the workload says whether it may wait for the device
    """

    families = (ADHOC,)
    cpu_flops_max: float = field(default=float("inf"), init=False)
    times_on_cpu: bool = field(default=True, init=False)
    tolerance: Tolerance = field(default_factory=Tolerance, kw_only=True)
    fn: Callable[..., Any]
    declares: Declares = field(default_factory=Declares)

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """Binds the function to copies of `inputs` with the same strides and shared memory; outputs are named as the
        reference names them. It adds a setup if a call may overwrite inputs, or times a backward pass alone."""
        device = inputs[0].device if inputs else None
        own = inputs[: workload.learned.count] if isinstance(workload, AdHoc) else inputs
        require_fit(f"fn of {self.name!r}", MADE.format(len(own)), self.fn, *own)
        call, setup = self._call_and_setup(workload, inputs)
        tensors, beside = copy_guarded(inputs)
        return Prepared(
            call=call,
            setup=setup,
            tensors=tensors,
            beside=beside,
            convert=lambda inputs: inputs,
            outputs=lambda raw: name_outputs(raw, device),
            declares=replace(self.declares, host_sync=bool(getattr(workload, "host_sync", False))),
            apart=Apart(self.fn, workload.learned, _own_copies(workload))
            if isinstance(workload, AdHoc) and workload.learned.has_gradients
            else None,
        )

    def _call_and_setup(
        self, workload: Workload, inputs: Tensors
    ) -> tuple[Callable[..., Any], Callable[..., Tensors] | None]:
        """Returns (the timed call, an untimed function that makes its arguments or None) for the timed pass."""
        if not isinstance(workload, AdHoc):
            return self.fn, None
        fn, known = self.fn, workload.learned
        count, names, overwritten = known.count, known.names, known.overwritten_numbers
        own_copies = _own_copies(workload)

        def call_alone(*tensors: Any) -> Any:
            return results_of(fn(*tensors), tensors, overwritten)

        def call_forward(*tensors: Any) -> Any:
            return gradients.run_forward(fn, tensors)[1]

        def make_graph(*tensors: Any) -> tuple[Any, ...]:
            own, incoming = tensors[:count], tensors[count:]
            with withheld.hide(incoming):  # this pass is not timed
                passed = gradients.run_forward(fn, own_copies(*own))
            return (gradients.make_graph(*passed, own_copies(*incoming, first=count)),)

        def call_backward(made: gradients.Graph) -> Any:
            return gradients.run_backward(made, names[:count])

        def call_both(*tensors: Any) -> Any:
            return gradients.run_backward(gradients.record_graph(fn, tensors[:count], tensors[count:]), names[:count])

        if workload.times == gradients.BACKWARD:
            withheld = Withheld(inputs[count:])
            return call_backward, make_graph
        call = {gradients.BOTH: call_both, gradients.FORWARD: call_forward}.get(workload.times, call_alone)
        return call, own_copies if overwritten else None


def _own_copies(workload: AdHoc) -> Callable[..., Tensors]:
    """Returns a function of tensors that copies those that a call may overwrite and passes on the others; its argument
    `first` is the number of the first tensor among all inputs."""
    overwritten = workload.learned.overwritten_numbers

    def own_copies(*tensors: Any, first: int = 0) -> Tensors:
        numbered = enumerate(tensors, first)
        return tuple(copy_tensors((tensor,))[0] if number in overwritten else tensor for number, tensor in numbered)

    return own_copies


def with_own_seeds(make_inputs: Callable[..., Any], choose_seed: Callable[[int], int]) -> Callable[..., Any]:
    """Returns a function that makes the inputs of `choose_seed(seed)` where it is called with `seed`, and takes
    `planted` if `make_inputs` does. torch is seeded with the chosen seed, too."""
    import torch

    def make_chosen(seed: int, planted: bool) -> Any:
        chosen = choose_seed(seed)
        torch.manual_seed(chosen)
        args, named = _find_arguments(make_inputs, chosen, planted)
        require_fit("the function that makes inputs", "it is called with a seed", make_inputs, *args, **named)
        return make_inputs(*args, **named)

    if _takes_planted(make_inputs):
        return lambda seed, planted: make_chosen(seed, planted)
    return lambda seed: make_chosen(seed, planted=False)


def _takes_planted(function: Callable[..., Any]) -> bool:
    """Returns whether a function has a parameter `planted`, i.e. makes planted inputs itself."""
    return "planted" in inspect.signature(function).parameters


@functools.cache
def _only_cpu() -> bool:
    """Returns whether only the CPU draws numbers. `torch.manual_seed` records a stack of calls, as text, for every kind
    of device that is not in use: that takes milliseconds, where a small problem is made hundreds of times."""
    import torch

    devices: list[Any] = [getattr(torch, name, None) for name in ("cuda", "xpu", "mps", "mtia")]
    return not any(device.is_available() for device in devices if hasattr(device, "is_available"))


def _find_arguments(
    function: Callable[..., Any], seed: int, planted: bool
) -> tuple[tuple[int, ...], dict[str, int | bool]]:
    """Returns (positional arguments, keywords) for a function that makes inputs: the seed if it has a parameter `seed`
    or a required one; `def make(rows=512)` gets no seed as rows. `planted` if it has such a parameter."""
    parameters = inspect.signature(function).parameters.values()
    named: dict[str, int | bool] = {"planted": planted} if _takes_planted(function) else {}
    if any(parameter.name == "seed" for parameter in parameters):
        return (), {"seed": seed, **named}
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in positional and p.default is inspect.Parameter.empty]
    return ((seed,) if [p for p in required if p.name != "planted"] else ()), named


def _source_name(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None) or "?"
    return f"{module}.{getattr(function, '__qualname__', type(function).__name__)}"
