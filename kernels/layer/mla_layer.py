"""One layer of latent attention made of stages: projections and norms by torch, the rest by one attention backend.

    x -> [weight_dequant] -> q_a_projection -> q_norm -> q_b_projection -> kv_a_projection -> kv_norm -> split -> rope
      -> cache_append -> attention -> flatten -> output_projection -> out

DeepSeek-V3's switch `attn_impl` is the choice of the layer: over native.mla_absorb ('absorb'), over native.mla_naive
('naive'), or over a fused kernel such as triton.mla. All cache latents. The layer over native.mla_naive projects all of
them up in every call; where the caches hold keys and values of heads (`expanded`), as DeepSeek's 'naive' has them, it
projects the new tokens only. Either way the result is that of the workload's definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kernels.layer.attention import PREFIX, BoundAttention
from kernels.layer.layer import EAGER_ROPE, ROPE_PREFIX, merge_declares
from kernels.layer.mla_attention import attention_reasons, bind_latent_attention
from kernels.layer.mla_stages import canonical_outputs, rope_of, stages_of, tables_of
from kernels.layouts import own_copies
from kernels.native.mla import BACKENDS as NATIVE_MLA
from pytest_attnperf.backends import Backend, Pipeline, Prepared
from pytest_attnperf.workloads.mla_block import MlaBlock

if TYPE_CHECKING:
    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo


@dataclass(frozen=True)
class MlaLayer(Backend[MlaBlock]):
    """A layer around one backend of latent attention.

    attention      the attention backend, of family mla
    rope           the backend that rotates q_pe and k_pe
    any_strides    whether `attention` and `rope` take views of the projections and caches with gaps between sequences;
                   otherwise queries and keys are copied before they are rotated
    """

    attention: Backend = NATIVE_MLA[0]
    rope: Backend = EAGER_ROPE
    any_strides: bool = True

    families = ("mla_block",)

    def unsupported_reasons(self, workload: MlaBlock, device: DeviceInfo) -> list[str]:
        """Returns why the layer cannot run the block: reasons of the attention and of the rope, a mask or caches that
        the attention does not take. Empty if it can."""
        found = [
            *attention_reasons(self.attention, workload, device),
            *self.rope.unsupported_reasons(rope_of(workload), device),
        ]
        if workload.batch > 1 and workload.length < workload.room and not self.any_strides:
            found.append(
                f"{self.attention.name} needs contiguous latents, and the first {workload.length} rows of "
                f"{workload.batch} sequences in a cache with room for {workload.room} are not; use b=1, "
                f"room={workload.length}, or a layer that reads them where they lie, e.g. layer.native.mla_absorb"
            )
        return list(dict.fromkeys(found))

    def prepare(self, workload: MlaBlock, inputs: Tensors) -> Prepared:
        """Copies the inputs and prepares rope and attention for their shapes; on a GPU runs once, to compile all."""
        tensors = own_copies(inputs)
        given = workload.name_inputs(tensors)
        x = given["x"]
        tokens = (workload.batch, workload.seq)
        parts = {"q_nope": (workload.heads, workload.nope_dim), "q_pe": (workload.heads, workload.rope_dim)}
        example = {**given, **{name: x.new_zeros((*tokens, *size)) for name, size in parts.items()}}
        example["wkv_b"] = x.new_zeros(workload.weight_shapes["wkv_b"]) if workload.fp8w else given["wkv_b"]
        attention = bind_latent_attention(self.attention, workload, example)
        k_pe = x.new_zeros((*tokens, 1, workload.rope_dim))
        tables = tables_of(workload, given["cos"], given["sin"])
        rope = self.rope.prepare(rope_of(workload), (example["q_pe"], k_pe, *tables))
        prepared = Prepared(
            call=Pipeline(
                inputs=workload.tensor_names,
                stages=stages_of(workload, rope.call, attention.stages, copies=not self.any_strides),
                outputs=("out", *workload.cache_shapes),
            ),
            tensors=tensors,
            convert=lambda new: new,
            outputs=partial(canonical_outputs, workload),
            config=self._merge_config(attention, rope.config),
            declares=merge_declares(attention.declares, rope.declares),
        )
        if x.device.type == "cuda":
            prepared.run()
            prepared.load(inputs)
        return prepared

    def _merge_config(self, attention: BoundAttention, rope: Mapping[str, str]) -> dict[str, str]:
        return {
            **{PREFIX + name: text for name, text in attention.config.items()},
            **{ROPE_PREFIX + name: text for name, text in rope.items()},
            "rope": self.rope.name,
            "copied_for_rope": "none" if self.any_strides else "q_nope, q_pe, k_pe",
            "copied_for_attention": attention.copied or "none",
        }
