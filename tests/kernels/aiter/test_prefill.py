from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels.aiter.prefill import AiterFlash
from pytest_attnperf.backends import Declares, Outputs, Tensors
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.prefill import Prefill

BACKEND = AiterFlash("ck")
ROCM = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
WORKLOAD = "prefill-b1-s33-kv40-h4-hk2-d20-f16-causal"
RECORDING = """
calls = []
def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, return_lse=False):
    from pytest_attnperf.workloads.prefill import Prefill
    b, s, h, d = q.shape
    calls.append(dict(dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal, return_lse=return_lse))
    workload = Prefill(batch=b, seq_q=s, seq_kv=k.shape[1], heads=h, kv_heads=k.shape[2], head_dim=d,
                       causal=causal, lse=return_lse)
    outputs = workload.plain((q, k, v))
    return (outputs["out"], outputs["lse"]) if return_lse else outputs["out"]
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Put a package named aiter on the path: its __init__ text and further empty files."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "aiter", raising=False)

    def installed(text: str, *files: str) -> Path:
        package = tmp_path / "aiter"
        for name in files:
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).touch()
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text(text, encoding="utf-8")
        return package

    yield installed
    sys.modules.pop("aiter", None)


def rocm_aiter(install: Callable[..., Path], text: str = RECORDING) -> None:
    """A package with the files by which ROCm's aiter is known."""
    install(text, "ops/mha.py", "jit/optCompilerConfig.json")


def reasons(workload: str = WORKLOAD, device: DeviceInfo = ROCM) -> list[str]:
    """What the backend says against a workload on a device."""
    return BACKEND.unsupported_reasons(Prefill.parse(workload), device)


def test_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any aiter the reason says which one is meant."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "aiter", raising=False)
    assert reasons() == [
        "aiter is not installed (it is ROCm/aiter on GitHub; the package `aiter` on PyPI is unrelated)"
    ]


def test_the_asyncio_package_is_recognised_by_its_files(install: Callable[..., Path]) -> None:
    """PyPI's aiter is named as what it is, and not imported to find out."""
    package = install("raise AssertionError('imported')", "azip.py")
    assert reasons() == [
        f"`aiter` at {package} is PyPI's asyncio package, not ROCm/aiter; uninstall it and install ROCm/aiter"
    ]


def test_an_unknown_package_of_that_name(install: Callable[..., Path]) -> None:
    """A package that is neither is refused with what it lacks."""
    package = install("raise AssertionError('imported')")
    assert reasons() == [f"`aiter` at {package} is an unknown package of that name: ROCm/aiter has ops/mha.py and jit/"]


def test_rocms_aiter_is_accepted_without_importing_it(install: Callable[..., Path]) -> None:
    """Its files are enough; importing may build for minutes."""
    rocm_aiter(install, "raise AssertionError('imported')")
    assert reasons() == []


@pytest.mark.parametrize(
    ("workload", "device", "reason"),
    [
        (WORKLOAD, CUDA, "aiter runs on ROCm devices, this one is cuda (sm_90)"),
        ("prefill-b1-s8-h2-d64-f32", ROCM, "aiter's flash_attn_func takes bf16, f16, not f32"),
        ("prefill-b1-s8-h2-d64-f8e4m3fnuz", ROCM, "aiter's flash_attn_func takes bf16, f16, not f8e4m3fnuz"),
        (
            "prefill-b1-s8-h2-d64-w4-f16-causal",
            ROCM,
            "aiter's flash_attn_func takes no sliding window, this workload has one of 4 keys",
        ),
        (
            "prefill-b1-s8-kv5-h2-d64-f16-causal",
            ROCM,
            "aiter's flash_attn_func is not known to give 0 for rows that see no key, and the first 3 rows of this "
            "workload see none",
        ),
        (
            "prefill-b1-s8-h2-d64-f16-alibi",
            ROCM,
            "aiter's flash_attn_func takes no ALiBi slopes, this workload has them",
        ),
        ("prefill-b1-s8-h2-d64-f16-bias", ROCM, "aiter's flash_attn_func takes no bias matrix, this workload has one"),
        (
            "prefill-b1-s8-h2-d192-dv128-f16",
            ROCM,
            "aiter's flash_attn_func takes one head dimension for q, k and v, not 192 and 128",
        ),
        ("prefill-b1-s8-h2-d320-f16", ROCM, "aiter's flash_attn_func takes head_dim up to 256, not 320"),
    ],
)
def test_limits_are_named_with_the_value(
    install: Callable[..., Path], workload: str, device: DeviceInfo, reason: str
) -> None:
    """Device kind, dtype, head dimensions, window, rows without keys, ALiBi and bias are each refused by one reason."""
    rocm_aiter(install)
    assert reasons(workload, device) == [reason]


@pytest.mark.parametrize("lse", [False, True])
def test_calls_the_dense_forward_with_what_the_workload_says(
    install: Callable[..., Path], lse: bool, assert_right: Callable[[Prefill, Tensors, Outputs], None]
) -> None:
    """Scale, mask and log-sum-exp reach flash_attn_func, in the canonical layout; its results come back by name."""
    pytest.importorskip("torch")
    rocm_aiter(install)
    workload = Prefill.parse(WORKLOAD + "-lse" * lse)
    inputs = workload.make_inputs(1, "cpu", planted=False)
    prepared = BACKEND.prepare(workload, inputs)
    assert_right(workload, inputs, prepared.outputs(prepared.run()))
    calls: list[dict[str, Any]] = sys.modules["aiter"].calls
    assert len(calls) == 2  # once in prepare, which builds; once timed
    assert calls[0] == {"dropout_p": 0.0, "softmax_scale": 20**-0.5, "causal": True, "return_lse": lse}
    assert prepared.config["padded_in_call"] == "True"
    assert prepared.declares == Declares(never=("scaled_dot_product",))


def test_a_failing_import_is_quoted(install: Callable[..., Path]) -> None:
    """What aiter's import raises is named by type and text, with what to do."""
    pytest.importorskip("torch")
    rocm_aiter(install, "raise AssertionError('Could not find hipcc in PATH or ROCM_HOME')")
    workload = Prefill.parse(WORKLOAD)
    inputs = workload.make_inputs(1, "cpu", planted=False)
    text = "raised AssertionError: Could not find hipcc in PATH or ROCM_HOME; try that import by itself"
    with pytest.raises(AttnperfError, match=text):
        BACKEND.prepare(workload, inputs)
