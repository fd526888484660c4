"""A missing compiler is one line that says what to install."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from pytest_attnperf.workers import no_compiler


class InvalidCxxCompiler(RuntimeError):
    """As Inductor's is called."""


def raised_by_triton() -> Exception:
    """A RuntimeError of the module that compiles with a C compiler."""
    module = ModuleType(no_compiler.TRITON_BUILD)
    exec("def build():\n    raise RuntimeError('Failed')", module.__dict__)
    with pytest.raises(RuntimeError) as caught:
        module.build()
    return caught.value


def test_what_inductor_raises() -> None:
    """Whether it led to the error, or is held by it."""
    for error in (InvalidCxxCompiler(), RuntimeError("outer")):
        error.__cause__ = InvalidCxxCompiler()
        assert no_compiler.why(error, {}).startswith("no C++ compiler was found, and torch.compile needs one on a CPU")
    held = RuntimeError("outer")
    held.inner_exception = InvalidCxxCompiler()  # type: ignore[attr-defined]
    held.__context__ = held  # a circle ends
    assert "install gcc or clang" in no_compiler.why(held, {})


def test_what_triton_raises(tmp_path: Path) -> None:
    """Only where there is none: a compiler that fails says why itself."""
    error = raised_by_triton()
    assert no_compiler.why(error, {"PATH": str(tmp_path)}).startswith("no C compiler was found, and Triton builds its")
    (tmp_path / "gcc").write_text("")
    (tmp_path / "gcc").chmod(0o755)
    assert no_compiler.why(error, {"PATH": str(tmp_path)}) == ""


def test_other_errors_are_left_alone() -> None:
    """On a machine without a compiler, too."""
    assert no_compiler.why(RuntimeError("no kernel"), {}) == ""
