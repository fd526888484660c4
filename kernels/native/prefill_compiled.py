"""Attention that torch compiles: FlexAttention, and torch.compile of the plain form. Both compile before timing.

Inductor makes some choices by timing on this machine: launch configurations of pointwise kernels and of some
reductions, and whether to pad unaligned matrix products. These choices are the same as for other users of
torch.compile. They are recorded with the result (`autotuned.*`), and `--attnperf-pin-config` replays them. Inductor's
switch `deterministic` is not used (read in torch 2.11 to 2.13): it makes results repeatable, not choices. It still
times pointwise kernels, and it is slower without padding and the choice among reductions.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from kernels.layouts import heads_first
from kernels.limits import FLOATS, AttentionLimits, refusal_reasons
from kernels.native.prefill_eager import canonical_outputs, eager_attention, heads_first_views
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill

NOT_ON_CPU = "compiled by Inductor and offered on GPUs only: for a CPU that takes a C++ compiler and minutes"

COMPILED = "dynamic=False, fullgraph=True"

DECISIVE = {
    "max_autotune": False,
    "max_autotune_pointwise": False,
    "coordinate_descent_tuning": False,
    "deterministic": False,
    "shape_padding": True,
    "triton.autotune_pointwise": True,
    "triton.multi_kernel": 0,
}
"""Inductor settings that decide its set of choices -> torch's defaults; environment variables change some."""

TEMPLATE = "autotuned.triton_tem_"
"""Prefix of the recorded choices for FlexAttention's kernel, which Inductor makes from a template."""

TEMPLATE_OPTIONS = ("BLOCK_M", "BLOCK_N", "SPLIT_KV", "num_warps", "num_stages")
"""The recorded names that FlexAttention takes as `kernel_options`; splits over keys exist for few queries only."""


@dataclass(frozen=True)
class CompiledPrefill(Backend["Prefill"]):
    """torch.compile of `native.eager`'s function."""

    families = ("prefill",)

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns reasons against CPUs, and against dtypes other than f16, bf16, f32 and tf32."""
        found = [f"{self.name} is {NOT_ON_CPU}"] if device.kind == "cpu" else []
        return found + refusal_reasons(workload, AttentionLimits(self.name, dtypes=FLOATS))

    def prepare(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Copies the inputs to (B, H, S, D), compiles for exactly these shapes, and runs once so that nothing is left
        to compile.

        Inductor replaces softmax(q k^T * number) v by scaled_dot_product_attention, which is another backend
        (torch/_inductor/fx_passes/fuse_attention.py), also with a term added before the softmax. It does not if the
        scale is a tensor, or if a mask is applied in between.
        """
        import torch
        import torch._functorch.config

        call = compile_for_shapes(eager_attention(workload, inputs[0].device))
        if not workload.causal:
            call = partial(call, score_scale=torch.tensor(workload.head_dim**-0.5, device=inputs[0].device))
        config = {"compiled": f"torch.compile, {compile_settings()}"}
        with torch._functorch.config.patch(enable_autograd_cache=False):
            # A graph from AOTAutograd's cache does not say which products Inductor padded.
            return _prepare_compiled(call, heads_first(inputs), config)


@dataclass(frozen=True)
class Flex(Backend["Prefill"]):
    """FlexAttention, compiled, with a block mask built before timing.

    kernel_options    (name, value) pairs for its kernel template; empty leaves the choice to torch
    """

    families = ("prefill",)
    kernel_options: tuple[tuple[str, int], ...] = ()

    def replay_config(self, config: Mapping[str, str]) -> Flex:
        """Returns a copy that passes the stored block sizes, warps and stages to FlexAttention. Raises UsageError if
        missing."""
        return replace(self, kernel_options=template_options(config))

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns reasons against CPUs, log-sum-exp, and dtypes other than f16, bf16, f32 and tf32."""
        found = [f"{self.name} is {NOT_ON_CPU}"] if device.kind == "cpu" else []
        no_lse = f"{self.name} gives no log-sum-exp: FlexAttention's argument for it differs between releases"
        return found + refusal_reasons(workload, AttentionLimits(self.name, dtypes=FLOATS, no_lse=no_lse))

    def prepare(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Builds the block mask of a causal, bottom-right workload, copies the inputs to (B, H, S, D), compiles, and
        runs once.

        Slopes and biases are arguments of the compiled function; its score modification reads them.
        """
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        q = inputs[0]
        shift = workload.seq_kv - workload.seq_q
        window = workload.window
        grouped = workload.heads != workload.kv_heads
        options: Any = dict(self.kernel_options) or None

        def below_diagonal(b: torch.Tensor, h: torch.Tensor, row: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            return key <= row + shift

        def in_window(b: torch.Tensor, h: torch.Tensor, row: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            return (key <= row + shift) & (key > row + shift - window)

        block_mask = None
        if workload.causal:
            visible = in_window if window else below_diagonal
            block_mask = create_block_mask(visible, None, None, workload.seq_q, workload.seq_kv, device=str(q.device))

        def run_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return flex_attention(q, k, v, block_mask=block_mask, enable_gqa=grouped, kernel_options=options)

        def with_alibi(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor) -> Any:
            def add_alibi(score: torch.Tensor, b: Any, h: Any, row: Any, key: Any) -> Any:
                return score - slopes[h] * (row + shift - key).abs()

            return flex_attention(q, k, v, add_alibi, block_mask, enable_gqa=grouped, kernel_options=options)

        def with_bias(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> Any:
            def add_bias(score: torch.Tensor, b: Any, h: Any, row: Any, key: Any) -> Any:
                return score + bias[h, row, key]

            return flex_attention(q, k, v, add_bias, block_mask, enable_gqa=grouped, kernel_options=options)

        function = with_alibi if workload.alibi else with_bias if workload.bias else run_attention
        config = {"compiled": f"flex_attention, {compile_settings()}", "block_mask": str(workload.causal)}
        return _prepare_compiled(compile_for_shapes(function), heads_first(inputs), config)


def compile_for_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` compiled for the shapes of its first call. Raises for anything that cannot be compiled.

    Dynamo stores compiled code on the code object and gives up after eight shapes, so every workload gets its own code
    object. Gradient and inference mode are fixed inside, because another outer state would compile again.
    """
    import torch

    assert isinstance(function, types.FunctionType)
    own = types.FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    fast = torch.compile(own, dynamic=False, fullgraph=True)

    def call_compiled(*tensors: torch.Tensor, **further: torch.Tensor) -> Any:
        with torch.inference_mode(False), torch.no_grad():
            return fast(*tensors, **further)

    return call_compiled


def compile_settings() -> str:
    """Returns as text how functions are compiled: our arguments, and the DECISIVE settings that differ from torch's."""
    import torch._inductor.config

    settings: Any = torch._inductor.config
    changed = [COMPILED]
    for name, default in DECISIVE.items():
        value = reduce(lambda owner, part: getattr(owner, part, None), name.split("."), settings)
        if value is not None and value != default:
            changed.append(f"{name}={value}")
    return ", ".join(changed)


def template_options(config: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Returns (name, value) pairs for FlexAttention's `kernel_options` from a stored configuration. Raises UsageError
    where it has none."""
    for name, text in config.items():
        parts = dict(part.split(": ", 1) for part in text.split(", ") if ": " in part)
        found = tuple((option, int(parts[option])) for option in TEMPLATE_OPTIONS if parts.get(option, "").isdecimal())
        if name.startswith(TEMPLATE) and found:
            return found
    raise UsageError(
        f"the stored configuration has no entry {TEMPLATE}* with the block sizes of FlexAttention's kernel; it has "
        f"{', '.join(sorted(config)) or 'nothing'}; record the baseline again, or run without --attnperf-pin-config"
    )


def _prepare_compiled(call: Callable[..., Any], tensors: Tensors, config: dict[str, str]) -> Prepared:
    call(*tensors)
    return Prepared(
        call=call,
        tensors=tensors,
        convert=heads_first,
        outputs=canonical_outputs,
        config=config,
        declares=Declares(kernels=("triton_",), never=("scaled_dot_product",)),
        arguments=partial(views_compiled_for, call, set()),
    )


def views_compiled_for(call: Callable[..., Any], known: set[Any], inputs: Tensors) -> Tensors:
    """Returns the canonical inputs as (B, H, S, D) views. For strides not in `known` it first compiles `call` and adds
    them.

    As in `CompiledPrefill.prepare`, no graph is taken from AOTAutograd's cache.
    """
    import torch._functorch.config

    views = heads_first_views(inputs)
    strides = tuple(view.stride() for view in views)
    if strides not in known:
        with torch._functorch.config.patch(enable_autograd_cache=False):
            call(*views)
        known.add(strides)
    return views
