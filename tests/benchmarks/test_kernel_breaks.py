"""Breaking one expression of a kernel: what each operator writes, and that nothing else changes."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = '''
@triton.jit
def kernel(x_ptr, y_ptr, x_stride, n, heads, groups, scale, eps, WINDOW: tl.constexpr, BLOCK: tl.constexpr):
    """Ümläute shift bytes against characters."""
    row = tl.program_id(0)
    head = row // groups
    columns = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        mask = (start + columns < n) & (row >= columns)
        x = tl.load(x_ptr + row * x_stride + columns, mask=mask, other=-float("inf"))
        if n < 4:
            x = x
        peak = tl.max(x, 0)
        alpha = tl.exp(peak)
        total = total * alpha + tl.exp((x - peak).to(y_ptr.dtype.element_ty)) * scale
    tl.store(y_ptr + columns, total / tl.sqrt(n + eps), mask=columns < n)


def host(n):
    return n // 2
'''
WRITTEN = {
    "accumulator": ["tl.float16"],
    "bound": ["(start + columns < (n) - 1)", "(columns < (n) - 1)"],
    "edge": ["(row > columns)"],
    "eps": ["(n)"],
    "head": ["((row) % (groups))"],
    "no_max": ["(x)"],
    "other": ["0.0"],
    "scale": ["(tl.exp((x - peak).to(y_ptr.dtype.element_ty)))"],
    "sign": ["((x) + (peak))"],
    "stale": ["total"],
    "stride": ["tl.where((row) != 1, (row * x_stride), 0)"],
    "tail": ["((n) - (BLOCK))"],
}


@pytest.fixture(scope="module")
def kernel_breaks() -> ModuleType:
    """The operators, as a module."""
    spec = importlib.util.spec_from_file_location("kernel_breaks", ROOT / "benchmarks" / "kernel_breaks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel_breaks"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_each_operator_finds_its_expressions(kernel_breaks: ModuleType) -> None:
    """In the named function alone, and not in conditions, which choose between ways of computing the same."""
    found: dict[str, list[str]] = {}
    for one in kernel_breaks.breaks(SOURCE, "kernel"):
        found.setdefault(one.operator, []).append(one.after)
    assert found == WRITTEN
    assert set(found) == set(kernel_breaks.OPERATORS)


def test_a_break_changes_one_expression_and_no_line_moves(kernel_breaks: ModuleType) -> None:
    """Every break compiles, leaves all before and behind it as it was, and differs from every other."""
    found = kernel_breaks.breaks(SOURCE, "kernel")
    for one in found:
        broken = one.applied(SOURCE)
        ast.parse(broken)
        before, behind = SOURCE.encode()[: one.start].decode(), SOURCE.encode()[one.end :].decode()
        assert broken == before + one.after + behind
        assert before + one.before + behind == SOURCE
        assert before.count("\n") == one.line - 1
        assert broken.count("\n") == SOURCE.count("\n")
    assert len({one.applied(SOURCE) for one in found}) == len(found)


def test_another_function_is_left_alone(kernel_breaks: ModuleType) -> None:
    """The code around a kernel has breaks of its own, and a function that is not there has none."""
    assert [one.operator for one in kernel_breaks.breaks(SOURCE, "host")] == ["head"]
    assert kernel_breaks.breaks(SOURCE, "nothing") == []
