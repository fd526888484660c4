"""Real compile processes: on objects that exist already, and with a scripted compiler in place of Triton."""

from __future__ import annotations

import importlib.util
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from pytest_attnperf.kernel_builds import KernelBuild, ObjectFile, TritonSource
from pytest_attnperf.tools.tuner.compile_process import decode_answer
from pytest_attnperf.tools.tuner.compiling import compile_all

ROOT = Path(__file__).parents[3]
OBJECTS = ROOT / "tests" / "data" / "code_objects"

SCRIPTED = """
import os, sys, time
from pytest_attnperf.codeobject.building import build_object
from pytest_attnperf.tools.tuner import compile_process

def scripted(declared, cache):
    if declared.config == "crash":
        print("assertion failed in pass tritongpu-pipeline", file=sys.stderr, flush=True)
        os.abort()
    if declared.config == "hang":
        time.sleep(60)
    if declared.config == "raises":
        raise RuntimeError("PassManager::run failed")
    if declared.config == "chatter":
        print("ttgir dump" * 1000)
    return build_object(declared, cache)

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
compile_process.serve(sys.stdin, answers, build=scripted)
"""
COMMAND = (sys.executable, "-c", SCRIPTED)


def existing(name: str = "saxpy.gfx942.co", config: str = "a", threads: int = 256) -> KernelBuild:
    """A build that is an object file."""
    return KernelBuild("hip.saxpy", config, "gfx942", ObjectFile(OBJECTS / name, threads=threads))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Where objects are kept."""
    return tmp_path / "cache" / "compiled"


def test_every_candidate_is_compiled_and_read(cache: Path) -> None:
    """Two candidates in two processes give what their objects hold, in the order of their builds."""
    builds = {"one": [existing(), existing("mfma.gfx942.co")], "two": [existing("spills.gfx942.co")], "none": []}
    told: list[tuple[int, int]] = []
    found = compile_all(builds, ROOT, cache, jobs=2, limit_s=30, told=lambda done, count: told.append((done, count)))
    assert list(found) == ["one", "two", "none"]
    assert [code.agprs for code in found["one"].codes] == [0, 16]
    assert [code.vgpr_spills for code in found["two"].codes] == [4]
    assert (found["none"].codes, found["none"].failure) == ((), "")
    assert told[-1] == (3, 3)
    assert all(one.seconds > 0 for one in found.values() if one.codes)


def test_a_crash_a_hang_and_an_exception_cost_one_candidate_each(cache: Path) -> None:
    """What ends or holds up its process has a failure that says how; those behind it are compiled by another."""
    names = ["crash", "raises", "chatter", "hang", "last"]
    builds = {name: [existing(config=name)] for name in names}
    started = time.monotonic()
    found = compile_all(builds, ROOT, cache, jobs=1, limit_s=1.0, command=COMMAND)
    assert found["crash"].failure.startswith("the compiler's process died (killed by SIGABRT: ")
    assert "tritongpu-pipeline" in found["crash"].failure
    assert found["raises"].failure == "RuntimeError: PassManager::run failed"
    assert found["hang"].failure == "compiling takes longer than 1 s"
    assert [bool(found[name].codes) for name in names] == [False, False, True, False, True]
    assert time.monotonic() - started < 20


def test_processes_that_do_not_start_say_nothing_of_candidates(cache: Path) -> None:
    """A broken interpreter is a reason not to look at code objects, and no candidate's failure."""
    command = (sys.executable, "-c", "raise SystemExit('no such harness')")
    found = compile_all({"a": [existing()], "b": [existing()]}, ROOT, cache, jobs=1, limit_s=5, command=command)
    assert [one.failure for one in found.values()] == ["", ""]
    assert found["b"].unsupported == ("compile processes do not start (exit status 1: no such harness)",)


def test_what_is_left_when_time_is_up_is_not_in_the_result(cache: Path) -> None:
    """`stop` ends the work between candidates."""
    done: list[int] = []
    found = compile_all(
        {name: [existing(config=name)] for name in "abc"},
        ROOT,
        cache,
        jobs=1,
        limit_s=30,
        stop=lambda: bool(done),
        told=lambda number, count: done.append(number),
    )
    assert list(found) == ["a"]


def test_an_object_that_cannot_be_read_is_no_failure(cache: Path) -> None:
    """What our reader does not understand may run well."""
    found = compile_all({"a": [existing("mfma.hip")]}, ROOT, cache, jobs=1, limit_s=30)
    assert not found["a"].failure
    assert found["a"].unread
    assert found["a"].codes == ()


def test_an_interrupt_ends_the_processes(cache: Path) -> None:
    """What `told` raises reaches the caller, and no process is left compiling."""

    def interrupted(done: int, count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_all({"a": [existing()]}, ROOT, cache, jobs=1, limit_s=30, told=interrupted)


@pytest.mark.parametrize("line", ["{}", '{"built": [{"x": 1}], "failure": "", "unsupported": []}', "5", "nonsense"])
def test_an_answer_that_is_none_is_refused(line: str) -> None:
    """A process that writes something else is told from one that answers."""
    with pytest.raises(ValueError):
        decode_answer(line)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (pip install triton); no GPU")
def test_triton_compiles_for_a_gpu_that_is_not_there(tmp_path: Path, cache: Path) -> None:
    """A real kernel is compiled for gfx942; options that Triton does not have are a failure that names them."""
    (tmp_path / "one_kernel.py").write_text(
        "import triton\nimport triton.language as tl\n\n@triton.jit\ndef add(x_ptr, N: tl.constexpr):\n"
        "    at = x_ptr + tl.arange(0, N)\n    tl.store(at, tl.load(at) + 1.0)\n"
    )
    source = TritonSource("one_kernel", "add", {"x_ptr": "*fp32"}, MappingProxyType({"N": 256}), ("x_ptr",))
    build = KernelBuild("triton.add", "a", "gfx942", source)
    other = replace(build, source=replace(source, options={"num_wraps": 4}))
    found = compile_all({"good": [build], "bad": [other]}, tmp_path, cache, jobs=1, limit_s=60)
    (code,) = found["good"].codes
    assert (code.arch, code.workgroup, code.vgpr_spills) == ("gfx942", 256, 0)
    assert "triton has no option num_wraps" in found["bad"].failure
