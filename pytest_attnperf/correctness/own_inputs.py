"""The inputs that a backend holds: loaded, compared, destroyed, restored, except parts that a call must write.

The workload's `in_place` alone decides what may be written, not the backend. The outputs held by inputs are the last
ones that the reference names, in the order of the inputs. They are read from the inputs, even if the backend has copies
elsewhere: a result outside the inputs was not written in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_attnperf.backends import copy_into
from pytest_attnperf.correctness import poison
from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import in_place
from pytest_attnperf.workloads.input_memory import describe_write

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from pytest_attnperf.backends import Outputs, Prepared, Tensors
    from pytest_attnperf.workloads.base import Workload


class OwnInputs:
    """The tensors of one prepared backend.

    writable   numbers of the inputs that a call writes in place
    """

    def __init__(self, prepared: Prepared, workload: Workload) -> None:
        self._prepared = prepared
        self._workload = workload
        self._views = in_place(workload)
        self.writable = tuple(sorted(self._views))
        self._beside: list[torch.Tensor] = []

    @property
    def written_in_place(self) -> Tensors:
        """The whole tensors of the backend that a call writes to, also where only a part of them may change."""
        return written_in_place(self._prepared, self._workload)

    def load(self, inputs: Tensors) -> tuple[Tensors, list[str]]:
        """Loads canonical inputs into the backend's memory; returns (copies that the backend never sees, problems in
        words).

        If a tensor that a call must write to has a wrong layout, nothing is loaded, and there are no copies. Raises
        WorkloadError when `in_place` names inputs that do not exist, or `inputs` share memory differently than before.
        """
        import torch

        if problems := [text for number in self.writable for text in self._list_layout_problems(number, inputs)]:
            return (), problems
        with torch.no_grad():
            for beside in self._prepared.beside:  # calls before this one may have written there
                beside.memory.copy_(beside.first)
            self._prepared.load(inputs)
            problems = [
                f"Prepared.convert changes input {number}, which a call is to write in place: it must be loaded as it "
                "is given"
                for number in self.writable
                if not poison.is_bit_equal(self._prepared.tensors[number], inputs[number])
            ]
            self._require_consistent(inputs)
            self._beside = [beside.memory.clone() for beside in self._prepared.beside]
            return tuple(tensor.clone() for tensor in self._prepared.tensors), problems

    def copy_for_reference(self, inputs: Tensors) -> Tensors:
        """Returns canonical inputs for a reference: copies of those that a call, and so the reference, writes to in
        place, and the others as they are."""
        return tuple(tensor.clone() if number in self._views else tensor for number, tensor in enumerate(inputs))

    def copy_written(self) -> dict[int, torch.Tensor]:
        """Returns {number of an input: copy of the part of it that a call writes in place}."""
        return {number: self._writable_part(self._prepared.tensors, number).clone() for number in self.writable}

    def put_back(self, taken: dict[int, torch.Tensor]) -> None:
        """Writes the parts in `taken`, from `copy_written`, back into the backend's inputs."""
        import torch

        with torch.inference_mode():
            for number, copy in taken.items():
                self._writable_part(self._prepared.tensors, number).copy_(copy)

    def restore_and_list_changes(self, loaded: Tensors) -> list[str]:
        """Restores from `loaded` the parts that a call may write to; returns, in words, each change of any other input
        memory, or else of memory next to the inputs. [] if there is none."""
        self.put_back({number: self._writable_part(loaded, number) for number in self.writable})
        return [
            f"the call changed its inputs: tensor {number} of {len(loaded)}, shape {tuple(before.shape)}, is "
            f"not what it was before the call{self._format_writable_part(number)}{self._format_advice(number)}"
            for number, (before, after) in enumerate(zip(loaded, self._prepared.tensors, strict=True))
            if not poison.is_bit_equal(before, after)
        ] or self._list_writes_beside()

    def restore(self, loaded: Tensors) -> None:
        """Writes `loaded`, the copies of `load`, back into all inputs, and restores the memory next to them."""
        import torch

        with torch.no_grad():
            for beside, before in zip(self._prepared.beside, self._beside, strict=True):
                beside.memory.copy_(before)
            for own, copy in zip(self._prepared.tensors, loaded, strict=True):
                copy_into(own, copy)

    def destroy(self) -> None:
        """Overwrites all inputs with NaN or extreme values, so that a later read of them shows in a result."""
        poison.destroy(self._prepared.tensors)

    def has_memory_of(self, tensor: torch.Tensor, *, writable: bool = True) -> bool:
        """Returns whether a tensor shares memory with an input. With writable=False, inputs that a call writes in place
        are not considered."""
        return any(
            poison.has_overlap(tensor, own)
            for number, own in enumerate(self._prepared.tensors)
            if writable or number not in self._views
        )

    def name_outputs(self, names: Iterable[str], taken: dict[int, torch.Tensor]) -> Outputs:
        """Returns {output name: part in `taken`}: the parts that a call writes are the last of the reference's outputs,
        `names`, in order. Raises WorkloadError if there are fewer outputs than parts."""
        known = tuple(names)
        if len(known) < len(taken):
            raise WorkloadError(
                f"in_place of {self._workload.id} names {len(taken)} inputs, but the reference gives only "
                f"{len(known)} outputs ({', '.join(known)}); what each input holds after a call must be an output"
            )
        return dict(zip(known[len(known) - len(taken) :], taken.values(), strict=True))

    def _writable_part(self, tensors: Tensors, number: int) -> torch.Tensor:
        """Returns the view of input `number`, within `tensors`, that a call may change. Raises WorkloadError if
        `in_place` of the workload gives memory outside that input."""
        whole = tensors[number]
        view = self._views[number](whole)
        if view.numel() and not poison.has_overlap(view, whole):
            raise WorkloadError(
                f"in_place of {self._workload.id} gives memory outside input {number}, of shape "
                f"{tuple(whole.shape)}, for the part of it that a call writes; return a view of the tensor"
            )
        return view

    def _list_layout_problems(self, number: int, inputs: Tensors) -> list[str]:
        """Returns a problem, in words, if the backend's tensor `number`, which a call must write to, differs from the
        canonical input in shape or dtype, or is not contiguous; else []. Raises WorkloadError if there is no input
        `number`."""
        if not 0 <= number < len(inputs):
            raise WorkloadError(
                f"in_place of {self._workload.id} names input {number}; there are {len(inputs)}, from 0"
            )
        wanted = inputs[number]
        own = self._prepared.tensors[number] if number < len(self._prepared.tensors) else None
        if own is not None and (own.shape, own.dtype) == (wanted.shape, wanted.dtype) and own.is_contiguous():
            return []
        return [
            f"a call is to write to input {number} in place, so that Prepared.tensors[{number}] must be as the input, "
            f"{_format_tensor(wanted)} and contiguous; it is {_format_tensor(own)}"
        ]

    def _require_consistent(self, inputs: Tensors) -> None:
        """Raises WorkloadError if the backend's tensors do not hold `inputs` after loading: then inputs overlap for
        this seed differently than for the first. Checked only where memory next to the inputs is known."""
        if not self._prepared.beside:  # only then inputs keep the strides they were given with
            return
        for number, (own, new) in enumerate(zip(self._prepared.tensors, inputs, strict=True)):
            if not poison.is_bit_equal(own, new):
                raise WorkloadError(
                    f"inputs of {self._workload.id}: tensor {number} of shape {tuple(new.shape)} repeats elements, or "
                    "shares memory with another tensor, for one seed but not for another; make inputs that lie alike "
                    "for every seed, planted or not"
                )

    def _list_writes_beside(self) -> list[str]:
        """Returns, in words, each memory next to the inputs that changed since they were loaded."""
        found = []
        for beside, before in zip(self._prepared.beside, self._beside, strict=True):
            if not poison.is_bit_equal(beside.memory, before):
                found.append(
                    f"the call wrote to memory that is no input's: {describe_write(beside, before)}; there are "
                    f"{len(self._prepared.tensors)} tensors"
                )
        return found

    def _format_advice(self, number: int) -> str:
        names: tuple[str, ...] = getattr(self._workload, "input_names", ())
        if number >= len(names):
            return ""
        return f"; where that is meant, gate it with in_place=({names[number]!r},)"

    def _format_writable_part(self, number: int) -> str:
        if number not in self._views:
            return ""
        part = tuple(self._writable_part(self._prepared.tensors, number).shape)
        return f" outside the part of shape {part} that it is to write"


def written_in_place(prepared: Prepared, workload: Workload) -> Tensors:
    """Returns the backend's whole tensors of those inputs that `workload.in_place` names, in order of their number."""
    return tuple(prepared.tensors[number] for number in sorted(in_place(workload)) if number < len(prepared.tensors))


def _format_tensor(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "missing"
    return f"{tuple(tensor.shape)} {tensor.dtype}" + ("" if tensor.is_contiguous() else " and not contiguous")
