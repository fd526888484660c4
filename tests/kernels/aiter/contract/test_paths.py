from __future__ import annotations

import re
from pathlib import Path

from kernels.aiter.paths import LOW_LEVEL
from tests.kernels.aiter.contract.source import Source, called_by, compiled

MHA = "aiter.ops.mha"
NO_ATTENTION: frozenset[str] = frozenset()
"""Functions that attention's dispatchers call and that compute nothing."""


def unknown_paths(source: Source, module: str) -> list[str]:
    """Compiled functions of a module that its own code calls, and that no path is known for.

    One that is called only by functions in the table is told by these.
    """
    table = {name for listed, name in LOW_LEVEL if listed == module}
    callers = called_by(source, module)
    return sorted(
        name for name in compiled(source, module) - table - NO_ATTENTION if callers.get(name, set()) - table - {name}
    )


def test_every_way_out_of_the_dispatchers_has_a_path(source: Source) -> None:
    """A kernel that a new release dispatches to must get a name before a backend's promise can be kept."""
    assert unknown_paths(source, MHA) == []


def test_the_dispatchers_low_level_functions_exist(source: Source) -> None:
    """The four functions that every version has are under the names that the table has."""
    names = source.functions(MHA)
    assert {"mha_fwd", "fmha_v3_fwd", "mha_varlen_fwd", "fmha_v3_varlen_fwd"} <= set(names)
    assert compiled(source, MHA) >= {"mha_fwd", "fmha_v3_fwd", "mha_bwd", "fmha_v3_bwd"}


def test_the_schema_of_compiled_functions_can_be_read(source: Source) -> None:
    """What `parameters_of` relies on: the wrapper has `loadName` from around it, and calls torch.ops.aiter."""
    path = source.path("aiter.jit.utils.torch_guard")
    if path is None:  # before it, compiled functions keep their own signature
        core = source.path("aiter.jit.core")
        assert core is not None
        assert "functools.wraps(func)" in core.read_text(encoding="utf-8")
        return
    text = path.read_text(encoding="utf-8")
    named = re.search(r"^        (loadName|op_name) = \w+\.__name__", text, re.MULTILINE)
    assert named
    assert re.search(rf"getattr\(torch\.ops\.aiter, (f\"{{)?{named.group(1)}", text)


def test_builds_are_logged_in_the_words_that_are_looked_for(source: Source) -> None:
    """The log lines and the function by which a build within a sample is noticed."""
    path = source.path("aiter.jit.core")
    assert path is not None
    text = path.read_text(encoding="utf-8")
    assert 'f"start build [{md_name}]' in text
    assert "finish build [{md_name}], cost" in text
    assert "build_module" in source.functions("aiter.jit.core")


TREE = """
@compile_ops("module", fc_name="x")
def mha_fwd(q): ...
@compile_ops("module")
def _fmha_fwd_with_sink_asm(q): ...
def fmha_fwd_with_sink_asm(q): return _fmha_fwd_with_sink_asm(q)
@compile_ops("module")
def brand_new_fwd(q): ...
@compile_ops("module")
def nobody_calls(q): ...
class Function:
    def forward(ctx, q): return brand_new_fwd(q) if q else mha_fwd(q)
def dispatch(q): return fmha_fwd_with_sink_asm(q)
"""


def test_a_new_path_is_found(tmp_path: Path) -> None:
    """A compiled function that a dispatcher calls and nobody has named is told; those behind a known one are not."""
    (tmp_path / "aiter" / "ops").mkdir(parents=True)
    (tmp_path / "aiter" / "ops" / "mha.py").write_text(TREE, encoding="utf-8")
    assert unknown_paths(Source(tmp_path), MHA) == ["brand_new_fwd"]
