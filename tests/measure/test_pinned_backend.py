from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.backends import Backend, Prepared
from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure.pinned_backend import PinnedBackend, pin
from pytest_attnperf.records import DeviceInfo, Tolerance
from pytest_attnperf.workloads.prefill import Prefill

pytest_plugins = ["pytest_attnperf.testing.fake.autotuners"]

X = SimpleNamespace(dtype="torch.float16")
SMALL, LARGE = "BLOCK: 16, num_warps: 4, num_stages: 2", "BLOCK: 32, num_warps: 8, num_stages: 2"
WORKLOAD = Prefill.parse("prefill-b1-s8-h2-d64-f16")
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")


@dataclass(frozen=True)
class Tuned:
    """A backend around an autotuned kernel, which it only binds in `prepare`."""

    tuner: Any
    name: str = "triton.tuned"
    families: frozenset[str] = frozenset({"prefill"})
    cpu_flops_max: float = 1e6
    times_on_cpu: bool = False
    tolerance: Tolerance = field(default_factory=Tolerance)
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

    def pinned(self, config: Mapping[str, str]) -> Choosing:
        """Take what is stored."""
        if "chosen" not in config:
            raise UsageError("nothing chosen is stored")
        return Choosing(self.tuner, chosen=config["chosen"])


def test_everything_else_is_the_backends_own() -> None:
    """Name, families, limits, tolerance and reasons are those of the backend, and it is a Backend."""
    backend = Tuned(None, tolerance=Tolerance(3.0, source="a test"))
    pinned = pin(backend, {})
    assert isinstance(pinned, Backend)
    for name in ("name", "families", "cpu_flops_max", "times_on_cpu", "tolerance"):
        assert getattr(pinned, name) == getattr(backend, name)
    assert pinned.unsupported_reasons(WORKLOAD, CPU) == ["not on cpu"]


def test_a_kernel_that_is_only_bound_is_pinned(triton_tuner: Callable[..., Any]) -> None:
    """The kernel runs once under the stored choice, which stays for the timed calls, and the result says so."""
    tuner = triton_tuner(faster=16)
    prepared = pin(Tuned(tuner), {"autotuned.tuned": LARGE}).prepare(WORKLOAD, ())
    prepared.run()
    assert [run["BLOCK"] for run in tuner.fn.runs] == [32, 32]
    assert prepared.config == {"chosen": "own", "pinned": "as stored"}


def test_the_next_case_chooses_for_itself(triton_tuner: Callable[..., Any]) -> None:
    """When the prepared case is dropped, the kernel is tuned again."""
    tuner = triton_tuner(faster=16)
    prepared = pin(Tuned(tuner), {"autotuned.tuned": LARGE}).prepare(WORKLOAD, ())
    del prepared
    gc.collect()
    tuner.run(X, 512)
    assert tuner.fn.runs[-1]["BLOCK"] == 16


def test_what_is_not_replayed_is_said(triton_tuner: Callable[..., Any]) -> None:
    """A stored choice whose kernel did not run is named in the result."""
    stored = {"autotuned.gone": SMALL, "autotuned.tuned": LARGE}
    prepared = pin(Tuned(triton_tuner()), stored).prepare(WORKLOAD, ())
    assert prepared.config["pinned"] == "not all that is stored: gone: nothing of this name ran or was decided"


def test_nothing_to_replay_is_said(triton_tuner: Callable[..., Any]) -> None:
    """A stored configuration without any choice runs nothing extra, and the result says that it held none."""
    tuner = triton_tuner()
    prepared = pin(Tuned(tuner), {"aiter": "0.1.9"}).prepare(WORKLOAD, ())
    assert tuner.fn.runs == []
    assert prepared.config["pinned"] == "nothing: the stored configuration holds no choice"


def test_padding_that_was_answered_is_in_the_result(padding: Any) -> None:
    """What nobody was asked any more, so that no recording can see it, is an entry all the same."""

    class Padding(Tuned):
        def prepare(self, workload: Any, inputs: Any) -> Prepared:
            padding.ask((2, 9, 64), (2, 64, 9))
            return super().prepare(workload, inputs)

    pytest.importorskip("torch")
    prepared = pin(Padding(None), {"autotuned.pad_mm": "padded"}).prepare(WORKLOAD, ())
    assert prepared.config == {"chosen": "own", "autotuned.pad_mm": "padded", "pinned": "as stored"}


def test_a_backend_replays_its_own_choice(triton_tuner: Callable[..., Any]) -> None:
    """A Pinnable backend takes the stored configuration itself; one that lacks what it needs raises."""
    pinned = pin(Choosing(triton_tuner()), {"chosen": "stored"})
    assert isinstance(pinned, PinnedBackend)
    assert pinned.prepare(WORKLOAD, ()).config == {"chosen": "stored", "pinned": "as stored"}
    with pytest.raises(UsageError, match="nothing chosen is stored"):
        pin(Choosing(None), {})
