from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.aiter.warm import FirstRun, warm_up
from pytest_attnperf.errors import AttnperfError, UnsupportedError

BUILDING = """
import logging, os, time
logger = logging.getLogger("aiter")
def mha_fwd(q):
    logger.info("start build [mha_fwd_bf16] under /x")
    time.sleep(0.01)
    logger.info("finish build [mha_fwd_bf16], cost 71.3s")
    os.environ["TRITON_PRINT_AUTOTUNING"] = "1"
    return q
def fmha_v3_fwd(q): raise RuntimeError("invalid argument for fmha_v3_fwd")
"""


@pytest.fixture
def mha(aiter_package: Callable[..., Path]) -> Any:
    """Low-level functions, one of which builds on its first call, and one that has no kernel."""
    aiter_package({"ops/mha.py": BUILDING})
    return importlib.import_module("aiter.ops.mha")


def test_result_path_and_builds_of_the_first_run(mha: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was built is told with its seconds, whatever the level of aiter's logger, and nothing stays changed."""
    monkeypatch.setattr(logging.getLogger("aiter"), "level", logging.ERROR)
    monkeypatch.delenv("TRITON_PRINT_AUTOTUNING", raising=False)
    warm = warm_up(lambda: mha.mha_fwd(7), "mha_fwd")
    assert (warm.result, warm.path, list(warm.built)) == (7, "ck", ["mha_fwd_bf16"])
    assert warm.built["mha_fwd_bf16"] >= 0.01
    assert warm.entries == {"path": "ck", "built": "mha_fwd_bf16 0 s"}
    assert "TRITON_PRINT_AUTOTUNING" not in os.environ


def test_entries_leave_out_what_is_not_known() -> None:
    """A call that took no known path, and built nothing, records nothing."""
    assert FirstRun(None, "").entries == {}
    assert FirstRun(None, "asm").entries == {"path": "asm"}


def test_a_missing_kernel_is_unsupported(mha: Any) -> None:
    """What says that there is no kernel becomes a reason, with the exception behind it."""
    with pytest.raises(UnsupportedError, match=r"^no kernel for shape .call of the prefill raised") as caught:
        warm_up(lambda: mha.fmha_v3_fwd(1), "the prefill")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_other_exceptions_pass(mha: Any) -> None:
    """Anything else fails the case as it is."""
    with pytest.raises(ZeroDivisionError):
        warm_up(lambda: 1 // 0, "the prefill")


def test_the_promised_path(mha: Any) -> None:
    """A forced backend goes on with its own path, and refuses another, several, or none."""
    warm = warm_up(lambda: mha.mha_fwd(1), "ck")
    assert warm.require_path("ck", "backend ck") is warm
    with pytest.raises(AttnperfError, match=r"^backend aiter.asm is to run aiter's asm, but what ran is: ck; nothing"):
        warm.require_path("asm", "backend aiter.asm")
    for path, told in (("ck+asm", "ck.asm"), ("", "none that is known")):
        with pytest.raises(AttnperfError, match=f"but what ran is: {told}; nothing was timed"):
            FirstRun(None, path).require_path("ck", "backend ck")


def test_further_functions_tell_the_path(aiter_package: Callable[..., Path]) -> None:
    """An adapter's own additions to the table are used."""
    aiter_package({"ops/rope.py": "def rope_fwd_impl(x): return x"})
    rope: Any = importlib.import_module("aiter.ops.rope")
    also = {("aiter.ops.rope", "rope_fwd_impl"): "hip"}
    assert warm_up(lambda: rope.rope_fwd_impl(1), "rope", also).path == "hip"


def test_the_device_is_waited_for(mha: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that fails on the device is seen in this run, and not in the first sample."""
    waits: list[str] = []

    def synchronize() -> None:
        waits.append("waited")
        raise RuntimeError("HIP error: an illegal memory access was encountered")

    cuda = SimpleNamespace(is_available=lambda: True, synchronize=synchronize)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        warm_up(lambda: mha.mha_fwd(7), "mha_fwd")
    assert waits == ["waited"]
