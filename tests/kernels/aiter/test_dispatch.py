from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.aiter.package import missing_aiter
from pytest_attnperf.errors import AttnperfError, UnsupportedError
from tests.kernels.aiter.dispatch_rows import ROWS, Row, device, package, part, workload

pytest.importorskip("torch")

Right = Callable[[Any, Any, Any], None]
ROOT = Path(__file__).resolve().parents[3]
SOURCE = os.environ.get("AITER_SOURCE", "")


def prepared(name: str, text: str) -> tuple[Any, Any, Any]:
    """A workload, its inputs, and the backend's case of them."""
    problem = workload(text)
    inputs = problem.make_inputs(1, "cpu", planted=True)
    return problem, inputs, part(name, text).prepare(problem, inputs)


def offered(name: str, row: Row) -> bool:
    """Whether a backend takes a row; that no aiter is installed here does not count."""
    reasons = part(name, row.workload).unsupported_reasons(workload(row.workload), device(row.arch))
    return not set(reasons) - set(missing_aiter())


def calls() -> list[tuple[str, dict[str, Any]]]:
    """What the compiled functions of the package were called with."""
    return importlib.import_module("aiter.ops.mha").CALLS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_the_dispatcher_took_is_recorded(
    row: Row, aiter_package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, assert_right: Right
) -> None:
    """`aiter.auto` gives right results on every branch, and says which one it was."""
    for name, value in row.environment.items():
        monkeypatch.setenv(name, value)
    aiter_package(package(row.arch))
    assert part("aiter.auto", row.workload).unsupported_reasons(workload(row.workload), device(row.arch)) == []
    problem, inputs, case = prepared("aiter.auto", row.workload)
    assert case.config["path"] == row.path
    assert {f"env.{name}": value for name, value in row.environment.items()}.items() <= case.config.items()
    assert_right(problem, inputs, case.outputs(case.run()))


@pytest.mark.parametrize("row", [row for row in ROWS if row.workload.startswith("prefill")], ids=lambda row: row.name)
def test_an_older_aiter_dispatches_otherwise(row: Row, aiter_package: Callable[..., Path]) -> None:
    """v0.1.9 knows neither split-K nor OPUS nor fp8 in assembly, and asks for no architecture."""
    aiter_package(package(row.arch, "v0.1.9"))
    assert prepared("aiter.auto", row.workload)[2].config["path"] == (row.otherwise or row.path)


FORCED = [(name, row) for name in ("ck", "aiter.asm") for row in ROWS if offered(name, row)]


@pytest.mark.parametrize(("name", "row"), FORCED, ids=[f"{name}-{row.name}" for name, row in FORCED])
def test_forced_backends_run_what_they_are_named_after(
    name: str, row: Row, aiter_package: Callable[..., Path], assert_right: Right
) -> None:
    """Wherever it does not refuse the shape, a forced backend is right and its path is its own, whatever the
    dispatcher would have taken."""
    aiter_package(package(row.arch))
    problem, inputs, case = prepared(name, row.workload)
    assert case.config["path"] == {"ck": "ck", "aiter.asm": "asm"}[name]
    assert [function for function, _ in calls()] == [case.config["function"]]
    assert_right(problem, inputs, case.outputs(case.run()))


def test_forced_backends_refuse_what_they_cannot() -> None:
    """Assembly does what the dispatcher gives it; CK does all of it and what else its C++ takes."""
    both = [(name, row) for name in ("ck", "aiter.asm") for row in ROWS]
    refused = [(name, row, row.workload) for name, row in both if (name, row) not in FORCED]
    by_ck = {(row.arch, text) for name, row, text in refused if name == "ck"}
    assert by_ck == {
        ("gfx942", "prefill-b1-s9-h1-d20-f16-lse"),
        ("gfx1250", "prefill-b1-s130-h1-d128-bf16-causal"),
    }
    by_assembly = [row for name, row, _ in refused if name == "aiter.asm"]
    assert {row.arch for row in by_assembly if row.path in ("asm", "opus")} == {"gfx1250"}


@pytest.mark.parametrize(
    ("name", "text", "old", "new"),
    [
        ("ck", "prefill-b1-s130-h1-d128-bf16", "mha_fwd(*args)", "fmha_v3_fwd(*args[:8], *args[9:11], 1)"),
        ("aiter.asm", "prefill-b1-s130-h1-d128-bf16", "fmha_v3_fwd(*args)", "mha_fwd(*args[:8], 0, *args[8:10])"),
        ("ck", "varlen-q3_20-h2-d128-bf16", "mha_varlen_fwd(*args)", "fmha_v3_varlen_fwd(*args[:15], *args[16:18], 1)"),
        (
            "ck",
            "backward-b1-s33-h2-d128-bf16",
            "mha_bwd(*args)",
            "fmha_v3_bwd(*args[:12], True, 1, *args[12:15], None, args[18])",
        ),
    ],
)
def test_a_library_that_takes_another_path_is_refused(
    name: str, text: str, old: str, new: str, aiter_package: Callable[..., Path]
) -> None:
    """A liar: the function is there and its results are right, but it hands the work to another implementation."""
    function = old.partition("(")[0]
    liar = f"\n_own_signature = inspect.signature({function})\ndef {function}(*args):\n    return {new}\n"
    files = package()
    files["ops/mha.py"] += liar + f"{function}.__signature__ = _own_signature\n"
    aiter_package(files)
    with pytest.raises(AttnperfError, match=r"what ran is: (asm|ck); nothing was timed"):
        prepared(name, text)


def test_a_top_left_mask_is_found_wrong(aiter_package: Callable[..., Path], assert_right: Right) -> None:
    """A liar: with as many keys as queries its causal mask is right, and with more of them our reference rejects it."""
    files = package()
    files["ops/mha.py"] += (
        "\nfrom tests.kernels.aiter import mha_results\n_honest = mha_results.forward\n"
        "def result(name, values):\n"
        "    keys = values['q'].shape[1]\n"
        "    return _honest({**values, 'k': values['k'][:, :keys], 'v': values['v'][:, :keys]})\n"
    )
    aiter_package(files)
    square = prepared("ck", "prefill-b1-s33-h2-d64-f16-causal")
    assert_right(*square[:2], square[2].outputs(square[2].run()))
    wide = prepared("ck", "prefill-b1-s33-kv70-h2-d64-f16-causal")
    with pytest.raises(AssertionError, match="is beyond"):
        assert_right(*wide[:2], wide[2].outputs(wide[2].run()))


def test_with_ck_switched_off_triton_is_recorded(
    aiter_package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, assert_right: Right
) -> None:
    """ENABLE_CK=0 makes the public function take Triton: `aiter.auto` says so, and the forced ones refuse."""
    monkeypatch.setenv("ENABLE_CK", "0")
    of_triton = (
        "def flash_attn_func(q, k, v, softmax_scale, causal, return_lse):\n"
        "    from aiter.ops import mha\n"
        "    return mha.result('mha_fwd', dict(q=q, k=k, v=v, softmax_scale=softmax_scale, is_causal=causal,\n"
        "        window_size_left=-1, window_size_right=-1, return_softmax_lse=return_lse))[0]\n"
    )
    aiter_package({**package(), "ops/triton/attention/mha.py": of_triton})
    text = "prefill-b1-s33-h2-d64-f16-causal"
    problem, inputs, case = prepared("aiter.auto", text)
    assert (case.config["path"], case.config["env.ENABLE_CK"]) == ("triton", "0")
    assert_right(problem, inputs, case.outputs(case.run()))
    for name in ("ck", "aiter.asm"):
        reasons = part(name, text).unsupported_reasons(problem, device("gfx942"))
        assert "ENABLE_CK=0 makes aiter take Triton in place of Composable Kernel; unset it" in reasons


def test_a_missing_flydsl_is_unsupported(aiter_package: Callable[..., Path]) -> None:
    """The packed public function imports it when called, whatever the GPU; that is no failure of the case."""
    aiter_package(package(changed={"FLYDSL = True": "FLYDSL = False"}))
    with pytest.raises(UnsupportedError, match="flydsl missing"):
        prepared("aiter.auto", "varlen-q3_20-h2-d128-bf16")


def test_a_shape_without_a_kernel_is_unsupported(aiter_package: Callable[..., Path]) -> None:
    """C++ says that it has no kernel; the case is then unsupported, and not failed."""
    files = package()
    files["ops/mha.py"] += "\ndef result(name, values):\n    raise RuntimeError('invalid argument for fmha_fwd')\n"
    aiter_package(files)
    with pytest.raises(UnsupportedError, match="no kernel for shape"):
        prepared("ck", "prefill-b1-s33-h2-d64-f16-causal")


def test_a_version_that_cannot_be_told_its_scales_is_unsupported(aiter_package: Callable[..., Path]) -> None:
    """fp8 assembly of v0.1.9 takes no scales: nothing is run without them."""
    aiter_package(package(era="v0.1.9"))
    with pytest.raises(UnsupportedError, match="fmha_v3_fwd takes no k_descale, q_descale, v_descale"):
        prepared("aiter.asm", "prefill-b1-s130-h2-hk1-d128-f8e4m3fnuz")


@pytest.mark.skipif(
    not (SOURCE and Path(SOURCE, "csrc").is_dir()),
    reason="give a checkout of ROCm/aiter, v0.1.8 or later: AITER_SOURCE=<folder that holds aiter/ and csrc/>",
)
def test_the_real_dispatchers_take_what_the_rows_say(tmp_path: Path) -> None:
    """aiter's own ops/mha.py, imported without a GPU and with its compiled functions replaced, decides as the stub."""
    command = [sys.executable, str(Path(__file__).with_name("run_real_dispatch.py")), SOURCE, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == []
    assert found["rows"] == len(ROWS)
    assert found["ran"] > 2 * len(ROWS)
