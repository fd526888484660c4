from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.measure.autotuners import record_choices

pytest_plugins = ["tests.measure.fake_autotuners"]

X = SimpleNamespace(dtype="torch.float16")
SMALL, LARGE = "BLOCK: 16, num_warps: 4, num_stages: 2", "BLOCK: 32, num_warps: 8, num_stages: 2"


def test_what_triton_chose(triton_tuner: Callable[..., Any]) -> None:
    """The fastest configuration is an entry under the kernel's name; runs after the context are not recorded."""
    with record_choices() as chosen:
        triton_tuner(faster=32).run(X, 512)
    triton_tuner(faster=16).run(X, 512)
    assert chosen.build_config_entries() == {"autotuned.tuned": LARGE}


def test_what_triton_chose_before(triton_tuner: Callable[..., Any]) -> None:
    """A kernel that an earlier case has tuned is recorded when it runs, though nothing is tuned any more."""
    tuner = triton_tuner()
    tuner.run(X, 512)
    with record_choices() as chosen:
        tuner.run(X, 512)
    assert chosen.build_config_entries() == {"autotuned.tuned": SMALL}


def test_one_configuration_is_no_choice(triton_tuner: Callable[..., Any]) -> None:
    """A kernel with a single configuration has no entry."""
    tuner = triton_tuner()
    del tuner.configs[1:]
    with record_choices() as chosen:
        tuner.run(X, 512)
    assert chosen.build_config_entries() == {}


def test_several_choices_for_one_kernel(triton_tuner: Callable[..., Any]) -> None:
    """Where a call tunes one kernel twice with different results, both are kept, told apart by their tuning keys."""
    small, large = triton_tuner(faster=16), triton_tuner(faster=32)
    with record_choices() as chosen:
        small.run(X, 512)
        large.run(X, 1024)
        small.run(X, 512)
    (one, other) = chosen.build_config_entries().items()
    assert one[0].endswith("size=1024, float16)")
    assert other[0].endswith("size=512, float16)")
    assert (one[1], other[1]) == (LARGE, SMALL)


def test_equal_choices_share_an_entry(triton_tuner: Callable[..., Any]) -> None:
    """Two sizes with the same result are one entry."""
    tuner = triton_tuner()
    with record_choices() as chosen:
        tuner.run(X, 512)
        tuner.run(X, 1024)
    assert chosen.build_config_entries() == {"autotuned.tuned": SMALL}


def test_what_inductor_chose(inductor_tuner: type[Any]) -> None:
    """Kernels of Inductor are recorded under their own names with what was launched, a template with its constants."""
    with record_choices() as chosen:
        inductor_tuner("triton_poi_fused_0", (256, 512)).run()
        inductor_tuner("triton_tem_fused_1", (64,), constants={"BLOCK_M": 128, "SM_SCALE": 0.1}).run()
    assert chosen.build_config_entries() == {
        "autotuned.triton_poi_fused_0": "XBLOCK: 256, num_warps: 4, num_stages: 1",
        "autotuned.triton_tem_fused_1": "BLOCK_M: 128, XBLOCK: 64, num_warps: 4, num_stages: 1",
    }


def test_whether_inductor_pads(padding: Any) -> None:
    """The answer for each product is recorded; equal answers share an entry."""
    with record_choices() as chosen:
        assert padding.ask((2, 9, 64), (2, 64, 9)) is False
        assert padding.ask((2, 9, 9), (2, 9, 64)) is False
    assert chosen.build_config_entries() == {"autotuned.pad_mm": "not padded"}


def test_internals_of_another_version(inductor_tuner: type[Any]) -> None:
    """What cannot be read makes an entry that says why, and the kernel runs all the same."""
    tuner = inductor_tuner("triton_poi_fused_0", (256,))
    del tuner.kernel_hash
    with record_choices() as chosen:
        tuner.run()
    (entry,) = chosen.build_config_entries().items()
    assert entry[0] == "autotuned"
    assert entry[1].startswith("unknown: AttributeError: ")
    assert "kernel_hash" in entry[1]
    assert len(tuner.launched) == 1


def test_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording loads neither Triton nor Inductor."""
    for name in ("triton.runtime.autotuner", "torch._inductor.runtime.triton_heuristics"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with record_choices() as chosen:
        pass
    assert chosen.build_config_entries() == {}
    assert "triton.runtime.autotuner" not in sys.modules
    assert "torch._inductor.runtime.triton_heuristics" not in sys.modules


@pytest.mark.gpu
def test_a_compiled_function_on_a_gpu() -> None:
    """Every kernel that torch.compile made is recorded, with warps and stages."""
    import torch

    def softmax_of_transposed(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.transpose(0, 1) * 2, dim=-1)

    x = torch.randn(515, 1030, device="cuda")
    with record_choices() as chosen:
        compiled = torch.compile(softmax_of_transposed, dynamic=False)
        compiled(x)
    config = chosen.build_config_entries()
    assert config
    assert all(name.startswith("autotuned.triton_") and "num_warps: " in text for name, text in config.items())
