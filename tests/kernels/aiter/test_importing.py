from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.aiter import importing
from kernels.aiter.importing import (
    Changes,
    call_failure,
    environment_entries,
    import_aiter,
    import_changes,
    restored_environment,
    toggle_entries,
    without_ck,
)
from pytest_attnperf.errors import UnsupportedError

JAX = """
try:
    raise RuntimeError("0 active drivers ([]). There should only be one.")
except RuntimeError:
    raise ModuleNotFoundError("No module named 'jax'", name="jax")
"""
BUILD = 'raise RuntimeError("[aiter] build [module_aiter_core] under /x failed !!!!!!")'
MODULE = "aiter.ops.mha"

ROWS = {
    "not installed": (
        "raise ModuleNotFoundError(\"No module named 'aiter'\", name='aiter')",
        "aiter not installed",
        "ModuleNotFoundError: No module named 'aiter'",
    ),
    "no ROCm": (
        "raise RuntimeError('ROCm version file not found')",
        "ROCm not found",
        "RuntimeError: ROCm version file not found",
    ),
    "no GPU": (
        "raise RuntimeError('Get GPU arch from rocminfo failed: [Errno 2] rocminfo')",
        "no GPU visible",
        "RuntimeError: Get GPU arch from rocminfo failed: [Errno 2] rocminfo",
    ),
    "no hipcc": (
        "raise AssertionError('Could not find hipcc in PATH or ROCM_HOME(None)')",
        "hipcc missing: core module cannot build",
        "AssertionError: Could not find hipcc in PATH or ROCM_HOME(None)",
    ),
    "no hipcc, v0.1.9": (
        "raise FileNotFoundError(2, 'No such file or directory', 'hipcc')",
        "hipcc missing: core module cannot build",
        "FileNotFoundError: [Errno 2] No such file or directory: 'hipcc'",
    ),
    "unknown arch": (
        "raise KeyError('Unknown GPU architecture: gfx1103')",
        "arch unsupported by this aiter",
        "KeyError: 'Unknown GPU architecture: gfx1103'",
    ),
    "build fails": (
        BUILD,
        "JIT build failed (its log is in the worker's log; attach it to a report)",
        "RuntimeError: [aiter] build [module_aiter_core] under /x failed !!!!!!",
    ),
    "no Triton driver": (JAX, "no GPU for Triton", "ModuleNotFoundError: No module named 'jax'"),
    "Triton too new": (
        "raise ValueError(\"configs {'a'} are not kernel arguments: ACTUAL_HEAD_DIM\")",
        "aiter older than Triton",
        "ValueError: configs {'a'} are not kernel arguments: ACTUAL_HEAD_DIM",
    ),
    "no MHA JSON": (
        "raise FileNotFoundError(2, 'No such file or directory', '/a/configs/gfx90a-MHA-DEFAULT.json')",
        "no Triton MHA config for gfx90a",
        "FileNotFoundError: [Errno 2] No such file or directory: '/a/configs/gfx90a-MHA-DEFAULT.json'",
    ),
    "flydsl absent": (
        "raise ModuleNotFoundError(\"No module named 'flydsl'\", name='flydsl')",
        "flydsl missing",
        "ModuleNotFoundError: No module named 'flydsl'",
    ),
    "another package absent": (
        "import a_package_that_nobody_has",
        "a package that aiter needs is not installed",
        "ModuleNotFoundError: No module named 'a_package_that_nobody_has'",
    ),
    "anything else": (
        "raise OSError('libamdhip64.so.7:\\n  cannot open')",
        "import of aiter.ops.mha failed",
        "OSError: libamdhip64.so.7: cannot open",
    ),
    "an empty text": ("raise AssertionError", "import of aiter.ops.mha failed", "AssertionError"),
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory of imports that failed before, and no variables of aiter."""
    monkeypatch.setattr(importing, "_failed", {})
    monkeypatch.setattr(importing, "_changes", Changes())
    for name in [name for name in os.environ if name.startswith(importing.RECORDED)]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("row", ROWS)
def test_every_failure_has_its_reason(aiter_package: Callable[..., Path], row: str) -> None:
    """What aiter's import raises becomes the stated reason, with type and text of the exception in one line."""
    code, reason, quoted = ROWS[row]
    aiter_package({}, code)
    with pytest.raises(UnsupportedError) as caught:
        import_aiter(MODULE)
    text = str(caught.value)
    assert text in (f"{reason} (import of {MODULE} raised {quoted})", f"{reason} ({quoted})")
    assert text.startswith(reason)


def test_a_missing_jax_for_another_cause_is_not_a_missing_gpu(aiter_package: Callable[..., Path]) -> None:
    """Only with Triton's 'active drivers' behind it does jax stand for a GPU; nobody is told to install jax."""
    aiter_package({}, "raise ModuleNotFoundError(\"No module named 'jax'\", name='jax')")
    with pytest.raises(UnsupportedError, match=r"^a package that aiter needs is not installed"):
        import_aiter(MODULE)


def test_strangers_are_refused_without_importing_them(aiter_package: Callable[..., Path]) -> None:
    """PyPI's asyncio package is not imported to find out that it is none."""
    aiter_package({"azip.py": ""}, "raise AssertionError('imported')", rocms=False)
    with pytest.raises(UnsupportedError, match=r"PyPI's asyncio package"):
        import_aiter(MODULE)


def test_an_interrupt_passes(aiter_package: Callable[..., Path]) -> None:
    """Ctrl-C during a build of minutes ends the run."""
    aiter_package({}, "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        import_aiter(MODULE)


def test_a_failed_import_is_not_tried_again(aiter_package: Callable[..., Path]) -> None:
    """The second try finds half of it loaded and would raise something else; it gives the first reason."""
    aiter_package({}, "import sys\nsys.tries = getattr(sys, 'tries', 0) + 1\nraise RuntimeError(f'try {sys.tries}')")
    texts = []
    for module in (MODULE, MODULE, "aiter.mla"):
        with pytest.raises(UnsupportedError) as caught:
            import_aiter(module)
        texts.append(str(caught.value))
    del sys.tries  # type: ignore[attr-defined]
    assert set(texts) == {"import of aiter.ops.mha failed (RuntimeError: try 1)"}


def test_one_broken_module_does_not_stand_for_the_others(aiter_package: Callable[..., Path]) -> None:
    """Where the package itself loads, the failure is that module's own."""
    aiter_package({"pod.py": "raise ImportError('pod_persistent')"})
    with pytest.raises(UnsupportedError, match=r"pod_persistent"):
        import_aiter("aiter.pod")
    assert import_aiter(MODULE).__name__ == MODULE


def test_modules_and_names(aiter_package: Callable[..., Path]) -> None:
    """Without names the module, with one name its attribute, with several a tuple; a missing one is unsupported."""
    aiter_package({"_version.py": "version = '0.1.9'", "ops/mha.py": "a, b = 1, 2"})
    assert import_aiter(MODULE) is sys.modules[MODULE]
    assert import_aiter(MODULE, "a") == 1
    assert import_aiter(MODULE, "a", "b") == (1, 2)
    with pytest.raises(UnsupportedError, match=r"^aiter 0\.1\.9 has no aiter\.ops\.mha\.mha_v4$"):
        import_aiter(MODULE, "mha_v4")


NEW, OLD = "aiter.ops.triton.attention.mha", "aiter.ops.triton.mha"


def test_the_new_place_comes_first(aiter_package: Callable[..., Path]) -> None:
    """Where both exist the old one, which would be a second copy with toggles of its own, is not loaded."""
    aiter_package({"ops/triton/attention/mha.py": "where = 'new'", "ops/triton/mha.py": "where = 'old'"})
    assert import_aiter(NEW, "where", old=OLD) == "new"
    assert OLD not in sys.modules


@pytest.mark.parametrize("files", [{}, {"ops/triton/attention/pa.py": ""}])
def test_the_old_place_is_taken_where_the_new_is_absent(
    aiter_package: Callable[..., Path], files: dict[str, str]
) -> None:
    """The module, or a package that it would be in, does not exist."""
    aiter_package({**files, "ops/triton/mha.py": "where = 'old'"})
    assert import_aiter(NEW, "where", old=OLD) == "old"


@pytest.mark.parametrize("code", ["import a_package_that_nobody_has", "import aiter.ops.nothing", "1 / 0"])
def test_a_broken_new_place_is_no_reason_for_the_old(aiter_package: Callable[..., Path], code: str) -> None:
    """An error inside the new module is told, whatever it is; the old copy is not run in its stead."""
    aiter_package({"ops/triton/attention/mha.py": code, "ops/triton/mha.py": "where = 'old'"})
    with pytest.raises(UnsupportedError, match=f"import of {NEW}"):
        import_aiter(NEW, "where", old=OLD)
    assert OLD not in sys.modules


def test_neither_place(aiter_package: Callable[..., Path]) -> None:
    """Without both, the reason names the old one, which was tried last."""
    aiter_package()
    with pytest.raises(UnsupportedError, match=f"import of {OLD} failed"):
        import_aiter(NEW, old=OLD)


SIDE_EFFECTS = """
import logging, os
os.environ["TRITON_PRINT_AUTOTUNING"] = "1"
os.environ["TRITON_F32_DEFAULT"] = "ieee"
os.environ["AITER_ASM_DIR"] = "/x/hsa"
os.environ.pop("GONE", None)
logging.getLogger().addHandler(logging.NullHandler())
logging.getLogger().setLevel(5)
"""


@pytest.mark.parametrize("end", ["", "raise RuntimeError"])
def test_side_effects_of_importing_are_undone_and_told(
    aiter_package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Variables and the root logger are as before; only what aiter reads later stays."""
    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32")
    monkeypatch.setenv("GONE", "here")
    monkeypatch.delenv("TRITON_PRINT_AUTOTUNING", raising=False)
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    aiter_package({"ops/mha.py": SIDE_EFFECTS + end})
    if end:
        with pytest.raises(UnsupportedError):
            import_aiter(MODULE)
    else:
        import_aiter(MODULE)
    assert (root.level, list(root.handlers)) == before
    assert "TRITON_PRINT_AUTOTUNING" not in os.environ
    assert (os.environ["TRITON_F32_DEFAULT"], os.environ["GONE"]) == ("tf32", "here")
    assert os.environ.pop("AITER_ASM_DIR") == "/x/hsa"
    restored = {"TRITON_PRINT_AUTOTUNING": "1", "TRITON_F32_DEFAULT": "ieee", "GONE": ""}
    assert import_changes() == Changes(restored=restored, kept={"AITER_ASM_DIR": "/x/hsa"})


def test_a_quiet_block_changes_nothing() -> None:
    """Where nothing was changed there is nothing to tell."""
    with restored_environment() as changes:
        pass
    assert changes == Changes()


@pytest.mark.parametrize(
    ("value", "off"), [(None, False), ("1", False), ("0", True), (" 00 ", True), ("2", False), ("no", False)]
)
def test_without_ck(monkeypatch: pytest.MonkeyPatch, value: str | None, off: bool) -> None:
    """ENABLE_CK=0 is a reason against everything that promises Composable Kernel."""
    if value is not None:
        monkeypatch.setenv("ENABLE_CK", value)
    said = f"ENABLE_CK={(value or '').strip()} makes aiter take Triton in place of Composable Kernel; unset it"
    assert without_ck() == ([said] if off else [])


def test_variables_in_force_are_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What chooses kernels is told; logs and caches are not, paths never, and not what aiter set itself."""
    tuned = tmp_path / "tuned.csv"
    tuned.write_text("M,N,K\n", encoding="utf-8")
    for name, value in {
        "AITER_ENABLE_FMHA_OPUS": "1",
        "ENABLE_CK": "0",
        "FLASH_ATTENTION_TRITON_AMD_AUTOTUNE": "0",
        "AITER_CONFIG_GEMM_BF16": str(tuned),
        "AITER_META_DIR": str(tmp_path),
        "CK_DIR": str(tmp_path / "nothing"),
        "AITER_ASM_DIR": "/set/by/aiter",
        "AITER_LOG_LEVEL": "DEBUG",
        "AITER_JIT_DIR": str(tmp_path),
        "PATH_OF_OTHERS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(importing, "_changes", Changes(kept={"AITER_ASM_DIR": "/set/by/aiter"}))
    entries = environment_entries()
    assert entries == {
        "env.AITER_CONFIG_GEMM_BF16": "set, contents 04dce7d17504",
        "env.AITER_ENABLE_FMHA_OPUS": "1",
        "env.AITER_META_DIR": "set, a folder",
        "env.CK_DIR": "set, not readable",
        "env.ENABLE_CK": "0",
        "env.FLASH_ATTENTION_TRITON_AMD_AUTOTUNE": "0",
    }
    tuned.write_text("M,N,L\n", encoding="utf-8")
    assert environment_entries() != entries
    assert str(tmp_path) not in json.dumps(entries)


@pytest.mark.parametrize("file", ["ops/triton/attention/mha.py", "ops/triton/mha.py"])
def test_toggles_are_read_where_they_are(aiter_package: Callable[..., Path], file: str) -> None:
    """The globals of aiter's Triton attention are told as they are now, in its new place and in the old."""
    assert toggle_entries() == {}
    aiter_package({file: "_MHA_IMPL = 'default'\n_USE_INT64_STRIDES = True"})
    module = import_aiter(NEW, old=OLD)
    assert toggle_entries() == {"toggle._MHA_IMPL": "default", "toggle._USE_INT64_STRIDES": "True"}
    module._MHA_IMPL = "dao_ai"
    assert toggle_entries()["toggle._MHA_IMPL"] == "dao_ai"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(2, "No such file", "/c/gfx1100-MHA-DEFAULT.json"), "no Triton MHA config for gfx1100"),
        (
            FileNotFoundError(2, "No such file", "/c/gfx90a/triton/attention/mha/DEFAULT.json"),
            "no Triton MHA config for gfx90a",
        ),
        (FileNotFoundError(2, "No such file", "/c/mha.json"), "no Triton MHA config for this arch"),
        (ModuleNotFoundError("No module named 'flydsl'", name="flydsl"), "flydsl missing"),
        (ModuleNotFoundError("No module named 'flydsl.x'", name="flydsl.x"), "flydsl missing"),
        (RuntimeError("invalid argument for fmha_fwd"), "no kernel for shape"),
        (RuntimeError("[aiter] build [mha_fwd_bf16] under /x failed !!!!!!"), "JIT build failed"),
    ],
)
def test_known_failures_of_calls_are_unsupported(error: Exception, reason: str) -> None:
    """What says that aiter has nothing for this becomes a reason, and quotes what was raised."""
    told = call_failure(error, "mha_fwd")
    assert isinstance(told, UnsupportedError)
    assert str(told).startswith(reason)
    assert f"(call of mha_fwd raised {type(error).__name__}: " in str(told)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("HIP error: an illegal memory access was encountered"),
        AssertionError(),
        TypeError("mha_fwd() takes 15 positional arguments"),
        FileNotFoundError(2, "No such file", "/x/lib.so"),
        ModuleNotFoundError("No module named 'jax'", name="jax"),
    ],
)
def test_other_failures_of_calls_stay_errors(error: Exception) -> None:
    """On a machine where aiter can be imported, what is not known is a failure of the case."""
    assert call_failure(error, "mha_fwd") is error


def test_a_chain_that_bites_its_tail_ends() -> None:
    """Exceptions whose context is each other do not hang the search."""
    first: Any = ModuleNotFoundError("No module named 'jax'", name="jax")
    second: Any = RuntimeError("other")
    first.__context__, second.__cause__ = second, first
    assert call_failure(first, "x") is first


def test_a_call_without_a_driver_is_no_missing_package() -> None:
    """Triton asks for its target when a kernel is launched, too."""
    error = ModuleNotFoundError("No module named 'jax'", name="jax")
    error.__context__ = RuntimeError("0 active drivers ([]). There should only be one.")
    told = call_failure(error, "flash_attn_func")
    assert isinstance(told, UnsupportedError)
    assert str(told).startswith("no GPU for Triton (call of flash_attn_func raised ModuleNotFoundError")
