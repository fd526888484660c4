"""Breaks one expression of a kernel's source, the way a kernel is broken by mistake; nothing is known of the kernel.

Each operator looks for expressions of one form in one function and says what to write instead. Only that expression
changes: the rest of the file, its lines included, stays as it was, so that a break is named by its line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Change = tuple[ast.expr, str]
"""An expression, and what is written instead."""

EXPONENTIALS = {"exp", "exp2"}


@dataclass(frozen=True)
class Break:
    """One change of one expression; `start` and `end` are places in the source's bytes."""

    operator: str
    function: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def applied(self, source: str) -> str:
        """The source with this change."""
        raw = source.encode()
        return (raw[: self.start] + self.after.encode() + raw[self.end :]).decode()


def breaks(source: str, function: str) -> list[Break]:
    """All breaks of one function, by operator and then by line; none where the source has no such function."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    kernels = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    found = []
    for kernel in kernels:
        for operator, changes in OPERATORS.items():
            for node, text in changes(kernel):
                start = starts[node.lineno - 1] + node.col_offset
                end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
                before = source.encode()[start:end].decode()
                found.append(Break(operator, function, node.lineno, start, end, before, text))
    return sorted(found, key=lambda one: (one.operator, one.start))


def _computed(kernel: ast.FunctionDef) -> Iterator[ast.AST]:
    """All nodes but conditions: those of a kernel choose between ways of computing the same."""
    todo: list[ast.AST] = list(kernel.body)
    while todo:
        node = todo.pop()
        yield node
        skipped = node.test if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)) else None
        todo += [child for child in ast.iter_child_nodes(node) if child is not skipped]


def _written(node: ast.AST) -> str:
    return f"({ast.unparse(node)})"


def _loops(kernel: ast.FunctionDef) -> Iterator[tuple[ast.For, ast.Call]]:
    """Loops over a range, and that range."""
    for node in _computed(kernel):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and _called(node.iter) == "range":
            yield node, node.iter


def _called(call: ast.Call) -> str:
    """'load' of tl.load(...) and of load(...)."""
    name = call.func
    return name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""


def _products(kernel: ast.FunctionDef, named: str) -> Iterator[tuple[ast.BinOp, ast.expr, ast.expr]]:
    """Products with a factor whose name holds `named`: the product, the other factor, that factor."""
    for node in _computed(kernel):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for factor, other in ((node.right, node.left), (node.left, node.right)):
                name = factor.value if isinstance(factor, ast.Subscript) else factor
                if isinstance(name, ast.Name) and re.search(named, name.id, re.IGNORECASE):
                    yield node, other, factor
                    break


def bound(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Ends a mask one early: the last column, row or key is lost."""
    for node in _computed(kernel):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
            yield node, f"({ast.unparse(node.left)} < {_written(node.comparators[0])} - 1)"


def tail(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Drops the last iteration of a loop: the tail tile is lost."""
    for _, span in _loops(kernel):
        stop = span.args[min(1, len(span.args) - 1)]
        step = _written(span.args[2]) if len(span.args) > 2 else "1"
        yield stop, f"({_written(stop)} - {step})"


def edge(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Makes >= to > and <= to <: a causal mask or a window is off by one."""
    for node in _computed(kernel):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.GtE, ast.LtE)):
            sign = ">" if isinstance(node.ops[0], ast.GtE) else "<"
            yield node, f"({ast.unparse(node.left)} {sign} {ast.unparse(node.comparators[0])})"


def other(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Fills what a mask leaves out with something else: 1 for 0, and 0 for -inf."""
    for node in _computed(kernel):
        if not isinstance(node, ast.Call):
            continue
        filled = [word.value for word in node.keywords if word.arg == "other"] if _called(node) == "load" else []
        filled += node.args[2:3] if _called(node) == "where" else []
        for value in filled:
            text = ast.unparse(value).replace('"', "'")
            if text in ("0", "0.0"):
                yield value, "1.0"
            elif text in ("-float('inf')", "float('-inf')"):
                yield value, "0.0"


def accumulator(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Computes in fp16 what is computed in fp32."""
    for node in _computed(kernel):
        if isinstance(node, ast.Attribute) and node.attr == "float32":
            yield node, f"{ast.unparse(node.value)}.float16"


def no_max(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Takes exp(x - m) as exp(x): large scores overflow."""
    for node in _computed(kernel):
        if isinstance(node, ast.Call) and _called(node) in EXPONENTIALS and node.args:
            differences = (each for each in ast.walk(node.args[0]) if isinstance(each, ast.BinOp))
            first = next((each for each in differences if isinstance(each.op, ast.Sub)), None)
            if first is not None:
                yield first, _written(first.left)


def eps(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Leaves + eps out."""
    for node in _computed(kernel):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            sides = (node.left, node.right)
            names = [isinstance(side, ast.Name) and "eps" in side.id.lower() for side in sides]
            if any(names):
                yield node, _written(sides[names.index(False)])


def sign(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Adds where it subtracts."""
    for node in _computed(kernel):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and not isinstance(node.right, ast.Constant):
            yield node, f"({_written(node.left)} + {_written(node.right)})"


def head(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Takes a % b for a // b, and the other way: heads that share keys are swapped."""
    for node in _computed(kernel):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            sign = "%" if isinstance(node.op, ast.FloorDiv) else "//"
            yield node, f"({_written(node.left)} {sign} {_written(node.right)})"


def stride(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Forgets a stride for index 1 only, which then reads and writes what index 0 does."""
    for node, index, _ in _products(kernel, "stride"):
        yield node, f"tl.where({_written(index)} != 1, {_written(node)}, 0)"


def scale(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Leaves a factor out that is called a scale or a reciprocal."""
    for node, rest, _ in _products(kernel, "scale|rstd|inv_"):
        yield node, _written(rest)


def stale(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Leaves out, in a loop, what an accumulator is multiplied by before something is added to it."""
    for loop, _ in _loops(kernel):
        for node in ast.walk(loop):
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult):
                yield node.value, "1.0"
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                yield from ((product, name) for product in _multiples(node.value, name))


def _multiples(value: ast.expr, name: str) -> Iterator[ast.BinOp]:
    """Products whose first factor is this variable."""
    for node in ast.walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            first = node.left
            if isinstance(first, ast.Name) and first.id == name:
                yield node


OPERATORS: dict[str, Callable[[ast.FunctionDef], Iterator[Change]]] = {
    function.__name__: function
    for function in (bound, tail, edge, other, accumulator, no_max, eps, sign, head, stride, scale, stale)
}
