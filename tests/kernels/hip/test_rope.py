"""The rotary embedding in HIP: right on crossed properties, how it is spread over threads, what it is compiled as."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernels.hip.rope import BACKENDS, THREADS, kernel_of
from kernels.hip.rope_builds import KERNELS
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.rope import Rope

(ROPE,) = BACKENDS
H200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
CASES = (
    "rope-b1-s1-h1-d2-f32",
    "rope-b2-s33-h4-hk2-d64-f16",
    "rope-b1-s63-h5-hk1-d128-bf16",
    "rope-b2-s7-h3-d80-bf16",
    "rope-b1-s9-h2-d6-f16",
    "rope-b2-s33-h4-hk2-d64-bf16-interleaved",
    "rope-b1-s9-h5-hk1-d128-f32-interleaved",
    "rope-b1-s5-h9-hk3-d512-f16-interleaved",
    "rope-b1-s5-h9-hk3-d512-f32",
    "rope-b1-s9-h4-hk2-d6-bf16-interleaved",
)
"""Every dtype with both kinds of pairs; 1, 2, 4 and 8 pairs for a thread; heads that are fewer and more than the lanes
for them; workgroups of one token and of several, filled and not."""


@pytest.mark.parametrize("text", CASES)
def test_right_on_small_problems(
    text: str, emulate: Callable[[str], None], judged: Callable[..., tuple[str, ...]]
) -> None:
    """Both outputs are within budget, aligned as the loads need it, within their tensors, each written once."""
    emulate("gfx942" if CASES.index(text) % 2 else "gfx1100")
    assert judged(ROPE, text) == ()


@pytest.mark.gpu
@pytest.mark.parametrize("text", [*CASES, "rope-b2-s700-h12-hk3-d80-f16"])
def test_right_on_small_problems_on_a_gpu(text: str, judged: Callable[..., tuple[str, ...]]) -> None:
    """The compiled kernel is within budget on the same problems, and on one of many workgroups."""
    assert judged(ROPE, text, "cuda") == ()


@pytest.mark.parametrize(
    ("text", "pairs", "head_lanes", "tokens"),
    [
        ("rope-b4-s4096-h32-hk8-d128-bf16", 8, 8, 4),
        ("rope-b8-s4096-h12-d80-f16", 8, 8, 6),
        ("rope-b8-s2048-h16-d256-f16-interleaved", 4, 8, 1),
        ("rope-b1-s256-h4-hk2-d64-f32", 4, 8, 4),
        ("rope-b1-s256-h4-hk2-d64-f32-interleaved", 2, 8, 2),
        ("rope-b1-s256-h4-d6-f16", 1, 8, 10),
        ("rope-b1-s256-h4-d12-f16", 2, 8, 10),
        ("rope-b1-s256-h4-d512-f32-interleaved", 2, 2, 1),
    ],
)
def test_threads_read_16_bytes_where_they_can(text: str, pairs: int, head_lanes: int, tokens: int) -> None:
    """As many pairs as 16 bytes hold and divide the head, at most 8 heads at once, tokens until a workgroup is full."""
    workload = Rope.parse(text)
    defines = kernel_of(workload).defines
    assert (defines["PAIRS"], defines["HEAD_LANES"], defines["TOKENS"]) == (str(pairs), str(head_lanes), str(tokens))
    assert workload.head_dim // 2 // pairs * head_lanes * tokens <= THREADS


def test_what_is_recorded_and_declared(emulate: Callable[[str], None]) -> None:
    """The file and how it was spread stand in the result; the kernel must be among what ran."""
    emulate("gfx942")
    workload = Rope.parse(CASES[1])
    prepared = ROPE.prepare(workload, workload.make_inputs(1, "cpu", planted=True))
    assert prepared.config == {"file": "rope.hip", "PAIRS": "8", "HEAD_LANES": "8", "TOKENS": "8"}
    assert (prepared.declares.kernels, prepared.declares.matrix) == (("rope_forward",), False)


def test_a_missing_compiler_is_its_only_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every workload of the family is taken where kernels can be compiled at all."""
    for missing in ([], ["no compiler"]):
        monkeypatch.setattr("kernels.hip.rope.missing_hip", lambda device, said=missing: list(said))
        for text in CASES:
            assert ROPE.unsupported_reasons(Rope.parse(text), H200) == missing


def test_builds_are_the_shapes_of_the_suite() -> None:
    """One for each dtype, both kinds of pairs."""
    (kernel,) = KERNELS
    configs = [declared.config for declared in kernel.builds("gfx942")]
    assert configs == ["d128-bf16-halves", "d80-f16-halves", "d256-f16-interleaved", "d64-f32-halves"]
