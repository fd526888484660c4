"""A whole attention layer over every attention backend: seven integration tests, and layers of models.

The layer is QKV projection, split, RoPE, cache update, attention, flatten, output projection; `layer.X` is the layer
over the attention backend X. Every check is on a GPU and, with `--attnperf-device=cpu` or without one, on the CPU. The
judge checks each test's claim on at least two draws of inputs; the last two tests are timed, stage by stage.
"""

import pytest

from suites import block_workloads as blocks

DECODE_LAYERS = [
    "layer.plain",
    "layer.native.eager_decode",
    "layer.native.sdpa_decode",
    "layer.triton.flash_decode",
    "layer.hip.decode",
]
OTHER_CONFIGURATIONS = ["layer.triton.flash_trans_v_perf_kernels", "layer.triton.flash_trans_v_autotuned"]
NOT_PREFILL = [
    "layer.aiter",
    *OTHER_CONFIGURATIONS,
    *(name for name in DECODE_LAYERS if name != "layer.plain"),
]
"""Layers that are left out: decode-only ones, aiter's own choices, which `layer.ck` represents, and other
configurations of the kernel of `layer.triton.flash_trans_v`."""

COMPILED_LAYERS = ["layer.native.compiled", "layer.native.flex"]
"""Layers that Inductor compiles again for each length, which takes seconds."""

MODEL_LAYERS = [
    "layer.plain",
    "layer.native.sdpa_flash",
    "layer.triton.flash",
    "layer.triton.staged",
    "layer.hip.best",
    "layer.hip.staged",
]
"""Layers timed at a model's sizes: one unfused and one fused attention of each library."""

STACK_LAYERS = ["layer.plain", "layer.native.sdpa_flash", "layer.triton.flash", "layer.hip.best"]

STAGED_LAYERS = [f"{name}-{blocks.PREFILL_MODELS[0].id}" for name in ("layer.triton.staged", "layer.hip.staged")]
"""Layers whose staged attention takes most of their tests' time."""


def proven(workloads, label, each=1, **chosen):
    """Returns a marker for cases that are proven and never timed, on the named `backends` or all `without` some.

    Untimed runs take `each` workloads per backend, and all workloads together; nightly runs take all with each backend.
    """
    return pytest.mark.attnperf(
        family="block", workloads=workloads, label=label, timed=False, tier="check", each=each, **chosen
    )


def timed(workloads, nightly=(), cpu=(), **chosen):
    """Returns a marker for cases whose stages are timed too."""
    return pytest.mark.attnperf(family="block", workloads=workloads, nightly=nightly, cpu=cpu, breakdown=True, **chosen)


class TestPrefill:
    """Prompts, and chunks of prompts whose beginning is in the cache."""

    @proven(blocks.ONE_TOKEN, "one token", without=NOT_PREFILL)
    def test_one_token(self, attnperf, backend, workload):
        """One token attends to itself."""
        attnperf.run(backend, workload)

    @proven(blocks.SEVERAL_TOKENS, "several tokens", without=NOT_PREFILL)
    def test_several_tokens(self, attnperf, backend, workload):
        """Sixteen tokens, with nothing or 48 tokens before them."""
        attnperf.run(backend, workload)

    @proven(blocks.CAUSAL, "causal mask", without=NOT_PREFILL)
    def test_causal_mask(self, attnperf, backend, workload):
        """No token sees a later one, and each sees itself: rows that one key dominates lie on both sides of it."""
        attnperf.run(backend, workload)

    @proven(blocks.HOST, "against CPU", without=NOT_PREFILL)
    def test_against_cpu(self, attnperf, backend, workload):
        """The device gives what a CPU gives in fp64 from the same inputs."""
        attnperf.run(backend, workload)

    @proven(blocks.LENGTHS, "lengths", each=2, without=[*NOT_PREFILL, *COMPILED_LAYERS])
    def test_sequence_lengths(self, attnperf, backend, workload):
        """Every length from 1 to 32."""
        attnperf.run(backend, workload)

    @proven(blocks.STABILITY, "stability", each=2, without=NOT_PREFILL)
    def test_numerical_stability(self, attnperf, backend, workload):
        """Large logits, tiny and huge values, equal scores, and values near the largest that fp16 holds."""
        attnperf.run(backend, workload)

    @timed(blocks.BASELINE, cpu=blocks.BASELINE, without=NOT_PREFILL)
    def test_performance_baseline(self, attnperf, backend, workload):
        """The result is right and, when timed, no slower than its baseline."""
        attnperf.run(backend, workload)

    @timed(blocks.STACKS, blocks.STACKS, backends=STACK_LAYERS, costs={"peak_bytes": 0})
    def test_stack(self, attnperf, backend, workload):
        """Layers reuse the buffers of those before them: the peak of memory is gated, beside the time."""
        attnperf.run(backend, workload)

    @timed(blocks.PREFILL_MODELS, [*blocks.PREFILL_MODELS[1:], *STAGED_LAYERS], backends=MODEL_LAYERS)
    def test_models(self, attnperf, backend, workload):
        """The same at the sizes of models' layers."""
        attnperf.run(backend, workload)


class TestDecode:
    """New tokens of sequences that are in the cache."""

    @proven(blocks.ONE_TOKEN_DECODE, "one token", backends=DECODE_LAYERS)
    def test_one_token(self, attnperf, backend, workload):
        """One token attends to those before it and to itself."""
        attnperf.run(backend, workload)

    @proven(blocks.SEVERAL_TOKENS_DECODE, "several tokens", backends=DECODE_LAYERS)
    def test_several_tokens(self, attnperf, backend, workload):
        """A few speculated tokens, each of which sees those before it."""
        attnperf.run(backend, workload)

    @proven(blocks.CAUSAL_DECODE, "causal mask", backends=DECODE_LAYERS)
    def test_causal_mask(self, attnperf, backend, workload):
        """The last key of the cache and the token's own are seen, and nothing behind them."""
        attnperf.run(backend, workload)

    @proven(blocks.HOST_DECODE, "against CPU", backends=DECODE_LAYERS)
    def test_against_cpu(self, attnperf, backend, workload):
        """The device gives what a CPU gives in fp64 from the same inputs."""
        attnperf.run(backend, workload)

    @proven(blocks.LENGTHS_DECODE, "lengths", each=7, backends=DECODE_LAYERS)
    def test_sequence_lengths(self, attnperf, backend, workload):
        """Every length of the cache from 2 to 32, the new token included."""
        attnperf.run(backend, workload)

    @proven(blocks.STABILITY_DECODE, "stability", each=2, backends=DECODE_LAYERS)
    def test_numerical_stability(self, attnperf, backend, workload):
        """Large logits, tiny and huge values, equal scores, and values near the largest that fp16 holds."""
        attnperf.run(backend, workload)

    @timed(blocks.DECODE_MODELS, blocks.DECODE_MODELS[1:], backends=DECODE_LAYERS)
    def test_models(self, attnperf, backend, workload):
        """The same at the sizes of models' layers."""
        attnperf.run(backend, workload)
