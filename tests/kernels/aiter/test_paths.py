from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.aiter.paths import LOW_LEVEL, which_path

MHA = """
def mha_fwd(q): return f"ck {q}"
def fmha_v3_fwd(q): return f"asm {q}"
def mha_fwd_native_splitkv(q): return f"split {q}"
def _flash_attn_forward(q):
    if q > 1000: return mha_fwd_native_splitkv(q)
    return fmha_v3_fwd(q) if q > 128 else mha_fwd(q)
def flash_attn_func(q): return _flash_attn_forward(q)
def broken(q):
    mha_fwd(q)
    raise ValueError("broken")
"""


@pytest.fixture
def mha(aiter_package: Callable[..., Path]) -> Any:
    """A package whose dispatcher calls its low-level functions as globals, and re-exports them by value."""
    aiter_package({"ops/mha.py": MHA}, "from .ops.mha import *")
    (Path(sys.path[0]) / "aiter" / "__init__.py").write_text("from .ops.mha import *\n", encoding="utf-8")
    return importlib.import_module("aiter.ops.mha")


@pytest.mark.parametrize(("q", "path"), [(64, "ck"), (256, "asm"), (2048, "native_splitkv")])
def test_the_dispatchers_choice_is_told(mha: Any, q: int, path: str) -> None:
    """The low-level function that a public one comes to names the path; its result is passed on."""
    result, seen = which_path(lambda: mha.flash_attn_func(q))
    assert (seen, result.split()[1]) == (path, str(q))


def test_several_in_order_each_once(mha: Any) -> None:
    """A call that takes two paths says both, in the order in which they ran first."""
    assert which_path(lambda: [mha.flash_attn_func(q) for q in (64, 256, 64)])[1] == "ck+asm"
    assert which_path(lambda: [mha.flash_attn_func(q) for q in (256, 64)])[1] == "asm+ck"


def test_nothing_seen(mha: Any) -> None:
    """Work that calls none of them has no path."""
    assert which_path(lambda: 5) == (5, "")


def test_the_top_level_name_is_the_same_function(mha: Any) -> None:
    """`aiter.mha_fwd` was imported by value; a call of it is seen, too, and it is put back."""
    aiter = sys.modules["aiter"]
    before = vars(aiter)["mha_fwd"]
    assert before is mha.mha_fwd
    assert which_path(lambda: vars(aiter)["mha_fwd"](1))[1] == "ck"
    assert vars(aiter)["mha_fwd"] is before is mha.mha_fwd


def test_everything_is_restored_after_an_exception(mha: Any) -> None:
    """The exception passes, and no module keeps a wrapper."""
    before = {name: dict(vars(module)) for name, module in sys.modules.items() if name.startswith("aiter")}
    with pytest.raises(ValueError, match="broken"):
        which_path(lambda: mha.broken(1))
    assert {name: dict(vars(sys.modules[name])) for name in before} == before


def test_what_another_thread_calls_is_seen(mha: Any) -> None:
    """autograd runs a backward in threads of its own; nesting is told apart by thread."""

    def work() -> None:
        thread = threading.Thread(target=mha.flash_attn_func, args=(256,))
        thread.start()
        thread.join()

    assert which_path(work)[1] == "asm"


def test_a_function_captured_before_is_not_seen(mha: Any) -> None:
    """The limit that the module states: who took the function out of its module beforehand goes past the watch."""
    captured = mha.mha_fwd
    assert which_path(lambda: captured(1))[1] == ""


def test_modules_loaded_meanwhile_are_watched_and_restored(aiter_package: Callable[..., Path]) -> None:
    """With ENABLE_CK=0 the Triton module is imported in the call itself; another one keeps no wrapper by value."""
    aiter_package(
        {
            "ops/mha.py": "def flash_attn_func(q):\n"
            "    from .triton.attention.mha import flash_attn_func as other\n"
            "    from . import copies\n"
            "    return other(q)\n",
            "ops/triton/attention/mha.py": "def flash_attn_func(q): return q",
            "ops/copies.py": "from .triton.attention.mha import flash_attn_func as copied",
        }
    )
    mha = importlib.import_module("aiter.ops.mha")
    assert which_path(lambda: mha.flash_attn_func(3)) == (3, "triton")
    triton, copies = sys.modules["aiter.ops.triton.attention.mha"], sys.modules["aiter.ops.copies"]
    assert vars(copies)["copied"] is vars(triton)["flash_attn_func"]
    assert not hasattr(vars(copies)["copied"], "__wrapped__")


def test_the_innermost_call_counts(aiter_package: Callable[..., Path]) -> None:
    """aiter's Triton function with the dao_ai implementation is that one, not both."""
    aiter_package(
        {
            "ops/triton/_triton_kernels/flash_attn_triton_amd/interface_v2.py": "def fwd(q): return q",
            "ops/triton/attention/mha.py": "from aiter.ops.triton._triton_kernels.flash_attn_triton_amd import "
            "interface_v2 as flash_attn_2\n_MHA_IMPL = 'default'\n"
            "def flash_attn_func(q): return flash_attn_2.fwd(q) if _MHA_IMPL == 'dao_ai' else q\n",
        }
    )
    mha: Any = importlib.import_module("aiter.ops.triton.attention.mha")
    assert which_path(lambda: mha.flash_attn_func(3))[1] == "triton"
    mha._MHA_IMPL = "dao_ai"
    assert which_path(lambda: mha.flash_attn_func(3))[1] == "triton_dao"


def test_dispatch_through_a_dictionary_is_seen(aiter_package: Callable[..., Path]) -> None:
    """tuned_gemm looks its functions up in a module's dictionary, which is restored as well."""
    aiter_package(
        {
            "tuned_gemm.py": "def torch_gemm(a): return a\n"
            "def opus_gemm(a): return torch_gemm(a)\n"
            "solMap = {'torch': torch_gemm, 'opus': opus_gemm}\n"
            "def gemm_a16w16(a, lib): return solMap[lib](a)\n"
        }
    )
    gemm: Any = importlib.import_module("aiter.tuned_gemm")
    before = dict(gemm.solMap)
    assert which_path(lambda: gemm.gemm_a16w16(1, "torch")) == (1, "torch")
    assert which_path(lambda: gemm.gemm_a16w16(1, "opus"))[1] == "torch"  # falls back, and says so
    assert gemm.solMap == before


def test_further_functions_can_be_named(aiter_package: Callable[..., Path]) -> None:
    """An adapter of something that is not in the table adds it; what is no function is left alone."""
    aiter_package({"ops/rope.py": "def rope_fwd_impl(x): return x\nrope_bwd_impl = None\n"})
    rope: Any = importlib.import_module("aiter.ops.rope")
    also = {("aiter.ops.rope", "rope_fwd_impl"): "hip", ("aiter.ops.rope", "rope_bwd_impl"): "hip"}
    assert which_path(lambda: rope.rope_fwd_impl(1), also) == (1, "hip")
    assert rope.rope_bwd_impl is None


def test_a_registered_dispatcher_is_reached(aiter_package: Callable[..., Path]) -> None:
    """A dispatcher that is itself a torch operator looks up the patched globals when the operator runs it."""
    torch = pytest.importorskip("torch")
    aiter_package(
        {
            "ops/rmsnorm.py": "import torch\n"
            "def rmsnorm(x): return x + 1\n"
            "def _rms_norm(x): return rmsnorm(x)\n"
            "library = torch.library.Library('aiter', 'FRAGMENT')\n"
            "library.define('attnperf_rms_norm(Tensor x) -> Tensor')\n"
            "library.impl('attnperf_rms_norm', _rms_norm, dispatch_key='CPU')\n"
            "def rms_norm(*args, **kwargs): return torch.ops.aiter.attnperf_rms_norm(*args, **kwargs)\n"
        }
    )
    module: Any = importlib.import_module("aiter.ops.rmsnorm")
    result, path = which_path(lambda: module.rms_norm(torch.zeros(1)))
    module.library._destroy()
    assert (result.item(), path) == (1.0, "hip")


def test_every_path_is_one_that_reports_know() -> None:
    """The table has no misspelt path."""
    known = "ck asm native_splitkv opus triton triton_dao hip flydsl hipblaslt torch hipkittens"
    assert set(LOW_LEVEL.values()) == set(known.split())
