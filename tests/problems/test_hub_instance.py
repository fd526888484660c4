from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.problems.hub_instance import HubInstance
from pytest_attnperf.problems.hub_scripts import read_workloads
from tests.problems.hub_stub import ACTIVATION, BENCHMARK, write_repository

Make = Callable[..., HubInstance]
KERNEL = types.SimpleNamespace(
    silu_and_mul=lambda out, x: out.copy_(torch.nn.functional.silu(x[..., :32]) * x[..., 32:]),
    double=lambda x: x.mul_(2.0),
    add=torch.add,
)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """The first workload of a class with this body, in a script beside a stand-in for the library."""
    for name, code in (("kernels", ""), ("kernels.benchmark", BENCHMARK)):
        module = types.ModuleType(name)
        exec(code, vars(module))
        monkeypatch.setitem(sys.modules, name, module)

    def made(body: str = "") -> HubInstance:
        code = f"class A(Benchmark):\n{body}" if body else ACTIVATION
        return HubInstance(read_workloads(write_repository(tmp_path, code))[0], KERNEL)

    return made


def setup_of(*lines: str, verify: str = "return self.x") -> str:
    """A class whose setup has these lines, and a workload that adds 1 to self.x."""
    body = "".join(f"        {line}\n" for line in lines)
    return (
        f"    def setup(self):\n{body}    def benchmark_a(self):\n        self.out = self.x + 1\n"
        f"    def verify_a(self):\n        {verify}\n"
    )


def test_inputs_follow_the_seed(make: Make) -> None:
    """They are the tensors that setup stores, but for the result, and the same for the same seed."""
    instance = make()
    (x,), (again,), (other,) = (instance.make_inputs(seed) for seed in (1, 1, 2))
    assert torch.equal(x, again)
    assert not torch.equal(x, other)
    assert instance.in_place == ()


def test_the_result_is_written_to_new_memory(make: Make) -> None:
    """self.out of torch.empty is made anew for each call, as is the object: a call finds nothing of the last one."""
    instance = make()
    first, second = (instance.make_inputs(seed)[0] for seed in (1, 2))
    one, two = instance.call(first), instance.call(second)
    assert torch.equal(one, instance.reference(first))
    assert torch.equal(two, instance.reference(second))
    assert one.data_ptr() != two.data_ptr()


def test_a_result_that_setup_fills_is_an_input(make: Make) -> None:
    """What is written over, or added to, begins as setup left it; nothing is planted, because it may follow from other
    inputs."""
    lines = ("self.x = torch.randn(8, 8)", "self.out = self.x.clone()")
    instance = make(setup_of(*lines).replace("self.out = self.x + 1", "self.kernel.double(self.out)"))
    assert instance.in_place == ("out",)
    x, out = instance.make_inputs(3, planted=True)
    assert torch.equal(x, out)
    assert torch.equal(instance.call(x, out.clone()), 2 * x)


def test_lists_and_numbers_are_kept(make: Make) -> None:
    """Tensors in lists, tuples and dicts are inputs, everything else is a constant of the problem."""
    setup = setup_of(
        "self.x = torch.randn(4)",
        "self.more = {'k': [torch.randn(2), 5], 't': (torch.ones(1), float('nan'))}",
        "self.dtype, self.op = torch.float16, torch.ops.aten.add",
        verify="return self.x + self.more['k'][0].sum() + self.more['k'][1] + self.more['t'][0]",
    )
    instance = make(setup)
    tensors = instance.make_inputs(1)
    assert [tuple(one.shape) for one in tensors] == [(4,), (2,), (1,)]
    x, k, t = tensors
    assert torch.equal(instance.reference(*tensors), x + k.sum() + 5 + t)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ("self.x = torch.randn(2)", "self.layer = torch.nn.Linear(2, 2)"),
            "setup stores Linear in layer: tensors in it",
        ),
        (("self.x = torch.randn(2)", "self.f = lambda: self.x"), "setup stores function in f: tensors in it cannot"),
        (("self.n = 3",), r"benchmark_activation\.py: A\.setup stores no tensor in an attribute"),
    ],
)
def test_a_setup_whose_tensors_cannot_be_drawn(make: Make, lines: tuple[str, ...], said: str) -> None:
    """The attribute is named, and what may be stored."""
    with pytest.raises(AttnperfError, match=said):
        make(setup_of(*lines))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("self.n = int(torch.randint(1 << 30, ()))", "another problem for seed 1: n changed; only the values of"),
        (
            "self.y = [torch.ones(1)] * (1 + (torch.initial_seed() == 1))",
            "another problem for seed 1: which attributes hold tensors changed",
        ),
    ],
)
def test_a_problem_that_follows_the_seed(make: Make, line: str, said: str) -> None:
    """Numbers of one seed would meet tensors of another."""
    instance = make(setup_of("self.x = torch.randn(2)", line))
    with pytest.raises(AttnperfError, match=said):
        instance.make_inputs(1)


def test_several_results_that_setup_fills(make: Make) -> None:
    """Each is an input that a call may write to; names that no parameter may have give way to numbers."""
    lines = ("self.x = torch.randn(3)", "self.out = [torch.zeros(3), torch.zeros(3)]")
    run = "self.kernel.add(self.out[0], self.x, out=self.out[1])"
    instance = make(setup_of(*lines).replace("self.out = self.x + 1", run))
    assert instance.in_place == ("out_0", "out_1")
    x, *outs = instance.make_inputs(1, planted=True)
    assert torch.equal(instance.call(x, *outs)[1], x)
    odd = make(setup_of("self.x = torch.randn(3)", "self.d = {'': torch.ones(1), '-': torch.ones(1)}"))
    assert [*inspect.signature(odd.call).parameters] == ["input0", "input1", "input2"]


@pytest.mark.parametrize("verify", ["return self.out", "pass"])
def test_a_reference_that_shows_the_result(make: Make, verify: str) -> None:
    """Its own allclose would pass `return self.out`; here no result is there, and the message says so."""
    instance = make(setup_of("self.x = torch.randn(2)", verify=verify))
    with pytest.raises(AttnperfError, match=r"A\.verify_a returned None: it must return what self\.out should be"):
        instance.reference(*instance.make_inputs(1))


def test_torch_is_left_as_it_was(make: Make) -> None:
    """Looking for unwritten memory changes no setting."""
    make()
    assert not torch.are_deterministic_algorithms_enabled()
