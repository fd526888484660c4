from __future__ import annotations

import gc
import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.backends import Backend, Prepared
from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure.autotuners import format_config, record_choices
from pytest_attnperf.measure.pinned_backend import PinnedBackend, pin_backend, pin_choices
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.records import DeviceInfo, Tolerance
from pytest_attnperf.workloads.prefill import Prefill

pytest_plugins = ["tests.measure.fake_autotuners"]

X = SimpleNamespace(dtype="torch.float16")
SMALL, LARGE = "BLOCK: 16, num_warps: 4, num_stages: 2", "BLOCK: 32, num_warps: 8, num_stages: 2"
WORKLOAD = Prefill.parse("prefill-b1-s8-h2-d64-f16")
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")


POINTWISE = "triton_poi_fused_0"


@dataclass(frozen=True)
class Tuned(Backend):
    """A backend around an autotuned kernel, which it only binds in `prepare`."""

    families = ("prefill",)
    name: str = field(default="triton.tuned", init=False)
    cpu_flops_max: float = field(default=1e6, init=False)
    times_on_cpu: bool = field(default=False, init=False)
    tolerance: Tolerance = field(default_factory=Tolerance, kw_only=True)
    tuner: Any
    chosen: str = "own"

    def unsupported_reasons(self, workload: Any, device: DeviceInfo) -> list[str]:
        """A reason that names the device."""
        return [f"not on {device.kind}"]

    def prepare(self, workload: Any, inputs: Any) -> Prepared:
        """Run nothing."""
        return Prepared(
            call=lambda: self.tuner.run(X, 512), tensors=(), convert=tuple, outputs=dict, config={"chosen": self.chosen}
        )


class Choosing(Tuned):
    """A backend that makes a choice of its own."""

    def replay_config(self, config: Mapping[str, str]) -> Choosing:
        """Take what is stored."""
        if "chosen" not in config:
            raise UsageError("nothing chosen is stored")
        return Choosing(self.tuner, chosen=config["chosen"])


def test_everything_else_is_the_backends_own() -> None:
    """Name, families, limits, tolerance and reasons are those of the backend, and it is a Backend."""
    backend = Tuned(None, tolerance=Tolerance(3.0, source="a test"))
    pinned = pin_backend(backend, {})
    assert isinstance(pinned, Backend)
    for name in ("name", "families", "cpu_flops_max", "times_on_cpu", "tolerance"):
        assert getattr(pinned, name) == getattr(backend, name)
    assert pinned.unsupported_reasons(WORKLOAD, CPU) == ["not on cpu"]


def test_a_kernel_that_is_only_bound_is_pinned(triton_tuner: Callable[..., Any]) -> None:
    """The kernel runs once under the stored choice, which stays for the timed calls, and the result says so."""
    tuner = triton_tuner(faster=16)
    prepared = pin_backend(Tuned(tuner), {"autotuned.tuned": LARGE}).prepare(WORKLOAD, ())
    prepared.run()
    assert [run["BLOCK"] for run in tuner.fn.runs] == [32, 32]
    assert prepared.config == {"chosen": "own", "pinned": "as stored"}


def test_the_next_case_chooses_for_itself(triton_tuner: Callable[..., Any]) -> None:
    """When the prepared case is dropped, the kernel is tuned again."""
    tuner = triton_tuner(faster=16)
    prepared = pin_backend(Tuned(tuner), {"autotuned.tuned": LARGE}).prepare(WORKLOAD, ())
    del prepared
    gc.collect()
    tuner.run(X, 512)
    assert tuner.fn.runs[-1]["BLOCK"] == 16


def test_what_is_not_replayed_is_said(triton_tuner: Callable[..., Any]) -> None:
    """A stored choice whose kernel did not run is named in the result."""
    stored = {"autotuned.gone": SMALL, "autotuned.tuned": LARGE}
    prepared = pin_backend(Tuned(triton_tuner()), stored).prepare(WORKLOAD, ())
    assert prepared.config["pinned"] == "not all that is stored: gone: nothing of this name ran or was decided"


def test_nothing_to_replay_is_said(triton_tuner: Callable[..., Any]) -> None:
    """A stored configuration without any choice runs nothing extra, and the result says that it held none."""
    tuner = triton_tuner()
    prepared = pin_backend(Tuned(tuner), {"aiter": "0.1.9"}).prepare(WORKLOAD, ())
    assert tuner.fn.runs == []
    assert prepared.config["pinned"] == "nothing: the stored configuration holds no choice"


def test_padding_that_was_answered_is_in_the_result(padding: Any) -> None:
    """What nobody was asked any more, so that no recording can see it, is an entry all the same."""

    class Padding(Tuned):
        def prepare(self, workload: Any, inputs: Any) -> Prepared:
            padding.ask((2, 9, 64), (2, 64, 9))
            return super().prepare(workload, inputs)

    pytest.importorskip("torch")
    prepared = pin_backend(Padding(None), {"autotuned.pad_mm": "padded"}).prepare(WORKLOAD, ())
    assert prepared.config == {"chosen": "own", "autotuned.pad_mm": "padded", "pinned": "as stored"}


def test_a_backend_replays_its_own_choice(triton_tuner: Callable[..., Any]) -> None:
    """A Pinnable backend takes the stored configuration itself; one that lacks what it needs raises."""
    pinned = pin_backend(Choosing(triton_tuner()), {"chosen": "stored"})
    assert isinstance(pinned, PinnedBackend)
    assert pinned.prepare(WORKLOAD, ()).config == {"chosen": "stored", "pinned": "as stored"}
    with pytest.raises(UsageError, match="nothing chosen is stored"):
        pin_backend(Choosing(None), {})


def blocks(tuner: Any) -> list[int]:
    """BLOCK of every call of the kernel so far, timed ones included."""
    return [run["BLOCK"] for run in tuner.fn.runs]


def test_triton_runs_the_stored_choice_untimed(triton_tuner: Callable[..., Any]) -> None:
    """The slower configuration runs because it is stored, and none is timed."""
    tuner = triton_tuner(faster=16)
    with pin_choices({"autotuned.tuned": LARGE}) as pins:
        tuner.run(X, 512)
    assert blocks(tuner) == [32]
    assert pins.list_missed_choices() == []


def test_the_choice_stays_after_the_context(triton_tuner: Callable[..., Any]) -> None:
    """Later calls of the same size find the pinned configuration where Triton keeps its own."""
    tuner = triton_tuner(faster=16)
    with pin_choices({"autotuned.tuned": LARGE}):
        tuner.run(X, 512)
    tuner.run(X, 512)
    assert blocks(tuner) == [32, 32]


def test_a_released_autotuner_chooses_again(triton_tuner: Callable[..., Any]) -> None:
    """After the case the pinned choice is forgotten, so that the next one tunes for itself."""
    tuner = triton_tuner(faster=16)
    with pin_choices({"autotuned.tuned": LARGE}) as pins:
        tuner.run(X, 512)
    pins.release()
    tuner.run(X, 512)
    assert blocks(tuner) == [32, 16, 32, 16]


def test_an_earlier_choice_is_replaced(triton_tuner: Callable[..., Any]) -> None:
    """A kernel that was tuned before in this process runs the stored configuration all the same."""
    tuner = triton_tuner(faster=16)
    tuner.run(X, 512)
    with pin_choices({"autotuned.tuned": LARGE}):
        tuner.run(X, 512)
    assert blocks(tuner)[-1] == 32


def test_each_use_has_its_own(triton_tuner: Callable[..., Any]) -> None:
    """What was recorded for two sizes is replayed for each of them, though the autotuner would choose otherwise."""
    small, large = triton_tuner(faster=16), triton_tuner(faster=32)
    with record_choices() as chosen:
        small.run(X, 512)
        large.run(X, 1024)
    tuner = triton_tuner(faster=16)
    with pin_choices(chosen.build_config_entries()) as pins:
        tuner.run(X, 512)
        tuner.run(X, 1024)
    assert blocks(tuner) == [16, 32]
    assert pins.list_missed_choices() == []


def test_other_kernels_are_left_alone(triton_tuner: Callable[..., Any]) -> None:
    """A kernel of another name is tuned as always, and the stored one that did not run is said."""
    tuner = triton_tuner(faster=32)
    with pin_choices({"autotuned.tune": SMALL, "BLOCK_M": "64"}) as pins:
        tuner.run(X, 512)
    assert blocks(tuner) == [16, 32, 32]
    assert pins.list_missed_choices() == ["tune: nothing of this name ran or was decided"]


def test_what_triton_no_longer_offers(triton_tuner: Callable[..., Any]) -> None:
    """A configuration that is gone is said, and the autotuner chooses."""
    tuner = triton_tuner(faster=16)
    with pin_choices({"autotuned.tuned": "BLOCK: 64, num_warps: 4, num_stages: 2"}) as pins:
        tuner.run(X, 512)
    assert blocks(tuner) == [16, 32, 16]
    assert pins.list_missed_choices() == [
        "tuned: 'BLOCK: 64, num_warps: 4, num_stages: 2' is stored, and its autotuner no longer offers it"
    ]


def test_inductor_launches_the_stored_choice(inductor_tuner: type[Any]) -> None:
    """Of what Inductor has compiled the stored configuration is launched; afterwards it chooses again."""
    tuner = inductor_tuner(POINTWISE, (256, 512))
    with pin_choices({f"autotuned.{POINTWISE}": "XBLOCK: 512, num_warps: 4, num_stages: 1"}) as pins:
        tuner.run()
    tuner.run()
    pins.release()
    tuner.run()
    assert [config.kwargs["XBLOCK"] for config in tuner.launched] == [512, 512, 256]
    assert pins.list_missed_choices() == []


def test_inductor_compiles_the_stored_choice(inductor_tuner: type[Any]) -> None:
    """A stored configuration that is not among them, as after a hit in its cache on disk, is compiled."""
    tuner = inductor_tuner(POINTWISE, (256,))
    tuner.run()
    tuner._cached_launcher = tuner.launchers[0]
    with pin_choices({f"autotuned.{POINTWISE}": "XBLOCK: 1024, num_warps: 8, num_stages: 1"}) as pins:
        tuner.run()
    launched = tuner.launched[-1]
    assert (launched.kwargs, launched.num_warps, launched.num_stages) == ({"XBLOCK": 1024}, 8, 1)
    assert tuner._cached_launcher is None
    assert pins.list_missed_choices() == []


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (
            "BLOCK_M: 64, XBLOCK: 256, num_warps: 4, num_stages: 1",
            "BLOCK_M is a constant of its source: 128 here, 64 stored",
        ),
        ("XBLOCK: 256, num_warps: 4, num_stages: 1", "its configuration now has .*'BLOCK_M'.*, the stored one .*"),
    ],
)
def test_what_inductor_cannot_be_given(inductor_tuner: type[Any], stored: str, why: str) -> None:
    """Constants of the source and other parameters cannot be replayed: that is said, and the kernel runs as it is."""
    tuner = inductor_tuner("triton_tem_0", (256,), constants={"BLOCK_M": 128})
    with pin_choices({"autotuned.triton_tem_0": stored}) as pins:
        tuner.run()
        tuner.run()
    (missed,) = pins.list_missed_choices()
    assert re.fullmatch(f"triton_tem_0: {why}", missed)
    assert [config.kwargs["XBLOCK"] for config in tuner.launched] == [256, 256]


def test_internals_of_another_version(inductor_tuner: type[Any]) -> None:
    """What another version lacks is a reason, not an exception."""
    tuner = inductor_tuner(POINTWISE, (256,))
    tuner.run()
    tuner._precompile_config = None
    with pin_choices({f"autotuned.{POINTWISE}": "XBLOCK: 64, num_warps: 4, num_stages: 1"}) as pins:
        tuner.run()
    assert pins.list_missed_choices() == [f"{POINTWISE}: TypeError: 'NoneType' object is not callable"]


def test_padding_is_answered_from_what_is_stored(padding: Any) -> None:
    """A stored answer is given without asking; graphs are traced anew meanwhile, and the answer is said."""
    settings = pytest.importorskip("torch._functorch.config")
    before = settings.enable_autograd_cache
    stored = {"autotuned.pad_mm(aten.bmm float16 2x9x64 by 2x64x9)": "padded"}
    with pin_choices(stored) as pins:
        assert settings.enable_autograd_cache is False
        assert padding.ask((2, 9, 64), (2, 64, 9)) is True
        assert padding.ask((2, 9, 9), (2, 9, 64)) is False
    assert settings.enable_autograd_cache == before
    assert pins.decided_entries == stored


def test_nothing_to_pin_changes_nothing(triton_tuner: Callable[..., Any]) -> None:
    """Without a stored choice the autotuner is not touched."""
    autotuner = type(triton_tuner())
    run = autotuner.run
    with pin_choices({"BLOCK_M": "64"}) as pins:
        assert autotuner.run is run
    assert pins.list_missed_choices() == []


@pytest.mark.gpu
def test_a_compiled_function_on_a_gpu() -> None:
    """What torch.compile chose is replaced by other warps, launched so, still right, and gone after the release."""
    import torch

    def softmax_of_transposed(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.transpose(0, 1) * 2, dim=-1)

    x = torch.randn(515, 1030, device="cuda")
    expected = softmax_of_transposed(x)
    compiled = torch.compile(softmax_of_transposed, dynamic=False)
    with record_choices() as chosen:
        compiled(x)
    own = chosen.build_config_entries()
    stored = {name: text.replace("num_warps: 4", "num_warps: 2").replace("num_warps: 8", "num_warps: 4")
              for name, text in own.items()}  # fmt: skip
    with record_choices() as chosen, pin_choices(stored) as pins:
        torch.testing.assert_close(compiled(x), expected)
    assert pins.list_missed_choices() == []
    assert chosen.build_config_entries() == stored
    pins.release()
    with record_choices() as chosen:
        compiled(x)
    assert chosen.build_config_entries() == own


@pytest.mark.gpu
def test_an_autotuned_kernel_on_a_gpu() -> None:
    """Each of a kernel's configurations can be pinned, none is timed then, and the result is right."""
    import torch

    spec = importlib.util.spec_from_file_location("autotuned_copy", Path(__file__).with_name("autotuned_copy.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = torch.randn(100_003, device="cuda")
    for config in module.CONFIGS:
        stored = {"autotuned.copy_kernel": format_config(config)}
        with CompileWatch() as watch, record_choices() as chosen, pin_choices(stored) as pins:
            assert torch.equal(module.copied(x), x)
            assert "autotuned" not in watch.description
        assert (chosen.build_config_entries(), pins.list_missed_choices()) == (stored, [])
