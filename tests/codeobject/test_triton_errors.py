from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_attnperf.codeobject.triton_errors import TEXT_LIMIT, StandardError, explained
from pytest_attnperf.errors import CodeObjectError, ToolMissingError

pytest.importorskip("triton", reason="needs triton (pip install triton); no GPU")

PRINTED = """module attributes {"ttg.num-warps" = 4 : i32} {
kernels/copy.py:12:0: error: Failures have been detected while processing an MLIR pass pipeline
kernels/copy.py:31:16: error: operand #1 must be 32-bit
  %4 = arith.addi %3, %2 : i64
"""


def why(error: Exception, said: str = "") -> str:
    """What is said of a failure."""
    return str(explained(error, said, "triton.copy, for gfx942", [], "triton 3.9.0"))


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
        assert said.text() == "kernel.py:3:1: error: no\n"
    assert log.read_text() == "before\nkernel.py:3:1: error: no\n"


def test_of_a_long_text_the_beginning_is_read(tmp_path: Path) -> None:
    """Megabytes of IR are not read; the error stands before them."""
    with (tmp_path / "log").open("wb") as stream, standard_error(stream.fileno()), StandardError() as said:
        os.write(2, b"first" + b"x" * 1_000_000)
        assert said.text().startswith("firstxxx")
        assert len(said.text()) < 300_000


def test_of_a_pipe_nothing_is_known() -> None:
    """A terminal or a pipe cannot be read back: nothing is said, nothing is lost, nothing fails."""
    reader, writer = os.pipe()
    with standard_error(writer), StandardError() as said:
        os.write(2, b"kernel.py:3:1: error: no\n")
        assert said.text() == ""
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
    error = explained(RuntimeError("PassManager::run failed"), said, "who", [], "triton 3.5.0")
    assert isinstance(error, ToolMissingError)
    assert str(error).startswith("who: copy.py:3: unsupported target: 'gfx1250'\ntriton 3.5.0 has no code generator")
    assert not isinstance(explained(RuntimeError("no"), "", "who", [], "triton"), ToolMissingError)


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
    error = explained(outer, PRINTED, "who", [SimpleNamespace(fn=called, src=text)], "triton 3.9.0")
    line = inspect.getsourcelines(called)[1] + 2
    assert isinstance(error, CodeObjectError)
    assert str(error) == (
        f'who: {__file__}:{line}: dtype mismatch\n    raise AssertionError("never run")\n(compiled by triton 3.9.0)'
    )
    elsewhere = str(explained(outer, "", "who", [], "triton 3.9.0"))
    assert elsewhere.startswith("who: line 3 of a function: dtype mismatch\n    raise AssertionError")


def test_a_cause_that_is_no_compilation_error_is_named() -> None:
    """Python's own exceptions inside a kernel reach the text with their kind."""
    from triton.compiler.errors import CompilationError

    error = CompilationError("def kernel():\n    1 / 0", ast.parse("1 / 0").body[0], None)
    error.__cause__ = ZeroDivisionError("division by zero")
    assert "ZeroDivisionError: division by zero" in why(error)
