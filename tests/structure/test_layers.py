"""The layers of docs/design.md, asserted on every import of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "pytest_attnperf"

ORDER: tuple[tuple[str, ...], ...] = (
    ("records",),
    ("stats", "workloads", "environment"),
    ("correctness", "roofline", "codeobject"),
    ("isa",),
    ("measure",),
    ("baselines",),
    ("gate",),
    ("workers",),
    ("session",),
    ("plugin", "cli"),
)
"""Rooms, lowest first. One may import itself, its neighbours in one tuple, and every room before it."""

PUBLIC = {"backends", "errors", "kernel_builds", "results", "tuning_records"}
"""Files of the root, because users import them by these names. They count as `records`."""

_UP_TO_WORKERS = {name for names in ORDER[: ORDER.index(("workers",)) + 1] for name in names}
BESIDE = {
    "reports": {"records"},
    "problems": _UP_TO_WORKERS | {"reports"},
    "tools": _UP_TO_WORKERS | {"reports"},
}
"""Beside the layers: what each may import. The top layer and `testing` may import them."""

FREE = "testing"
"""May import everything, and nothing may import it."""


def room_of(name: str) -> str:
    """The room of a folder or file of the package's root."""
    return "records" if name in PUBLIC else name


def allowed_layers(layer: str) -> set[str]:
    """Layers that a module of `layer` may import, itself included."""
    if layer in BESIDE:
        return BESIDE[layer] | {layer}
    everything = {name for names in ORDER for name in names} | BESIDE.keys() | {FREE}
    if layer == FREE:
        return everything
    allowed: set[str] = set()
    for names in ORDER:
        allowed.update(names)
        if layer in names:
            return allowed | (BESIDE.keys() if names == ORDER[-1] else set())
    raise KeyError(f"{layer!r} is in no layer; place it in ORDER or BESIDE, and in docs/design.md")


def package_imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, layer) of every import from the package that can run; imports under TYPE_CHECKING never do."""
    for node in running_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = _from_names(node)
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == PACKAGE and rest:
                yield node.lineno, rest.partition(".")[0]
            elif top in {"kernels", "suites"}:
                yield node.lineno, top


def _from_names(node: ast.ImportFrom) -> list[str]:
    if node.level:
        raise ValueError(f"line {node.lineno}: relative import; the package imports by full name")
    module = node.module or ""
    return [f"{module}.{alias.name}" for alias in node.names] if module == PACKAGE else [module]


def running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node outside `if TYPE_CHECKING:` bodies."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            yield from running_nodes(ast.Module(child.orelse, type_ignores=[]))
        else:
            yield child
            yield from running_nodes(child)


def layer_violations(root: Path) -> list[str]:
    """'file:line: layer may not import other' for every import of the package under `root` that breaks the order."""
    violations = []
    package = root / PACKAGE
    for path in sorted(package.rglob("*.py")):
        layer = room_of(path.relative_to(package).parts[0].removesuffix(".py"))
        allowed = set(ORDER[0]) if layer == "__init__" else allowed_layers(layer)
        where = path.relative_to(root).as_posix()
        violations += [
            f"{where}:{line}: {layer} may not import {other}"
            for line, other in package_imports(path)
            if room_of(other) not in allowed and not other.startswith("__")
        ]
    return violations


def _package(root: Path, path: str, source: str) -> Path:
    file = root / PACKAGE / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return root


def test_package_keeps_its_layers() -> None:
    """Every import of the package goes to its own layer or to one before it."""
    assert layer_violations(ROOT) == []


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("stats/noise.py", "from pytest_attnperf.gate.policy import Policy", "stats may not import gate"),
        ("gate/decide.py", "import pytest_attnperf.workers.pool", "gate may not import workers"),
        ("gate/decide.py", "from pytest_attnperf import session", "gate may not import session"),
        ("reports/html.py", "from pytest_attnperf.gate import policy", "reports may not import gate"),
        ("session/case_judge.py", "from pytest_attnperf.reports import html", "session may not import reports"),
        ("plugin/main.py", "from pytest_attnperf.testing import fake_device", "plugin may not import testing"),
        ("testing/lying.py", "import kernels.triton", "testing may not import kernels"),
        ("records.py", "def f():\n    from pytest_attnperf.stats import noise", "records may not import stats"),
        ("__init__.py", "from pytest_attnperf.plugin import main", "__init__ may not import plugin"),
    ],
)
def test_import_of_a_later_layer_is_found(tmp_path: Path, path: str, source: str, expected: str) -> None:
    """An import that breaks the order is named with its file and line, wherever in the file it stands."""
    line = source.count("\n") + 1
    assert layer_violations(_package(tmp_path, path, source)) == [f"{PACKAGE}/{path}:{line}: {expected}"]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("gate/decide.py", "from pytest_attnperf.stats import noise\nfrom pytest_attnperf.gate import policy"),
        ("plugin/main.py", "from pytest_attnperf.reports import terminal\nfrom pytest_attnperf import session"),
        ("testing/fake_device.py", "from pytest_attnperf.plugin import main"),
        ("backends.py", "if TYPE_CHECKING:\n    from pytest_attnperf.workloads.base import Workload"),
    ],
)
def test_import_of_an_earlier_layer_is_allowed(tmp_path: Path, path: str, source: str) -> None:
    """Imports of earlier layers, and imports for a type checker only, are no finding."""
    assert layer_violations(_package(tmp_path, path, source)) == []


def test_import_after_a_type_checking_block_is_read(tmp_path: Path) -> None:
    """The else branch of `if TYPE_CHECKING` runs, so its imports count."""
    source = "if TYPE_CHECKING:\n    import torch\nelse:\n    from pytest_attnperf import cli"
    assert layer_violations(_package(tmp_path, "records.py", source)) == [
        f"{PACKAGE}/records.py:4: records may not import cli"
    ]


def test_relative_import_is_refused(tmp_path: Path) -> None:
    """A relative import, whose target the layers test would have to guess, is an error."""
    with pytest.raises(ValueError, match="line 1: relative import"):
        layer_violations(_package(tmp_path, "gate/decide.py", "from ..workers import pool"))


def test_new_folder_must_be_placed(tmp_path: Path) -> None:
    """A folder that stands in no layer is refused, with what to do."""
    with pytest.raises(KeyError, match="'novelty' is in no layer; place it in ORDER or BESIDE"):
        layer_violations(_package(tmp_path, "novelty/store.py", "import json"))


def test_the_root_holds_rooms_and_what_users_import() -> None:
    """Beside folders there are the package's own two files and those that users import by a documented name."""
    files = {path.stem for path in (ROOT / PACKAGE).iterdir() if path.is_file()}
    assert files == PUBLIC | {"__init__", "py"}
    for name in PUBLIC:
        assert f"`{name}`" in _room_rows()["records"], f"docs/design.md does not name {name}"


def test_rooms_are_those_of_the_design() -> None:
    """docs/design.md has a row for each room, lowest first, with what it may import."""
    rows = _room_rows()
    assert list(rows) == [*(name for names in ORDER[:-1] for name in names), *BESIDE, *ORDER[-1], FREE]
    for room, text in rows.items():
        allowed = set(re.findall(r"[a-z]+", text.rpartition("|")[2]))
        assert allowed == _documented(room), room


def _room_rows() -> dict[str, str]:
    """Room -> the rest of its row."""
    page = (ROOT / "docs/design.md").read_text().partition("| room | what it holds | may import |")[2]
    rows = [line.strip("| ").partition(" | ") for line in page.partition("\n\n")[0].splitlines()[2:]]
    return {room.strip("`/"): rest for room, _, rest in rows}


def _documented(room: str) -> set[str]:
    """What the table says of a room, in one word where it is everything before it."""
    if room in BESIDE:
        return {"reports": {"records"}, "tools": {"up", "to", "workers", "reports"}}[room]
    if room == FREE:
        return {"everything"}
    return {"itself"} if room == ORDER[0][0] else {"all", "above"}
