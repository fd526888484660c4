"""Backends `triton.flash_trans_v*`: flash attention forward over transposed values, configured by our tables, by what
ROCm/triton published, or by Triton's autotuner. Triton is imported in `prepare` only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kernels.config_files import order_values
from kernels.configured import Configured
from kernels.limits import HALVES, AttentionLimits, refusal_reasons
from kernels.triton.trans_v.space import HEAD_DIMS, SPACE, problem_of
from kernels.triton.triton_backend import (
    INTERPRETER,
    INTERPRETER_FLOPS_MAX,
    arch_of,
    compile_ahead,
    config_arch,
    missing_triton,
)
from pytest_attnperf.backends import Backend, Declares, Prepared

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill


@dataclass(frozen=True)
class TransV(Backend["Prefill"]):
    """Online softmax over values stored (B, Hk, D, Skv), which are transposed before anything is timed.

    Head dimensions to 128, f16 and bf16, causal (bottom-right), grouped K/V heads, any lengths, log-sum-exp. The
    kernel relies on every row seeing key 0.
    """

    families = ("prefill",)

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: no Triton (without a GPU, no interpreter), head dimensions above 128
        or of two sizes, a window, ALiBi or a bias, or rows that see no key."""
        found = missing_triton(device)
        if workload.head_dim > HEAD_DIMS[-1]:
            found.append(
                f"head_dim {workload.head_dim} is above {HEAD_DIMS[-1]}, the largest this kernel has tiles for"
            )
        limits = AttentionLimits(
            self.name, HALVES, window=False, rows_without_keys=False, head_dim_v=False, alibi=False, bias=False
        )
        return found + refusal_reasons(workload, limits)

    def bind(self, call: Callable[..., Any], tensors: Tensors, config: dict[str, str]) -> Prepared:
        """Returns a call of (q, k, transposed v) that is ready, on these tensors, with what was configured."""
        return Prepared(
            call=call,
            tensors=tensors,
            convert=_transposed_v,
            outputs=_canonical_outputs,
            config=config,
            declares=Declares(kernels=("trans_v_kernel",), never=("scaled_dot_product",), matrix=True),
            arguments=_transposed_v_alone,
        )


@dataclass(frozen=True)
class TritonTransV(Configured, TransV):
    """`TransV` in the configuration of the data files: of their rules, or of the chosen alternative."""

    spaces = (SPACE,)

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns what `TransV` does, and a reason if the chosen alternative is not for this architecture."""
        found = super().unsupported_reasons(workload, device)
        return found or self.alternative_reasons(config_arch(device), SPACE, problem_of(workload))

    def prepare(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Copies the inputs with v transposed, untimed; picks this architecture's configuration from the data files, or
        the pinned one, and compiles."""
        from kernels.triton.trans_v.kernel import trans_v

        tensors = _transposed_v(inputs)
        choice = self.choose(SPACE, arch_of(tensors[0].device), problem_of(workload))
        call = partial(trans_v, causal=workload.causal, with_lse=workload.lse, config=choice.config)
        compile_ahead(call, tensors, SPACE, choice)
        return self.bind(call, tensors, self.config_entries({SPACE.kernel: choice}))


@dataclass(frozen=True)
class AutotunedTransV(TransV):
    """`TransV` under `triton.autotune`, which chooses among the candidates of `attnperf tune triton.flash_trans_v`.

    The harness records the choice as 'autotuned.trans_v_kernel', compares it with a baseline's, and replays it with
    `--attnperf-pin-config`. The tables are the default, because this choice may differ from process to process.
    """

    def prepare(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Copies the inputs with v transposed and, on a GPU, calls once: Triton compiles all candidates and chooses.
        Nothing of it is timed."""
        from kernels.triton.trans_v.autotuned import trans_v_autotuned

        tensors = _transposed_v(inputs)
        configs = list_configs(workload, arch_of(tensors[0].device))
        call = partial(trans_v_autotuned, causal=workload.causal, with_lse=workload.lse, configs=configs)
        if tensors[0].is_cuda:
            call(*tensors)
        return self.bind(call, tensors, {"autotuned_among": str(len(configs))})


def list_configs(workload: Prefill, arch: str) -> list[dict[str, int | bool]]:
    """Returns the configurations of all candidates of the tuning space for this workload, today's first; of the
    interpreter, which has no tuning space, the rule's and the alternatives'."""
    from kernels.tuning import declared_of, tuning_space
    from pytest_attnperf.tools.tuner.tuner_settings import list_candidates

    rule = SPACE.choose(arch, problem_of(workload)).rule
    if arch == INTERPRETER:
        others = SPACE.find_alternatives(arch, problem_of(workload)).values()
        return [dict(each.config) for each in (rule, *others)]
    candidates, _ = list_candidates(
        tuning_space(declared_of("triton.flash_trans_v", (SPACE,), ""), [workload], arch, None)
    )
    return [order_values(SPACE, candidate.values, rule) for candidate in candidates]


def _transposed_v(inputs: Tensors) -> Tensors:
    """Returns copies of q and k, and of v (B, Skv, Hk, D) as contiguous (B, Hk, D, Skv)."""
    import torch

    q, k, v = inputs
    return q.clone(), k.clone(), v.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format)


def _transposed_v_alone(inputs: Tensors) -> Tensors:
    """Returns q and k unchanged, and v (B, Skv, Hk, D) as contiguous (B, Hk, D, Skv), copied."""
    q, k, v = inputs
    return q, k, v.permute(0, 2, 3, 1).contiguous()


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = (
    TritonTransV("triton.flash_trans_v", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
    TritonTransV(
        "triton.flash_trans_v_perf_kernels", INTERPRETER_FLOPS_MAX, times_on_cpu=False, alternative="perf_kernels"
    ),
    AutotunedTransV("triton.flash_trans_v_autotuned", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
)
