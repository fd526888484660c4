"""What a user sees of kernels that read unused elements: a backend over a paged cache, a function with padding."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import full_results

CONFTEST = """
import torch
from pytest_attnperf import Backend, Prepared
from pytest_attnperf.workloads.paged_cache import find_unused_slots, gather

class Paged(Backend):
    families = ("decode",)
    loads_zero = False

    def prepare(self, workload, inputs):
        def call(q, k, v, table, lens):
            keys, values = gather(k, table), gather(v, table)
            hidden = torch.arange(keys.shape[1])[None] >= lens[:, None]
            if self.loads_zero:
                values = values.masked_fill(hidden[..., None, None], 0)
            scores = torch.einsum("bqhd,bshd->bhqs", q, keys) / q.shape[-1] ** 0.5
            weights = torch.softmax(scores.masked_fill(hidden[:, None, None], -torch.inf), -1)
            return torch.einsum("bhqs,bshd->bqhd", weights, values)

        own = tuple(tensor.clone() for tensor in inputs)
        return Prepared(call=call, tensors=own, convert=lambda new: new, outputs=lambda out: {"out": out})

class Masked(Paged):
    loads_zero = True

def pytest_attnperf_register_backends(registry):
    registry.add(Paged("mine.times_zero", 1e9))
    registry.add(Masked("mine.masked_loads", 1e9))
"""
SUITE = """
import pytest

@pytest.mark.attnperf(family="decode", workloads=["decode-b2-kv40-h2-d32-page16-f32-ragged"])
def test_decode(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""
FUNCTIONS = """
import torch

LENGTHS = (40, 12, 45)

def padded(seed):
    torch.manual_seed(seed)
    return torch.randn(3, 704, 32), torch.randn(3, 48, 32), torch.randn(3, 48, 32)

def one_by_one(q, k, v):
    return torch.stack([torch.softmax(q[b] @ k[b, :n].mT / 6, -1) @ v[b, :n] for b, n in enumerate(LENGTHS)])

def batched(q, k, v):
    hidden = torch.arange(48)[None] >= torch.tensor(LENGTHS)[:, None]
    return torch.softmax((q @ k.mT / 6).masked_fill(hidden[:, None], -torch.inf), -1), hidden[..., None]

def times_zero(q, k, v):
    return batched(q, k, v)[0] @ v

def masked_loads(q, k, v):
    weights, hidden = batched(q, k, v)
    return weights @ v.masked_fill(hidden, 0)

def uses_padding(q, k, v):
    return masked_loads(q, k, v) + 1e-7 * v[:, -1:].square().mean()

def test_uses_padding(attnperf):
    attnperf.gate("mine", uses_padding, reference=one_by_one, inputs=padded)

def test_times_zero(attnperf):
    attnperf.gate("mine", times_zero, reference=one_by_one, inputs=padded)

def test_masked_loads(attnperf):
    attnperf.gate("mine", masked_loads, reference=one_by_one, inputs=padded)
"""


def _run(pytester: pytest.Pytester, *typed: str) -> pytest.RunResult:
    pytester.makeini("[pytest]\n")
    return pytester.runpytest_subprocess("-p", "no:randomly", "--attnperf-device=cpu", *typed, timeout=300)


def test_a_backend_that_multiplies_an_unused_slot_by_zero_fails(pytester: pytest.Pytester, own_process: None) -> None:
    """The first line of the problem says what was read; its twin, which differs in its loads alone, is timed."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_mine=SUITE)
    result = _run(pytester, "--attnperf", "--no-attnperf-strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "INCORRECT: mine/mine.times_zero/*",
            "planted inputs: wrong only while unused elements of inputs k and v hold *",
        ]
    )
    assert "1 incorrect, 1 without baseline" in result.stdout.str()
    liar, twin = sorted(
        full_results(pytester.path / ".attnperf" / "results.json")["cases"],
        key=lambda case: case["verdict"] != "INCORRECT",
    )
    assert any(check["reads_garbage"] for check in liar["checks"])
    assert not any(check["reads_garbage"] for check in twin["checks"])
    assert all(any(check["garbage"].get("k", 0) > 1000 for check in case["checks"]) for case in (liar, twin))


def test_a_function_that_uses_padding_fails(pytester: pytest.Pytester, own_process: None) -> None:
    """Nothing but the reference says what is padding; to multiply it by 0 is right."""
    pytester.makepyfile(test_mine=FUNCTIONS)
    result = _run(pytester)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "INCORRECT: mine/gate/test_uses_padding",
            "planted inputs: wrong only while unused elements of inputs k and v hold *",
        ]
    )
