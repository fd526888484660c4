"""One attention layer made of stages: projections by torch, everything between by the kernels of one attention backend.

    x -> qkv_projection -> split -> rope -> cache_append -> attention -> flatten -> output_projection -> out

Each stage reads values of earlier stages, and allocates its results; a stage that only makes views launches nothing. A
stack of layers is the same stages again, on x + out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kernels.layer.attention import PREFIX, BoundAttention, bind_attention, problem_over_cache
from kernels.layer.stages import canonical_outputs, rope_of, stack_stages, stages_of, tables_of
from kernels.layouts import own_copies
from kernels.native.prefill_eager import Eager
from kernels.native.rope import BACKENDS as NATIVE_ROPE
from pytest_attnperf.backends import Backend, Declares, Pipeline, Prepared
from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.workloads.block import Block

if TYPE_CHECKING:
    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.decode import Decode
    from pytest_attnperf.workloads.prefill import Prefill

ROPE_PREFIX = "rope."
EAGER = Eager("native.eager")
(EAGER_ROPE,) = NATIVE_ROPE


@dataclass(frozen=True)
class Layer(Backend[Block]):
    """A layer around one attention backend.

    attention       the attention backend, of family prefill, decode, or both
    rope            the backend that rotates q and k
    rope_strides    whether the rope reads q and k as views of the projection; otherwise they are copied first
    any_strides     whether `attention` takes keys and values with gaps between sequences, as in a cache with spare room
    """

    attention: Backend = EAGER
    rope: Backend = EAGER_ROPE
    rope_strides: bool = True
    any_strides: bool = False

    families = ("block",)

    def attention_problem(self, block: Block, device: DeviceInfo) -> Prefill | Decode:
        """Returns the prefill or decode workload that the attention backend computes inside this block."""
        return problem_over_cache(self.attention, block, device)

    def unsupported_reasons(self, workload: Block, device: DeviceInfo) -> list[str]:
        """Returns why the layer cannot run the block: attention of the wrong family, reasons of the attention and of
        the rope, a cache layout that the attention cannot read. Empty if it can."""
        if reason := self._other_kind(workload):
            return [reason]
        problem = self.attention_problem(workload, device)
        found = [
            *self.attention.unsupported_reasons(problem, device),
            *self.rope.unsupported_reasons(rope_of(workload), device),
        ]
        if workload.batch > 1 and problem.seq_kv < workload.room and not self.any_strides:
            found.append(
                f"{self.attention.name} needs contiguous keys and values, and the first {problem.seq_kv} rows of "
                f"{workload.batch} sequences in a cache with room for {workload.room} are not; use b=1, "
                f"room={problem.seq_kv}, or a layer that reads them where they lie, e.g. layer.plain"
            )
        return list(dict.fromkeys(found))

    def prepare(self, workload: Block, inputs: Tensors) -> Prepared:
        """Copies the inputs and prepares rope and attention for their shapes; on a GPU runs once, to compile all."""
        tensors = own_copies(inputs)
        parts = workload.split_inputs(tensors)
        x, problem = parts.x, self.attention_problem(workload, identify_device(parts.x.device.type))
        q, k = (
            x.new_zeros((workload.batch, workload.seq, heads, workload.head_dim))
            for heads in (workload.heads, workload.kv_heads)
        )
        attention = bind_attention(self.attention, problem, workload, q, (parts.k_cache, parts.v_cache))
        copies = not self.rope_strides and workload.batch * workload.seq > 1  # one token's heads are contiguous
        rope = self.rope.prepare(rope_of(workload), (q, k, *tables_of(workload, parts.cos, parts.sin)))
        stages = stages_of(workload, rope.call, attention.stages, copies=copies)
        prepared = Prepared(
            call=Pipeline(
                inputs=tuple(name for name in parts._fields if getattr(parts, name) is not None),
                stages=stack_stages(workload.layers, stages),
                outputs=("out", "k_cache", "v_cache"),
            ),
            tensors=tensors,
            convert=lambda new: new,
            outputs=partial(canonical_outputs, workload),
            config=self._merge_config(attention, rope.config) | {"copied_for_rope": "q, k" if copies else "none"},
            declares=merge_declares(attention.declares, rope.declares),
        )
        if x.device.type == "cuda":
            prepared.run()
            prepared.load(inputs)
        return prepared

    def _other_kind(self, block: Block) -> str:
        """Returns why the attention's family, prefill or decode, does not fit the block; '' if it does."""
        if ("decode" if block.is_decode else "prefill") in self.attention.families:
            return ""
        if block.is_decode:
            return (
                f"{self.attention.name} attends over whole prompts, and this is a decode step; decode steps: layers "
                "over a decode backend, e.g. layer.triton.flash_decode, and layer.plain"
            )
        return (
            f"{self.attention.name} attends from a few tokens over a cache, and this is no decode step (p > 0 and "
            "s <= 8); whole prompts: layers over a prefill backend, e.g. layer.triton.flash, and layer.plain"
        )

    def _merge_config(self, attention: BoundAttention, rope: Mapping[str, str]) -> dict[str, str]:
        return {
            **{PREFIX + name: text for name, text in attention.config.items()},
            **{ROPE_PREFIX + name: text for name, text in rope.items()},
            "rope": self.rope.name,
            "copied_for_attention": attention.copied or "none",
        }


def merge_declares(attention: Declares, rope: Declares) -> Declares:
    """Returns what attention and rope declare to run, without a promise of matrix instructions: torch's projections
    would meet that promise whatever the attention runs."""
    return Declares(
        kernels=attention.kernels + rope.kernels,
        operators=attention.operators + rope.operators,
        never=attention.never + rope.never,
    )
