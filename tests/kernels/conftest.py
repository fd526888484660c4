"""Small problems that cross every two of head dim, dtype, head grouping, lengths, causal and lse; further ones with
windows, rows that see no key, and other dtypes; some with ALiBi, biases, other head dimensions of v, and modes of i8;
their judge; and a process that interprets Triton's kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.workloads.base import OUT_DTYPES, TORCH_DTYPES
from pytest_attnperf.workloads.prefill import Prefill
from tests.kernels.interpreting import Interpret, interpreting

PROBLEMS = (
    "prefill-b1-s1-kv97-h2-d256-f32-causal",
    "prefill-b2-s1-kv97-h2-d64-bf16",
    "prefill-b1-s1-kv97-h3-hk1-d128-f16-causal",
    "prefill-b2-s1-kv97-h4-hk2-d16-bf16-lse",
    "prefill-b1-s1-kv97-h4-hk2-d40-bf16",
    "prefill-b2-s1-kv97-h4-hk2-d80-f16-lse",
    "prefill-b1-s33-kv130-h2-d128-f16-causal-lse",
    "prefill-b2-s33-kv130-h2-d64-bf16",
    "prefill-b1-s33-kv130-h2-d80-f16-causal-lse",
    "prefill-b2-s33-kv130-h3-hk1-d16-f32-causal",
    "prefill-b1-s33-kv130-h4-hk2-d256-f32-causal",
    "prefill-b2-s33-kv130-h4-hk2-d40-f32",
    "prefill-b1-s63-h2-d256-bf16-causal",
    "prefill-b2-s63-h2-d40-bf16-causal-lse",
    "prefill-b1-s63-h2-d80-f16-causal-lse",
    "prefill-b2-s63-h3-hk1-d16-bf16-causal-lse",
    "prefill-b1-s63-h3-hk1-d40-f16",
    "prefill-b2-s63-h4-hk2-d128-bf16-causal-lse",
    "prefill-b1-s63-h4-hk2-d64-f32-causal-lse",
    "prefill-b2-s64-h2-d16-f16-causal-lse",
    "prefill-b1-s64-h2-d64-f32",
    "prefill-b2-s64-h2-d80-bf16-causal",
    "prefill-b1-s64-h3-hk1-d128-bf16-causal",
    "prefill-b2-s64-h3-hk1-d256-bf16-causal",
    "prefill-b1-s64-h4-hk2-d256-f16-lse",
    "prefill-b2-s64-h4-hk2-d40-bf16",
    "prefill-b1-s65-h2-d16-f16-causal",
    "prefill-b2-s65-h3-hk1-d128-bf16-lse",
    "prefill-b1-s65-h3-hk1-d40-bf16-causal",
    "prefill-b2-s65-h3-hk1-d80-f32-lse",
    "prefill-b1-s65-h4-hk2-d256-bf16-causal",
    "prefill-b2-s65-h4-hk2-d64-f32-causal",
    "prefill-b1-s70-kv31-h2-d128-f32-lse",
    "prefill-b2-s70-kv31-h2-d16-f32-lse",
    "prefill-b1-s70-kv31-h3-hk1-d256-bf16-lse",
    "prefill-b2-s70-kv31-h3-hk1-d64-f16-lse",
    "prefill-b1-s70-kv31-h4-hk2-d40-f16-lse",
    "prefill-b2-s70-kv31-h4-hk2-d80-bf16",
)


FURTHER_PROBLEMS = (
    "prefill-b2-s63-h4-hk2-d40-w7-bf16-causal",
    "prefill-b1-s33-kv130-h2-d64-w16-f16-causal-lse",
    "prefill-b2-s70-h3-hk1-d16-w1-f32-causal",
    "prefill-b1-s64-h2-d128-w200-f16-causal",
    "prefill-b2-s70-kv31-h4-hk2-d64-f16-causal-lse",
    "prefill-b1-s70-kv31-h2-d40-bf16-causal",
    "prefill-b1-s70-kv31-h3-hk1-d16-w5-f32-causal-lse",
    "prefill-b1-s65-h4-hk2-d64-tf32-causal-lse",
    "prefill-b2-s33-kv130-h2-d40-tf32",
    "prefill-b2-s65-h4-hk2-d64-f8e4m3-causal-lse",
    "prefill-b1-s33-kv130-h2-d80-f8e5m2",
    "prefill-b1-s64-h4-hk2-d128-f8e4m3fnuz-causal",
    "prefill-b2-s63-h2-d16-w9-f8e5m2fnuz-causal",
    "prefill-b1-s70-kv31-h2-d64-i8-causal-lse",
    "prefill-b1-s65-h3-hk1-d40-i8",
)


FEATURE_PROBLEMS = (
    "prefill-b2-s63-h4-hk2-d64-dv40-f16-causal-lse",
    "prefill-b1-s33-kv130-h2-d192-dv128-bf16-causal",
    "prefill-b1-s33-kv70-h3-hk1-d40-bf16-causal-alibi",
    "prefill-b2-s70-kv33-h3-d40-w9-f16-causal-lse-alibi",
    "prefill-b2-s65-h4-hk2-d59-dv64-f32-alibi",
    "prefill-b1-s64-kv31-h6-hk2-d16-tf32-causal-alibi",
    "prefill-b2-s70-kv33-h4-d111-f16-lse-bias",
    "prefill-b2-s33-kv70-h4-hk1-d40-w5-bf16-causal-bias",
    "prefill-b1-s65-h3-d24-dv16-f32-causal-bias",
    "prefill-b1-s64-h8-d64-i8-pv16-causal-alibi",
    "prefill-b2-s70-kv31-h4-hk2-d40-i8-pv16-causal-lse-bias",
    "prefill-b1-s65-h4-hk2-d192-dv128-i8-pv16",
    "prefill-b1-s65-h4-hk2-d64-w20-i8-kv8-causal-lse",
    "prefill-b1-s33-kv90-h4-d40-dv24-i8-kv8-bias",
    "prefill-b1-s65-h4-hk2-d64-f8e4m3-causal-alibi",
    "prefill-b2-s33-kv70-h2-d40-i8-lse-bias",
)


@pytest.fixture(scope="session")
def problems() -> tuple[str, ...]:
    """Ids of all small problems."""
    return PROBLEMS


@pytest.fixture(params=PROBLEMS)
def problem(request: pytest.FixtureRequest) -> Prefill:
    """Each small problem in turn."""
    return Prefill.parse(request.param)


@pytest.fixture(scope="session")
def further_problems() -> tuple[str, ...]:
    """Ids of all further problems."""
    return FURTHER_PROBLEMS


@pytest.fixture(params=FURTHER_PROBLEMS)
def further_problem(request: pytest.FixtureRequest) -> Prefill:
    """Each further problem in turn."""
    return Prefill.parse(request.param)


@pytest.fixture(scope="session")
def feature_problems() -> tuple[str, ...]:
    """Ids of all problems with features."""
    return FEATURE_PROBLEMS


@pytest.fixture(params=FEATURE_PROBLEMS)
def feature_problem(request: pytest.FixtureRequest) -> Prefill:
    """Each problem with features in turn."""
    return Prefill.parse(request.param)


@pytest.fixture(scope="session")
def interpret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpret]:
    """`interpret(module, cases)`: what an interpreting process finds of the cases, each when it is asked for.

    Of 'backend/workload id' cases of `module.BACKENDS`: outputs, config (as recorded), replays, unchanged (the inputs),
    seconds. One process serves all modules: to import torch and triton takes as long as the cases of most.
    """
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    with interpreting(tmp_path_factory.mktemp("interpreted")) as interpret:
        yield interpret


@pytest.fixture
def assert_right() -> Callable[[Prefill, Tensors, Outputs], None]:
    """Raise AssertionError unless every output is within twice the plain computation's own error, plus one rounding."""
    return _assert_right


def _assert_right(workload: Prefill, inputs: Tensors, outputs: Outputs) -> None:
    import torch

    reference, plain = workload.reference(inputs), workload.plain(inputs)
    assert outputs.keys() == reference.keys()
    for name, expected in reference.items():
        got = outputs[name].double()
        stored_as = torch.float32 if name == "lse" else getattr(torch, TORCH_DTYPES[OUT_DTYPES[workload.dtype]])
        assert (outputs[name].shape, outputs[name].dtype) == (expected.shape, stored_as)
        seen = expected.isfinite()
        assert bool(seen.all()) == (name not in workload.non_finite_outputs)
        assert torch.equal(got[~seen], expected[~seen].double())
        rounding = torch.finfo(stored_as).eps * expected[seen].double().abs().max().item()
        budget = 2 * (plain[name].double() - expected)[seen].abs().max().item() + rounding
        error = (got - expected)[seen].abs().max().item()
        assert error <= budget, f"{workload.id} {name}: error {error:.3g} is beyond {budget:.3g}"
