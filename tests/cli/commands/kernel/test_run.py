from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.native.prefill import BACKENDS as NATIVE
from pytest_attnperf.backends import Backend, Prepared, Registry
from pytest_attnperf.cli.commands.kernel import run as run_command
from pytest_attnperf.cli.commands.kernel.run import choose_workload, launch_lines, run_case
from pytest_attnperf.cli.program import build_parser, main
from pytest_attnperf.errors import UnknownNameError, UnsupportedError, UsageError, WorkloadError
from pytest_attnperf.kernel_builds import KernelRegistry
from pytest_attnperf.measure import interpreting
from pytest_attnperf.plugin.config import RUN_CONFIG, RunConfig
from pytest_attnperf.plugin.own_pytest import Registered
from pytest_attnperf.records import DeviceInfo, Launch
from pytest_attnperf.workloads.families import FAMILIES

ROOT = Path(__file__).parents[4]
SMALL = "prefill-b1-s32-h2-d16-f32"


@dataclass(frozen=True)
class Mine(Backend):
    """Several families, or a wrong result."""

    families: tuple[str, ...] = field(default=("prefill",), kw_only=True)
    cpu_flops_max: float = 1e9
    reasons: tuple[str, ...] = ()

    def unsupported_reasons(self, workload: Any, device: DeviceInfo) -> list[str]:
        """As declared."""
        return list(self.reasons)

    def prepare(self, workload: Any, inputs: Any) -> Prepared:
        """Gives q."""
        tensors = tuple(tensor.clone() for tensor in inputs)
        return Prepared(lambda q, k, v: q * 1, tensors, lambda new: new, lambda out: {"out": out})


class Unbuilt(Mine):
    """Only its preparation shows that it cannot run."""

    def prepare(self, workload: Any, inputs: Any) -> Prepared:
        """No compiler."""
        raise UnsupportedError("no hipcc")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registered]:
    """The native backends and two of this file, on a machine that is asked for its CPU."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # the command sets it for the rest of its process
    registry = Registry()
    registry.add(*NATIVE, Mine("wrong.q"), Mine("cannot.run", reasons=("needs more", "needs less")))
    registry.add(Unbuilt("cannot.build"))
    config: Any = SimpleNamespace(stash={RUN_CONFIG: RunConfig(device="cpu")})
    yield Registered(config, registry, FAMILIES, KernelRegistry())
    interpreting.stop_interpreting()


def options(backend: str, workload: str = SMALL, **given: Any) -> argparse.Namespace:
    """As parsed."""
    return argparse.Namespace(
        **{"backend": backend, "workload": workload, "calls": 2, "warmup": 1, "no_check": False, "arch": "", **given}
    )


def test_a_right_backend_is_run(registered: Registered, capsys: pytest.CaptureFixture[str]) -> None:
    """What ran is printed with its configuration, that it is right, and how often it was called; exit status 0."""
    assert run_case(registered, options("native.eager")) == 0
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("runs on the CPU (--attnperf-device=cpu): this says nothing")
    assert second.startswith(f"native.eager on {SMALL}, on ")
    assert "  compute_dtype: f32" in rest
    assert rest[-2:] == ["one call is right", "called 1 times, and 2 times in the range 'attnperf'"]


def test_a_wrong_result_ends_it(registered: Registered, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong result is shown, nothing more is called, and the exit status is 1; unless no check is wanted."""
    assert run_case(registered, options("wrong.q")) == 1
    out = capsys.readouterr().out
    assert "one call is wrong:\n  one call: 'out' is off" in out
    assert "times in the range" not in out
    assert run_case(registered, options("wrong.q", no_check=True)) == 0
    assert "right" not in capsys.readouterr().out


def test_an_unsupported_workload_says_why(registered: Registered, capsys: pytest.CaptureFixture[str]) -> None:
    """Every reason of the backend is printed, and the exit status is 1."""
    assert run_case(registered, options("cannot.run")) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("on cpu-x86_64: needs more; needs less")


def test_what_only_building_shows_says_why(registered: Registered, capsys: pytest.CaptureFixture[str]) -> None:
    """A library that cannot be loaded or built is unsupported like any other, with exit status 1."""
    assert run_case(registered, options("cannot.build")) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"cannot.build does not run {SMALL} on cpu-x86_64: no hipcc"


def test_an_unknown_backend_lists_what_exists(registered: Registered) -> None:
    """A name that nobody registered is an error with those that are."""
    with pytest.raises(UnknownNameError, match=r"unknown backend 'hip\.no'; known: cannot\.build, cannot\.run, native"):
        run_case(registered, options("hip.no"))


def test_calls_are_counted(registered: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls for the check, as many as asked for to warm up, and as many inside the range."""
    calls: list[int] = []
    backend = Mine("counted")
    monkeypatch.setattr(Prepared, "run", lambda prepared: calls.append(1) or prepared.call(*prepared.tensors))
    registered.backends.add(backend)
    assert run_case(registered, options("counted", calls=5, warmup=2, no_check=True)) == 0
    assert len(calls) == 7


EVERY = Mine("all", families=("prefill", "backward"))


@pytest.mark.parametrize(
    ("text", "backend", "expected"),
    [
        ("s=32,d=16,h=2,f32", Mine("one"), SMALL),
        (SMALL, EVERY, SMALL),
        ("m=8,n=8,k=16,f16", Mine("two", families=("gemm", "prefill")), "gemm-m8-n8-k16-f16"),
    ],
)
def test_a_line_or_an_id_names_the_workload(text: str, backend: Backend, expected: str) -> None:
    """A line of the backend's family, a full id, and a line that only one of its families can read."""
    assert choose_workload(text, backend, FAMILIES).id == expected


@pytest.mark.parametrize(
    ("text", "backend", "error", "message"),
    [
        ("s=32,d=16,h=2", EVERY, UsageError, "matches several workloads of all: backward-.*, prefill-.*; give one id"),
        ("s=x", Mine("one"), UsageError, "prefill workload 's=x'"),
        ("gemm-m8-n8-k16-f16", Mine("one"), UsageError, "one implements prefill; gemm-.* is a workload of gemm"),
        ("nothing", Mine("one"), UnknownNameError, "unknown family .* 'nothing'; known: prefill"),
        ("prefill-b1", Mine("one"), WorkloadError, "prefill-b1"),
    ],
)
def test_a_workload_that_cannot_be_told(text: str, backend: Backend, error: type[Exception], message: str) -> None:
    """What means several workloads, none, or one of another family is an error that says so."""
    with pytest.raises(error, match=message):
        choose_workload(text, backend, FAMILIES)


def test_launches_are_shown_with_their_sizes() -> None:
    """A kernel with grid, block and shared memory, a copy with its bytes."""
    launches = [Launch("flash", grid=(2, 3, 1), block=(64, 1, 1), shared_bytes=2048), Launch("", "copy", grid=(4096,))]
    assert launch_lines(launches) == [
        "flash: grid (2, 3, 1), block (64, 1, 1), 2,048 bytes of shared memory",
        "copy: 4,096 bytes",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["native.eager", "--workload", "s=1", "--calls", "0"], "--calls 0 must be at least 1"),
        (["native.eager", "--workload", "s=1", "--warmup", "-1"], "--warmup -1 must be at least 0"),
        (["native.eager"], "lacks --seq-len, --head-dim, --num-heads; give --workload LINE|ID, or --seq-len"),
        (["native.eager", "--seq-len", "8", "--heads", "2"], "lacks --head-dim; give --workload"),
        (["native.eager", "--workload", "s=1", "--seq-len", "8"], "--workload s=1 and --seq-len, --head-dim"),
        (
            ["native.eager", "--workload", "s=1", "--tests", "no/such"],
            "no/such does not exist; run this in the project",
        ),
    ],
)
def test_a_command_that_is_off(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers out of range and a suite that is not there exit 2 with one line."""
    assert main(["kernel", "run", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_typed_in_a_project() -> None:
    """Typed in this repository, the command finds a registered backend, whatever options pytest has been given."""
    command = [sys.executable, "-m", "pytest_attnperf.cli", "kernel", "run", "native.eager", "--workload", SMALL]
    environment = os.environ | {"PYTEST_ADDOPTS": "--no-such-option", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--device", "cpu"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("runs on the CPU")
    assert done.stdout.endswith("called 3 times, and 20 times in the range 'attnperf'\n")


@pytest.mark.parametrize("heads", ["--heads", "--num-heads"])
def test_sizes_are_a_way_to_say_the_workload(
    heads: str, registered: Registered, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Length, head dimension and heads as three options run the workload whose line they are."""
    monkeypatch.setattr("pytest_attnperf.plugin.own_pytest.visit_project", lambda visit, *_: visit(registered))
    sizes = ["--seq-len", "24", "--head-dim", "16", heads, "2"]
    assert main(["kernel", "run", "native.eager", *sizes, "--calls", "1", "--no-check"]) == 0
    assert "native.eager on prefill-b1-s24-h2-d16-f16, on " in capsys.readouterr().out


@pytest.mark.gpu
def test_on_a_gpu_launches_are_shown() -> None:
    """On a GPU every kernel of a call is shown with its sizes, where graphs can be read."""
    command = [sys.executable, "-m", "pytest_attnperf.cli", "kernel", "run", "native.eager", "--workload", SMALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "one call launches:\n  " in done.stdout or "is not known: the nodes of a graph" in done.stdout


def test_the_command_passes_the_device_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--device` reaches the plugin as its own option."""
    from pytest_attnperf.plugin import own_pytest

    seen: list[Any] = []
    monkeypatch.setattr(own_pytest, "visit_project", lambda work, *rest: seen.append(rest) or 0)
    typed = ["kernel", "run", "b", "--workload", "w", "--device", "cpu", "--tests", "tests"]
    parsed = build_parser(["kernel run"]).parse_args(typed)
    assert run_command.run(parsed) == 0
    assert seen == [("tests", "--attnperf-device=cpu")]
