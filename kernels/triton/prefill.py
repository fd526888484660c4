"""Backend `triton.flash`: this repository's own flash attention forward. Triton is imported in `prepare` only."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kernels.prefill_backend import FLOATS, Limits, PrefillBackend, own_copies
from kernels.triton import configs
from pytest_attnperf.backends import Declares, Prepared

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill

HEAD_DIM_MAX = 256
"""Past it the accumulator of even 16 rows no longer fits the registers of one program."""


@dataclass(frozen=True)
class TritonFlash(PrefillBackend):
    """Online softmax, causal (bottom-right), grouped K/V heads, any lengths, head dimensions to 256, log-sum-exp.

    tf32 is multiplied as fp32. The kernel relies on every row seeing key 0.

    pinned_choice    a configuration to use in place of the data files'; None uses these
    """

    pinned_choice: configs.Choice | None = field(default=None, compare=False)

    def pinned(self, config: Mapping[str, str]) -> TritonFlash:
        """With the block sizes and compiler options of a stored configuration. Raises UsageError where it lacks one."""
        return replace(self, pinned_choice=configs.replayed(config))

    def limits(self, device: DeviceInfo) -> Limits:
        """No window, and every row must see a key."""
        return Limits(self.name, dtypes=FLOATS, window=False, rows_without_keys=False)

    def reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Needs Triton and, without a GPU, its interpreter."""
        found = []
        if importlib.util.find_spec("triton") is None:
            found.append("triton is not installed")
        if device.kind == "cpu" and not device.interpreted:
            found.append("Triton compiles for GPUs only; without one, set TRITON_INTERPRET=1 before triton is imported")
        if workload.head_dim > HEAD_DIM_MAX:
            found.append(f"head_dim {workload.head_dim} is above {HEAD_DIM_MAX}, the largest this kernel takes")
        return found

    def bind(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Pick the configuration for this architecture from the data files, or the pinned one, and compile; nothing is
        tuned here."""
        from kernels.triton.prefill_forward import prefill_forward

        tensors = own_copies(inputs)
        choice = self.pinned_choice or configs.choose(
            arch_of(tensors[0].device),
            workload.head_dim,
            causal=workload.causal,
            element_bits=tensors[0].element_size() * 8,
        )

        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            return prefill_forward(q, k, v, causal=workload.causal, with_lse=workload.lse, config=choice.rule.config)

        if tensors[0].is_cuda:
            call(*tensors)
        config = {key: str(value) for key, value in choice.rule.config.items()}
        config |= {"config_arch": choice.arch, "config_source": choice.rule.source}
        return Prepared(
            call=call,
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical,
            config=config,
            declares=Declares(
                kernels=("prefill_forward_kernel",),
                never=("scaled_dot_product",),
                matrix=workload.dtype in ("f16", "bf16"),
            ),
        )


def _canonical(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


def arch_of(device: torch.device) -> str:
    """The key of the configuration files: sm_90, gfx942, or 'interpreter' where there is no GPU."""
    import torch

    if device.type == "cpu":
        return "interpreter"
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is not None:
        return str(properties.gcnArchName).split(":", maxsplit=1)[0]
    return f"sm_{properties.major}{properties.minor}"
