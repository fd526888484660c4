"""Print how the package is built: rooms, circles, files with one importer, sizes. Reads the sources, runs nothing.

python benchmarks/house.py [--list] [--root DIR]

Members of a list are counted apart from other files with one importer: files that a constant of another file in their
folder names one beside the other (a timer, a liar, a probe of the doctor, a claim's rule), as an imported name or as
the text of their own. Each is a file so that another can be added, and nobody reads them one after the other.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.prose import places_of_package  # noqa: E402

PACKAGE = "pytest_attnperf"


class House:
    """The modules under `root` and who imports whom, wherever in a file the import stands."""

    def __init__(self, root: Path, tops: Sequence[str] = (PACKAGE, "kernels")) -> None:
        """`tops` are the packages whose modules count; imports under TYPE_CHECKING never run and do not."""
        self.paths = {
            _module_name(path, root): path
            for top in tops
            for path in sorted((root / top).rglob("*.py"))
            if path.is_file()
        }
        self._trees = {name: ast.parse(path.read_text()) for name, path in self.paths.items()}
        self.imports = {name: set(self._imports(name)) for name in self.paths}

    def _imports(self, name: str) -> Iterator[str]:
        for node in running_nodes(self._trees[name]):
            if isinstance(node, ast.Import):
                candidates = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                candidates = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for candidate in candidates:
                module = self._known(candidate)
                if module and module != name:
                    yield module

    def _known(self, dotted: str) -> str | None:
        """The module that `dotted` is, or is a name of."""
        if dotted in self.paths:
            return dotted
        parent = dotted.rpartition(".")[0]
        return parent if parent in self.paths else None

    def package(self) -> list[str]:
        """Modules of the package itself, without those of the repository's kernels."""
        return [name for name in self.paths if name.split(".")[0] == PACKAGE]

    def importers(self) -> Mapping[str, set[str]]:
        """Module -> modules that import it; the package itself imports what it exports when a user asks for it."""
        found: dict[str, set[str]] = defaultdict(set)
        for module in self._exported():
            found[module].add(PACKAGE)
        for name, imported in self.imports.items():
            for module in imported:
                found[module].add(name)
        return found

    def _exported(self) -> Iterator[str]:
        """Modules that a dictionary of the package's `__init__` names as the places of what it exports."""
        for node in self._trees.get(PACKAGE, ast.Module([], [])).body:
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if isinstance(value, ast.Dict):
                texts = (key.value for key in value.keys if isinstance(key, ast.Constant))
                yield from filter(None, (self._known(f"{PACKAGE}.{text}") for text in texts if isinstance(text, str)))

    def with_one_importer(self) -> list[str]:
        """Modules of the package, no `__init__`, that exactly one module imports."""
        importers = self.importers()
        files = (name for name in self.package() if self.paths[name].stem != "__init__")
        return sorted(name for name in files if len(importers.get(name, ())) == 1)

    def members_of_lists(self) -> set[str]:
        """Modules that stand in a constant tuple, list or dictionary of a module in their own folder."""
        found: set[str] = set()
        for name in self.package():
            folder = name if self.paths[name].stem == "__init__" else name.rpartition(".")[0]
            members = {module for module in self._listed(name, folder) if module.rpartition(".")[0] == folder}
            found |= members if len(members) > 1 else set()
        return found

    def _listed(self, name: str, folder: str) -> Iterator[str]:
        """Modules whose names, or what is imported from them, stand in a constant of `name`."""
        tree = self._trees[name]
        origin = {
            alias.asname or alias.name: self._known(f"{node.module}.{alias.name}")
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in tree.body:
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if not isinstance(value, (ast.Tuple, ast.List, ast.Dict)):
                continue
            for part in ast.walk(value):
                module = origin.get(part.id) if isinstance(part, ast.Name) else None
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    named = part.value if all(map(str.isidentifier, part.value.split("."))) else ""
                    # 'budgeting', or 'features.budgeting' in a list that also names files beside the folder
                    module = self._known(f"{folder}.{named}") or self._known(f"{folder.rpartition('.')[0]}.{named}")
                if module:
                    yield module

    def circles(self) -> list[list[str]]:
        """Groups of modules each of which imports, over others, itself."""
        return [sorted(group) for group in _strong_groups(self.imports) if len(group) > 1]

    def rooms(self) -> Counter[str]:
        """Room -> its modules. A room is a folder of the package's root; files of the root are one each."""
        return Counter(_room(name) for name in self.package() if name != PACKAGE)

    def arrows(self) -> set[tuple[str, str]]:
        """(room, room that it imports)."""
        pairs = ((name, module) for name in self.package() for module in self.imports[name])
        return {(_room(a), _room(b)) for a, b in pairs if _room(a) != _room(b) and b.startswith(PACKAGE)}

    def line_counts(self) -> list[int]:
        """Lines of each file of the package, ascending."""
        return sorted(len(self.paths[name].read_text().splitlines()) for name in self.package())


def running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement, and what it is made of at first hand, outside `if TYPE_CHECKING:` bodies."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            yield from running_nodes(ast.Module(child.orelse, type_ignores=[]))
            continue
        yield child
        if not isinstance(child, ast.expr):  # where no statement is
            yield from running_nodes(child)


def _module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "(root)"


def _strong_groups(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected groups: those of forward reachability, cut by backward reachability (Kosaraju)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:
        _visit(start, graph, seen, order)
    reverse: dict[str, set[str]] = defaultdict(set)
    for name, imported in graph.items():
        for module in imported:
            reverse[module].add(name)
    seen.clear()
    groups = []
    for start in reversed(order):
        group: list[str] = []
        _visit(start, reverse, seen, group)
        if group:
            groups.append(group)
    return groups


def _visit(start: str, graph: Mapping[str, set[str]], seen: set[str], finished: list[str]) -> None:
    """Append what is reached from `start` and was not seen, each after what it reaches."""
    if start in seen:
        return
    seen.add(start)
    open_nodes = [(start, iter(sorted(graph.get(start, ()))))]
    while open_nodes:
        node, following = open_nodes[-1]
        successor = next((other for other in following if other not in seen), None)
        if successor is None:
            finished.append(node)
            open_nodes.pop()
        else:
            seen.add(successor)
            open_nodes.append((successor, iter(sorted(graph.get(successor, ())))))


def main() -> None:
    """Print the figures; --list names what is behind them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the circles and the files with one importer, too")
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout (default: this one)")
    options = parser.parse_args()
    house = House(options.root)
    lines, circles, members = house.line_counts(), house.circles(), house.members_of_lists()
    single = [name for name in house.with_one_importer() if name not in members]
    listed = [name for name in house.with_one_importer() if name in members]
    importers = house.importers()
    elsewhere = [name for name in single if _room(name) != _room(next(iter(importers[name])))]
    print(f"rooms in the root    {len(house.rooms())}")
    print(f"arrows between rooms {len(house.arrows())}")
    print(f"circles              {len(circles)} of {sum(map(len, circles))} files")
    print(
        f"files, one importer  {len(single)} ({len(elsewhere)} of them: in another room); "
        f"apart: {len(listed)} members of a list"
    )
    print(
        f"files, lines         {len(lines)}, {sum(lines)} (median {statistics.median(lines):.0f}, longest {lines[-1]})"
    )
    prose = places_of_package(options.root)
    print(f"places that match prose {len(prose)} in {len({place.path for place in prose})} files")
    if options.list:
        print("\nmatching prose:")
        for place in prose:
            print(f"  {place.path}:{place.line} {place.function}: {place.code}")
        for circle in circles:
            print("\ncircle:", *circle, sep="\n  ")
        print("\nmembers of a list, one importer:", *listed, sep="\n  ")
        print("\none importer:")
        for name in single:
            count = len(house.paths[name].read_text().splitlines())
            print(f"  {name} ({count} lines) by {next(iter(importers[name]))}")


if __name__ == "__main__":
    main()
