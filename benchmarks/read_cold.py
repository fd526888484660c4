"""Draws docstrings and messages for somebody to read cold: names, signatures and texts without their bodies.

    python benchmarks/read_cold.py --seed 7 [--docstrings 60] [--messages 40] [--answers FILE]

A reader who does not know the project says of each what the function does and returns, or what the message asks for.
Then the reader looks at the code, and counts what was understood. --answers writes where each text stands, to be opened
afterwards. Messages are the texts of exceptions that the package raises.
"""

from __future__ import annotations

import argparse
import ast
import functools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("pytest_attnperf", "kernels")
WORDS_LEAST = 6
"""Shorter messages are part of another text."""


@dataclass(frozen=True)
class Text:
    """A docstring with the signature above it, or a message; and where it stands."""

    shown: str
    place: str


def list_docstrings(root: Path) -> list[Text]:
    """Docstrings of functions and methods, each with its signature."""
    return [
        Text(f"{_format_signature(node, owner)}\n    {docstring}", f"{path.relative_to(root)}:{node.lineno}")
        for path, tree in _parse_files(root)
        for owner, node in _walk_functions(tree)
        if (docstring := ast.get_docstring(node))
    ]


def list_messages(root: Path) -> list[Text]:
    """Texts of exceptions that are raised, with what is filled in as {...}."""
    return [
        Text(text, f"{path.relative_to(root)}:{node.lineno}")
        for path, tree in _parse_files(root)
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args
        if len((text := _format_text(node.exc.args[0])).split()) >= WORDS_LEAST
    ]


@functools.cache
def _parse_files(root: Path) -> tuple[tuple[Path, ast.Module], ...]:
    paths = (path for top in TOPS for path in sorted((root / top).rglob("*.py")))
    return tuple((path, ast.parse(path.read_text())) for path in paths)


def _walk_functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yields (name of the class or '', function)."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from ((node.name, item) for item in node.body if isinstance(item, ast.FunctionDef))


def _format_signature(node: ast.FunctionDef, owner: str) -> str:
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{owner + '.' if owner else ''}{node.name}({ast.unparse(node.args)}){returned}"


def _format_text(node: ast.expr) -> str:
    """The literal parts of a message; '' where it is not a text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            f"{{{ast.unparse(part.value)}}}" if isinstance(part, ast.FormattedValue) else _format_text(part)
            for part in node.values
        )
    return ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the drawn texts with numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True, help="draws others")
    parser.add_argument("--docstrings", type=int, default=60, help="how many (default: %(default)s)")
    parser.add_argument("--messages", type=int, default=40, help="how many (default: %(default)s)")
    parser.add_argument("--answers", type=Path, help="write the place of each text to this file")
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    drawn = chance.sample(list_docstrings(ROOT), options.docstrings) + chance.sample(
        list_messages(ROOT), options.messages
    )
    for number, text in enumerate(drawn, 1):
        print(f"[{number}] {text.shown}\n")
    if options.answers is not None:
        options.answers.write_text("".join(f"{number} {text.place}\n" for number, text in enumerate(drawn, 1)))


if __name__ == "__main__":
    main()
