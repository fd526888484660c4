"""Counts how functions are named, how many words the documentation has, and which lines repeat; reads sources only.

    python benchmarks/names.py [--root DIR] [--list]

A one-word name has no underscore between words (`close`, `_text`). A participle is one word that ends in -ed or -ing,
or an irregular one. Properties are no participles, because `called` reads as an adjective there. Special methods and
pytest's hooks do not count: nobody here chose their names. A line repeats where it stands in a run of
at least RUN equal lines elsewhere.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUN, FILES_LEAST = 6, 4
IRREGULAR = frozenset(
    [
        "begun",
        "bound",
        "broken",
        "built",
        "chosen",
        "come",
        "done",
        "drawn",
        "found",
        "given",
        "gone",
        "grown",
        "held",
        "kept",
        "known",
        "left",
        "lost",
        "made",
        "meant",
        "met",
        "put",
        "read",
        "said",
        "seen",
        "sent",
        "set",
        "shown",
        "spent",
        "split",
        "spoken",
        "taken",
        "thrown",
        "told",
        "understood",
        "won",
        "written",
    ]
)


@dataclass(frozen=True)
class Named:
    """One function or method: its name, its file, and whether it is a property."""

    name: str
    path: Path
    line: int
    is_property: bool

    @property
    def is_one_word(self) -> bool:
        """Whether the name has no underscore between words."""
        return "_" not in self.name.strip("_")

    @property
    def is_participle(self) -> bool:
        """Whether it is one bare participle, and no property."""
        word = self.name.strip("_")
        return self.is_one_word and not self.is_property and (word.endswith(("ed", "ing")) or word in IRREGULAR)


def list_functions(root: Path, tops: Sequence[str]) -> list[Named]:
    """Every function that somebody here has named, in the folders `tops` of `root`."""
    return [
        named
        for top in tops
        for path in sorted((root / top).rglob("*.py"))
        for named in _walk_functions(ast.parse(path.read_text()), path)
    ]


def _walk_functions(tree: ast.AST, path: Path) -> Iterator[Named]:
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if not (node.name.startswith("__") and node.name.endswith("__")) and not node.name.startswith("pytest_"):
            marks = {ast.unparse(mark).rpartition(".")[2] for mark in node.decorator_list}
            yield Named(node.name, path, node.lineno, bool(marks & {"property", "cached_property", "setter"}))


def list_repeated_names(functions: Sequence[Named]) -> dict[str, set[Path]]:
    """Name -> the files that define it, of names that stand in FILES_LEAST files or more."""
    files: dict[str, set[Path]] = defaultdict(set)
    for named in functions:
        files[named.name].add(named.path)
    return {name: paths for name, paths in files.items() if len(paths) >= FILES_LEAST}


def count_repeated_lines(root: Path, tops: Sequence[str]) -> int:
    """Lines in runs of RUN or more that stand word for word in another place; blank lines and imports do not count."""
    places: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for top in tops:
        for path in sorted((root / top).rglob("*.py")):
            lines = [(at, line.strip()) for at, line in enumerate(path.read_text().splitlines()) if line.strip()]
            lines = [(at, line) for at, line in lines if not line.startswith(("import ", "from "))]
            for start in range(len(lines) - RUN + 1):
                places[tuple(line for _, line in lines[start : start + RUN])].append((path, start))
    repeated = {
        (path, start + offset)
        for found in places.values()
        if len(found) > 1
        for path, start in found[1:]
        for offset in range(RUN)
    }
    return len(repeated)


def count_words(pages: Sequence[Path]) -> int:
    """Words of Markdown pages, as `wc -w` counts them."""
    return sum(len(page.read_text().split()) for page in pages)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures; --list names the participles and the names that repeat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout (default: this one)")
    parser.add_argument("--list", action="store_true", help="name participles and repeated names, too")
    options = parser.parse_args(arguments)
    for top in ("pytest_attnperf", "kernels", "tests"):
        functions = list_functions(options.root, [top])
        one_word = sum(named.is_one_word for named in functions)
        participles = [named for named in functions if named.is_participle]
        repeated = list_repeated_names(functions)
        print(
            f"{top}: {len(functions)} functions, {one_word / len(functions):.0%} of one word, "
            f"{len(participles) / len(functions):.1%} bare participles, {len(repeated)} names in 4 files or more, "
            f"{count_repeated_lines(options.root, [top])} repeated lines"
        )
        if options.list:
            print(*(f"  {named.path}:{named.line} {named.name}" for named in participles), sep="\n")
            print(*(f"  {name}: {len(paths)} files" for name, paths in sorted(repeated.items())), sep="\n")
    pages = sorted((options.root / "docs").glob("*.md"))
    print(f"docs: {len(pages)} pages, {count_words(pages):,} words")


if __name__ == "__main__":
    main()
