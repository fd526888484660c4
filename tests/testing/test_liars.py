"""The liars as a list, and the honest kernel they start from."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Backend, Registry
from pytest_attnperf.correctness.metrics import compare_output, measure_yardstick
from pytest_attnperf.records import DeviceInfo, Tolerance, Verdict
from pytest_attnperf.testing import liars
from pytest_attnperf.testing.liars import LIARS, Liar
from pytest_attnperf.testing.liars.honest import attend, prepare_attention
from pytest_attnperf.workloads.prefill import Prefill

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test")
GPU = DeviceInfo(kind="cuda", arch="sm_90", product="test")
ON_CPU = [liar for liar in LIARS if not liar.needs_gpu]

each = pytest.mark.parametrize("liar", LIARS, ids=[liar.trick for liar in LIARS])

HONEST = (
    "prefill-b2-s33-kv57-h4-hk2-d40-f16-causal-lse",
    "prefill-b1-s64-h3-hk1-d16-bf16-lse",
    "prefill-b1-s70-kv31-h2-d64-f32-lse",
    "prefill-b2-s48-h2-d32-w7-f16-causal",
    "prefill-b1-s24-kv60-h4-hk2-d32-w24-bf16-causal-lse",
    "prefill-b2-s40-kv24-h4-hk2-d32-f16-causal",
)


def test_there_are_enough_tricks() -> None:
    """At least 24 tricks, 18 of them on machines without a GPU, each with a name and a sentence of its own."""
    assert len(LIARS) >= 24
    assert len(ON_CPU) >= 18
    for field in ("trick", "says"):
        values = [getattr(liar, field) for liar in LIARS]
        assert len(set(values)) == len(values)


def test_every_kind_of_verdict_has_a_liar() -> None:
    """Wrong, slower and implausible results are each shown by a liar that runs on a CPU."""
    assert {liar.verdict for liar in ON_CPU} == {Verdict.INCORRECT, Verdict.SLOWER, Verdict.SUSPICIOUS}


@each
def test_a_liar_is_described_and_has_a_twin(liar: Liar) -> None:
    """Names follow the trick, the twin is another kernel on the same workload, and both declare the same."""
    assert re.fullmatch(r"[a-z][a-z0-9_]+", liar.trick)
    assert re.fullmatch(r"[A-Z0-9].*\.", liar.says)
    assert (liar.lying.name, liar.honest.name) == (f"liar.{liar.trick}", f"twin.{liar.trick}")
    lying: Any = liar.lying
    honest: Any = liar.honest
    assert lying.workload == honest.workload == liar.workload
    assert (lying.kernel, lying.outputs, lying.packs) != (honest.kernel, honest.outputs, honest.packs)
    assert lying.declares == honest.declares
    assert re.search(liar.clue, "") is None, "a clue that is found in no text at all says nothing"
    assert not (liar.needs_gpu and liar.needs_cpu)


def test_the_plugin_registers_all_of_them() -> None:
    """The hook adds every liar and every twin, all of family 'prefill'."""
    registry = Registry()
    liars.pytest_attnperf_register_backends(registry)
    assert {backend.name for backend in registry.for_family("prefill")} == {
        backend.name for liar in LIARS for backend in (liar.lying, liar.honest)
    }
    assert len(registry) == 2 * len(LIARS)
    assert all(isinstance(backend, Backend) for backend in registry)


@each
def test_only_its_own_workload_is_supported(liar: Liar) -> None:
    """Any other workload is refused by name; its own runs on the devices that the trick works on."""
    other = Prefill(3, 5, 1, 8)
    for backend in (liar.lying, liar.honest):
        (reason,) = backend.unsupported_reasons(other, CPU if liar.needs_cpu else GPU)
        assert reason == f"{backend.name} is made for {liar.workload.id} only, not for {other.id}"
        on_cpu = [f"{backend.name} needs a GPU, this is cpu"] if liar.needs_gpu else []
        on_gpu = [f"{backend.name} needs a CPU, this is cuda"] if liar.needs_cpu else []
        assert backend.unsupported_reasons(liar.workload, CPU) == on_cpu
        assert backend.unsupported_reasons(liar.workload, GPU) == on_gpu
        assert (liar.workload.flops <= backend.cpu_flops_max) == (not liar.needs_gpu)


def test_a_reformed_liar_is_its_twin_by_another_name() -> None:
    """What a baseline is stored from has the liar's name and the twin's kernel, and can replace the liar."""
    registry = Registry()
    liars.pytest_attnperf_register_backends(registry)
    for liar in LIARS:
        registry.replace(liar.as_honest)
        reformed: Any = registry.get(liar.lying.name)
        honest: Any = liar.honest
        assert reformed.kernel is honest.kernel


@pytest.mark.parametrize("text", HONEST)
@pytest.mark.parametrize("planted", [False, True])
def test_the_honest_kernel_is_honest(text: str, planted: bool) -> None:
    """`attend` is within budget under every mask, with grouped heads, and in rows that see no key."""
    workload = Prefill.parse(text)
    inputs = workload.make_inputs(3, "cpu", planted=planted)
    reference, plain = workload.reference(inputs), workload.plain(inputs)
    raw = prepare_attention(workload, inputs)(*inputs)
    outputs = dict(zip(("out", "lse"), raw if isinstance(raw, tuple) else (raw,), strict=False))
    assert outputs.keys() == reference.keys()
    for name, got in outputs.items():
        figures = compare_output(
            "check", name, got, reference[name], measure_yardstick(name, reference[name], plain[name]), Tolerance()
        )
        assert figures.nan_count == figures.inf_count == 0
        assert figures.max_error <= figures.max_budget
        assert figures.rms_error <= figures.rms_budget


def test_rows_without_a_key_are_zero_unless_asked_otherwise() -> None:
    """Rows that no key is visible to give 0 and -inf, and NaN where the guard is left out."""
    q, k, v = Prefill(1, 5, 1, 8, seq_kv=2, causal=True).make_inputs(1, "cpu", planted=False)
    out, lse = attend(q, k, v, causal=True)
    assert out[:, :3].eq(0).all()
    assert lse[..., :3].eq(float("-inf")).all()
    assert out[:, 3:].isfinite().all()
    assert attend(q, k, v, causal=True, zero_empty_rows=False)[0][:, :3].isnan().all()


@pytest.mark.parametrize(
    ("wrong", "keys_seen"),
    [
        ({}, [1, 2, 3, 4]),
        ({"diagonal": -1}, [0, 1, 2, 3]),
        ({"hide_last_keys": 1}, [1, 2, 3, 3]),
        ({"show_last_keys": 1}, [2, 3, 4, 4]),
        ({"window": 2}, [1, 2, 2, 2]),
    ],
)
def test_each_way_to_be_wrong_about_the_mask(wrong: dict[str, int], keys_seen: list[int]) -> None:
    """With equal scores the log-sum-exp of a row is the logarithm of the number of keys it sees."""
    q, k = torch.zeros(1, 4, 1, 8), torch.zeros(1, 4, 1, 8)
    _, lse = attend(q, k, k, causal=True, **wrong)  # type: ignore[arg-type]
    torch.testing.assert_close(lse[0, 0], torch.tensor(keys_seen, dtype=torch.float32).log())
