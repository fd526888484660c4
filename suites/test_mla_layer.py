"""A whole layer of latent attention over every backend of it: results at small sizes, and DeepSeek-V3's layer.

`layer.X` is the layer over the attention backend X, which is DeepSeek's switch `attn_impl`. The last tests are timed,
stage by stage.
"""

import pytest

from suites import mla_block_workloads as blocks

NAIVE = ["layer.native.mla_naive"]
NATIVE = [*NAIVE, "layer.native.mla_absorb"]


def proven(workloads, label, **chosen):
    """Returns a marker for cases that are proven and never timed."""
    return pytest.mark.attnperf(
        family="mla_block", workloads=workloads, label=label, timed=False, tier="check", each=1, **chosen
    )


def timed(workloads, nightly, cpu=(), **chosen):
    """Returns a marker for cases whose stages are timed too."""
    return pytest.mark.attnperf(
        family="mla_block", workloads=workloads, nightly=nightly, cpu=cpu, breakdown=True, **chosen
    )


@proven(blocks.PROMPTS, "prompts")
def test_prompts(attnperf, backend, workload):
    """A prompt, and the next chunk of one, give outputs and cache rows as the definition does."""
    attnperf.run(backend, workload)


@proven(blocks.DECODES, "decodes")
def test_decodes(attnperf, backend, workload):
    """One token and a few speculated ones attend to the cache and to themselves."""
    attnperf.run(backend, workload)


@proven(blocks.MASKED, "masked", backends=NATIVE)
def test_masked(attnperf, backend, workload):
    """A mask that is an input decides alone which keys a token sees."""
    attnperf.run(backend, workload)


@proven(blocks.EXPANDED, "expanded", backends=NAIVE)
def test_expanded(attnperf, backend, workload):
    """Caches of keys and values of heads give what latents give."""
    attnperf.run(backend, workload)


@timed([blocks.PROMPTS[0], *blocks.DEEPSEEK_PREFILL], blocks.DEEPSEEK_PREFILL, cpu=blocks.PROMPTS[:1])
def test_deepseek_prefill(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)


@timed(blocks.DEEPSEEK_DECODE, blocks.DEEPSEEK_DECODE)
def test_deepseek_decode(attnperf, backend, workload):
    """The same for a step of decoding."""
    attnperf.run(backend, workload)


@timed(blocks.DEEPSEEK_EXPANDED, blocks.DEEPSEEK_EXPANDED, backends=NAIVE)
def test_deepseek_expanded(attnperf, backend, workload):
    """The same over caches of keys and values of heads."""
    attnperf.run(backend, workload)
