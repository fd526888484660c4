from __future__ import annotations

import ast
import base64
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.codeobject.compile_triton import TEXT_LIMIT, StandardError, make_compile_error
from pytest_attnperf.errors import CodeObjectError, ToolMissingError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs triton (pip install triton); no GPU"
)

PRINTED = """module attributes {"ttg.num-warps" = 4 : i32} {
kernels/copy.py:12:0: error: Failures have been detected while processing an MLIR pass pipeline
kernels/copy.py:31:16: error: operand #1 must be 32-bit
  %4 = arith.addi %3, %2 : i64
"""


def run_builds(folder: Path, **environment: str) -> dict[str, Any]:
    """What `run_triton_builds.py` prints, in a process of its own whose standard error is a file, as a worker's is."""
    kept = {name: value for name, value in os.environ.items() if name not in ("TRITON_INTERPRET", "TRITON_CACHE_DIR")}
    path = os.pathsep.join([str(ROOT), str(HERE)])
    hidden = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "-1")
    environment = {**kept, **hidden, "PYTHONPATH": path, "HOME": str(folder), **environment}
    command = [sys.executable, str(HERE / "run_triton_builds.py"), str(folder / "cache")]
    with (folder / "stderr.txt").open("w") as log:
        done = subprocess.run(
            command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, check=False, timeout=120
        )
    assert done.returncode == 0, (folder / "stderr.txt").read_text()[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the builds of this module put what they write."""
    return tmp_path_factory.mktemp("triton")


@pytest.fixture(scope="module")
def ran(folder: Path) -> dict[str, Any]:
    """Everything that was printed."""
    return run_builds(folder)


@pytest.fixture
def builds(ran: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every build by name."""
    found: dict[str, dict[str, Any]] = ran["builds"]
    return found


@pytest.mark.parametrize(
    ("arch", "machine", "threads"), [("gfx942", 224, 128), ("gfx1100", 224, 64), ("sm_90", 190, 64)]
)
def test_a_kernel_is_compiled(builds: dict[str, Any], arch: str, machine: int, threads: int) -> None:
    """An ELF for AMD or NVIDIA GPUs, with 64 lanes per wave on gfx9 and 32 elsewhere, and LDS that the launch adds."""
    built = builds[arch]
    if built.get("kind") == "ToolMissingError":
        pytest.skip(built["error"])
    elf = zlib.decompress(base64.b64decode(built["object_base64"]))
    assert (elf[:4], int.from_bytes(elf[18:20], "little")) == (b"\x7fELF", machine)
    assert (built["kernel"], built["threads"], built["cached"]) == ("scale", threads, False)
    assert built["lds_dynamic_bytes"] > 0
    assert built["compiler"].startswith("triton 3.")
    assert built["options"]["num_warps"] == "2"
    assert set(built["sources"]) == {f"tests/codeobject/tiny_triton{part}.py" for part in ("", "_scaling")}
    assert ("s_endpgm" in built["assembly"]) == arch.startswith("gfx")


def test_the_second_build_comes_from_the_cache(builds: dict[str, Any]) -> None:
    """Nothing is compiled twice, and what comes back is the same."""
    first, again = builds["gfx942"], builds["again"]
    differing = {name for name in first if first[name] != again[name]}
    assert again["cached"]
    assert differing <= {"cached", "seconds"}


def test_fusion_is_on_whatever_the_default_is(builds: dict[str, Any]) -> None:
    """FP fusion is stated; Triton's default is not used, so the variable that sets it changes nothing."""
    assert builds["gfx942"]["options"]["enable_fp_fusion"] == "True"
    assert builds["fusion by default"]["cached"]
    assert builds["without fusion"]["options"]["enable_fp_fusion"] == "False"
    assert "v_fma" in builds["gfx942"]["assembly"] or "v_pk_fma" in builds["gfx942"]["assembly"]
    assert builds["without fusion"]["object_base64"] != builds["gfx942"]["object_base64"]


def test_a_variable_that_changes_code_is_recorded(builds: dict[str, Any]) -> None:
    """One that Triton says invalidates its cache makes another object, and is named with it."""
    without = builds["without lines"]
    assert without["options"]["TRITON_DISABLE_LINE_INFO"] == "true"
    assert not without["cached"]
    assert ".loc" in builds["gfx942"]["assembly"]
    assert ".loc" not in without["assembly"]


def test_pointers_are_marked_as_a_launch_would(builds: dict[str, Any]) -> None:
    """Small tensors are marked where the backend uses buffer instructions, which the code shows; alignment counts."""
    marked = builds["gfx942"]["options"].get("pointer_range")
    assert ("buffer_store" in builds["gfx942"]["assembly"]) == (marked == "32")
    without = builds["without buffer operations"]
    assert without["options"]["AMDGCN_USE_BUFFER_OPS"] == "false"
    assert "pointer_range" not in without["options"]
    assert "buffer_store" not in without["assembly"]
    assert "dwordx2" in builds["gfx942"]["assembly"] or "dwordx4" in builds["gfx942"]["assembly"]
    assert builds["unaligned"]["assembly"] != builds["gfx942"]["assembly"]


def test_a_default_constant_can_be_replaced(builds: dict[str, Any]) -> None:
    """A constexpr that is not declared has the function's default, and another value gives other code."""
    assert "error" not in builds["shifted"]
    assert builds["shifted"]["object_base64"] != builds["gfx942"]["object_base64"]


def test_an_autotuner_is_looked_through(builds: dict[str, Any]) -> None:
    """The function behind a decorator is compiled, with the constants that were declared."""
    assert builds["tuned"]["kernel"] == "tuned"


@pytest.mark.parametrize(
    ("build", "line", "said"),
    [
        ("mismatched", "return x + y", "incompatible dimensions at index 0: 256 and 512"),
        ("unknown name", "tl.store(y_ptr + tl.arange(0, BLOCK), missing_value)", "missing_value is not defined"),
    ],
)
def test_the_line_that_does_not_compile_is_shown(builds: dict[str, Any], build: str, line: str, said: str) -> None:
    """An error begins with the build, then names file and line, also of a called function, and shows the line."""
    lines = (HERE / "tiny_triton.py").read_text().splitlines()
    (number,) = [index for index, text in enumerate(lines, start=1) if text.strip().startswith(line)]
    first, second, last = builds[build]["error"].splitlines()
    assert first.startswith("tiny, configuration 'b256', for gfx942: ")
    assert f"tests/codeobject/tiny_triton.py:{number}: " in first
    assert said in first
    assert second.strip().startswith(line)
    assert last.startswith("(compiled by triton 3.")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ("unknown option", "triton has no option num_wraps for it; it has: "),
        ("unknown option", ", num_stages, num_warps, "),
        ("impossible option", "triton refuses the options num_warps=3: num_warps must be a power of 2"),
        ("missing argument", "scale: neither in signature nor in constants: BLOCK. It takes: y_ptr, x_ptr, "),
        ("no function", "tiny_triton.scael is not there, not a @triton.jit function; the module has: "),
        ("no function", ", scale, "),
        ("plain function", "tiny_triton.plain is a function, not a @triton.jit function"),
        (
            "GPU at import",
            "cannot be imported (RuntimeError: it asks the GPU's driver for get_current_target when it is",
        ),
        ("no module", "tiny_tritom.scale: the module cannot be imported (ModuleNotFoundError: No module named"),
    ],
)
def test_a_declaration_that_does_not_fit_is_explained(builds: dict[str, Any], build: str, said: str) -> None:
    """What was declared, what exists, and whose declaration it is."""
    assert builds[build]["kind"] == "CodeObjectError"
    assert builds[build]["error"].startswith("tiny, configuration 'b256', for gfx942: ")
    assert said in builds[build]["error"]


@pytest.mark.parametrize(
    ("build", "said"),
    [("unsupported target", "unsupported target: 'gfx803'"), ("unknown processor", "not know gfx9999")],
)
def test_an_architecture_that_triton_lacks_is_a_missing_tool(
    builds: dict[str, Any], folder: Path, build: str, said: str
) -> None:
    """The item is skipped, with one line of what Triton printed; all of it stays in the log."""
    assert builds[build]["kind"] == "ToolMissingError"
    assert said in builds[build]["error"]
    assert "install a newer Triton" in builds[build]["error"]
    assert len(builds[build]["error"]) < 400
    assert "mlir_reproducer" in (folder / "stderr.txt").read_text()


def test_reasons_are_known_before_building(ran: dict[str, Any]) -> None:
    """What can be built has no reason against it; an unknown processor and what is no architecture have one."""
    reasons = ran["reasons"]
    assert reasons["gfx942"] == []
    assert "does not know gfx9999" in reasons["gfx9999"][0]
    for arch in ("riscv64", "gfx942:xnack+"):
        (reason,) = reasons[arch]
        assert reason.startswith(
            f"triton compiles for AMD ('gfx942') and NVIDIA ('sm_90') architectures, not {arch!r};"
        )


def test_the_users_own_cache_is_left_alone(ran: dict[str, Any], folder: Path) -> None:
    """Compiling writes to the cache it was given and nowhere else."""
    assert ran
    assert {path.name for path in folder.iterdir()} == {"cache", "stderr.txt"}


def test_an_interpreting_process_compiles_nothing(tmp_path: Path) -> None:
    """Where Triton interprets, the function is no kernel that could be compiled: the error says why, and what to do."""
    builds = run_builds(tmp_path, TRITON_INTERPRET="1")["builds"]
    for build in ("gfx942", "tuned"):
        assert "TRITON_INTERPRET was 1 when it was imported. Compile in a process of its own" in builds[build]["error"]


def why(error: Exception, said: str = "") -> str:
    """What is said of a failure."""
    return str(make_compile_error(error, said, "triton.copy, for gfx942", [], "triton 3.9.0"))


@contextmanager
def standard_error(descriptor: int) -> Iterator[None]:
    """Make file descriptor 2 another one meanwhile."""
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_what_was_printed_is_read_from_the_log(tmp_path: Path) -> None:
    """Only what was written meanwhile is read, and it stays in the log."""
    log = tmp_path / "worker.log"
    log.write_text("before\n")
    with log.open("ab") as stream, standard_error(stream.fileno()), StandardError() as said:
        os.write(2, b"kernel.py:3:1: error: no\n")
        assert said.read_text() == "kernel.py:3:1: error: no\n"
    assert log.read_text() == "before\nkernel.py:3:1: error: no\n"


def test_of_a_long_text_the_beginning_is_read(tmp_path: Path) -> None:
    """Megabytes of IR are not read; the error stands before them."""
    with (tmp_path / "log").open("wb") as stream, standard_error(stream.fileno()), StandardError() as said:
        os.write(2, b"first" + b"x" * 1_000_000)
        assert said.read_text().startswith("firstxxx")
        assert len(said.read_text()) < 300_000


def test_of_a_pipe_nothing_is_known() -> None:
    """A terminal or a pipe cannot be read back: nothing is said, nothing is lost, nothing fails."""
    reader, writer = os.pipe()
    with standard_error(writer), StandardError() as said:
        os.write(2, b"kernel.py:3:1: error: no\n")
        assert said.read_text() == ""
    assert os.read(reader, 100) == b"kernel.py:3:1: error: no\n"
    os.close(writer)
    os.close(reader)


def test_the_first_diagnostic_that_says_something_is_shown() -> None:
    """A pass that failed raises nothing but that it did: the line printed before is what to look at."""
    assert why(RuntimeError("PassManager::run failed"), PRINTED) == (
        "triton.copy, for gfx942: kernels/copy.py:31: operand #1 must be 32-bit\n(compiled by triton 3.9.0)"
    )


def test_llvm_is_heard() -> None:
    """LLVM prints errors without a place."""
    said = why(RuntimeError("failed to translate"), "note\nLLVM ERROR: Cannot select: intrinsic %llvm.amdgcn.wmma\n")
    assert said.startswith("triton.copy, for gfx942: Cannot select: intrinsic %llvm.amdgcn.wmma\n")


def test_without_a_diagnostic_the_exception_is_shown() -> None:
    """Where nothing was printed, the exception's kind and text, cut where they are long."""
    assert why(IndexError("list index out of range")).startswith("triton.copy, for gfx942: IndexError: list index out")
    long = why(ValueError("x" * 5000))
    assert "... (5,012 characters in all)" in long
    assert len(long) < TEXT_LIMIT + 120


def test_an_unsupported_target_is_a_missing_tool() -> None:
    """A kernel that this Triton cannot compile for the target is no fault of the kernel."""
    said = "copy.py:3:1: error: unsupported target: 'gfx1250'\n"
    error = make_compile_error(RuntimeError("PassManager::run failed"), said, "who", [], "triton 3.5.0")
    assert isinstance(error, ToolMissingError)
    assert str(error).startswith("who: copy.py:3: unsupported target: 'gfx1250'\ntriton 3.5.0 has no code generator")
    assert not isinstance(make_compile_error(RuntimeError("no"), "", "who", [], "triton"), ToolMissingError)


def called() -> None:
    """A function whose source is known."""
    raise AssertionError("never run")


def test_the_innermost_error_is_shown() -> None:
    """Triton wraps an error once per call: the innermost one knows the line, in the file of its function."""
    from triton.compiler.errors import CompilationError

    text = inspect.getsource(called)
    inner = CompilationError(text, ast.parse(text).body[0].body[1], "dtype mismatch")  # type: ignore[attr-defined]
    outer = CompilationError("def kernel():\n    called()", ast.parse("called()").body[0], None)
    outer.__cause__ = inner
    error = make_compile_error(outer, PRINTED, "who", [SimpleNamespace(fn=called, src=text)], "triton 3.9.0")
    line = inspect.getsourcelines(called)[1] + 2
    assert isinstance(error, CodeObjectError)
    assert str(error) == (
        f'who: {__file__}:{line}: dtype mismatch\n    raise AssertionError("never run")\n(compiled by triton 3.9.0)'
    )
    elsewhere = str(make_compile_error(outer, "", "who", [], "triton 3.9.0"))
    assert elsewhere.startswith("who: line 3 of a function: dtype mismatch\n    raise AssertionError")


def test_a_cause_that_is_no_compilation_error_is_named() -> None:
    """Python's own exceptions inside a kernel reach the text with their kind."""
    from triton.compiler.errors import CompilationError

    error = CompilationError("def kernel():\n    1 / 0", ast.parse("1 / 0").body[0], None)
    error.__cause__ = ZeroDivisionError("division by zero")
    assert "ZeroDivisionError: division by zero" in why(error)
