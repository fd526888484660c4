"""Which third-party packages may be imported, where, and when."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "pytest_attnperf"

CORE = {"msgspec", "filelock"}
"""Installed with the wheel; the worker's side must run without them, in an interpreter that is not ours."""

ONLY_IN = {
    "torch": {"workloads", "correctness", "measure", "environment", "workers/server", "problems", "testing"},
    "triton": {"environment", "measure", "codeobject", "testing"},
    "pytest": {"plugin", "testing"},
    "_pytest": set[str](),
    "xdist": {"plugin"},
    "matplotlib": {"tools/plotting", "tools/history", "tools/profilers"},
    "yaml": {"tools/profilers"},
    "optuna": {"tools/tuner"},
    "jinja2": {"reports"},
    "vl_convert": {"reports"},
    "sqlalchemy": {"tools/history"},
    "ruptures": {"tools/history"},
    "numpy": {"tools/history", "isa"},
    "psycopg": {"tools/history"},
    "pytest_benchmark": {"plugin", "tools/export/pytest_benchmark"},
    "rich": {"plugin/features/live"},
    "safetensors": {"problems"},
    "shtab": {"cli/commands/completion"},
}
"""Folders and modules (without suffix) of the package that may import a third-party package."""

NEVER_AT_TOP = {
    *("torch", "triton", "matplotlib", "yaml", "optuna", "numpy"),
    *("jinja2", "vl_convert", "sqlalchemy", "psycopg", "ruptures", "pytest_benchmark", "shtab"),
    *("rich", "safetensors"),
}
"""Imported inside functions only: `pytest --help` and `--collect-only` must not pay for them, or need them."""

ROOM_OF_NUMPY = "isa"
"""Each of its files computes with numpy and imports it where it is loaded; other rooms import this one in functions."""

SERVER_SIDE = ("workers/server", "plugin/worker_session")
"""What runs in a worker; everything these import, at any depth, does too."""

CONTROLLER_ONLY = f"{PACKAGE}.plugin.controller_session"
"""Imported by the plugin inside a function that returns before it in a worker."""

NOT_FOLLOWED = (f"{CONTROLLER_ONLY}.", f"{PACKAGE}.{ROOM_OF_NUMPY}.")
"""Imported inside functions: see above; and the room of numpy where machine code is executed, which no worker does."""

SERVER_MAY = {"torch", "triton", "pytest", PACKAGE}


@dataclass(frozen=True)
class Imported:
    """One import that can run: the full module name, its line, and whether it runs when the file is loaded."""

    module: str
    line: int
    at_top: bool

    @property
    def package(self) -> str:
        """The top-level package."""
        return self.module.partition(".")[0]


def imports_of(source: str) -> list[Imported]:
    """Imports of a file outside `if TYPE_CHECKING`; `from a import b` counts as both `a` and `a.b`."""
    return list(_imports(ast.parse(source), at_top=True))


def _imports(tree: ast.AST, *, at_top: bool) -> Iterator[Imported]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Imported(alias.name, node.lineno, at_top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield Imported(node.module, node.lineno, at_top)
            yield from (Imported(f"{node.module}.{alias.name}", node.lineno, at_top) for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            yield from _imports(ast.Module(node.orelse, type_ignores=[]), at_top=at_top)
        else:
            inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from _imports(node, at_top=at_top and not inside)


def misplaced_imports(root: Path) -> list[str]:
    """Third-party imports of the package that stand in the wrong folder, run too early, or are not a dependency."""
    package, found = root / PACKAGE, []
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package).with_suffix("").as_posix()
        homes = {module, *(parent.as_posix() for parent in Path(module).parents)}
        for item in imports_of(path.read_text()):
            name = item.package
            where = f"{PACKAGE}/{module}.py:{item.line}: {name}"
            if item.module.startswith(f"{PACKAGE}.{ROOM_OF_NUMPY}") and item.at_top and ROOM_OF_NUMPY not in homes:
                found.append(
                    f"{where}.{ROOM_OF_NUMPY} is imported when the file is loaded; import it inside the function"
                )
            if name in sys.stdlib_module_names or name in CORE or name == PACKAGE:
                continue
            if name not in ONLY_IN:
                found.append(f"{where} is no dependency of this package")
            elif not homes & ONLY_IN[name]:
                found.append(f"{where} may be imported in {', '.join(sorted(ONLY_IN[name])) or 'no file'} only")
            elif item.at_top and name in NEVER_AT_TOP and not (name == "numpy" and ROOM_OF_NUMPY in homes):
                found.append(f"{where} is imported when the file is loaded; import it inside the function")
    return sorted(set(found))


def file_of(root: Path, module: str) -> Path | None:
    """The file of a module of the package; None when the name is no module (a class, a function)."""
    path = root.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def parents_and_self(module: str) -> list[str]:
    """'a.b.c' -> ['a', 'a.b', 'a.b.c']: all of them are loaded."""
    parts = module.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def foreign_on_the_server_side(root: Path) -> list[str]:
    """Imports reachable from the worker's side, at any depth, that an interpreter with torch and pytest may lack."""
    pending = [f"{PACKAGE}.{name.replace('/', '.')}" for name in SERVER_SIDE]
    seen: set[Path] = set()
    found = set()
    while pending:
        for module in parents_and_self(pending.pop()):
            file = file_of(root, module)
            if file is None or file in seen:
                continue
            seen.add(file)
            for item in imports_of(file.read_text()):
                if item.package == PACKAGE:
                    if item.at_top or not f"{item.module}.".startswith(NOT_FOLLOWED):
                        pending.append(item.module)
                elif item.package not in sys.stdlib_module_names | SERVER_MAY:
                    found.add(f"{file.relative_to(root).as_posix()}:{item.line}: {item.package} on the worker's side")
    return sorted(found)


def _write(root: Path, path: str, source: str) -> Path:
    file = root / PACKAGE / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return root


def test_third_party_imports_are_where_they_belong() -> None:
    """torch is imported lazily and in few folders, pytest in the plugin, and nothing that is no dependency."""
    assert misplaced_imports(ROOT) == []


def test_worker_side_needs_only_torch_and_pytest() -> None:
    """Whatever a worker loads is in the standard library, torch, triton, pytest or this package."""
    assert foreign_on_the_server_side(ROOT) == []


@pytest.mark.parametrize("module", SERVER_SIDE)
def test_worker_side_exists(module: str) -> None:
    """The files that the worker-side rule starts from exist, so that it cannot pass on nothing."""
    assert (ROOT / PACKAGE / f"{module}.py").is_file()


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("stats/noise.py", "def f():\n    import torch", "2: torch may be imported in correctness, environment"),
        ("measure/runner.py", "import torch", "1: torch is imported when the file is loaded"),
        ("measure/runner.py", "class A:\n    import torch", "2: torch is imported when the file is loaded"),
        (
            "measure/runner.py",
            "try:\n    import triton\nexcept ImportError: ...",
            "2: triton is imported when",
        ),
        ("measure/runner.py", "if TYPE_CHECKING: ...\nelse:\n    import torch", "3: torch is imported when the file"),
        ("measure/runner.py", "if not TYPE_CHECKING:\n    import torch", "2: torch is imported when the file"),
        ("gate/decide.py", "import pytest", "1: pytest may be imported in plugin, testing only"),
        ("plugin/main.py", "from _pytest.main import Session", "1: _pytest may be imported in no file only"),
        ("stats/noise.py", "import numpy as np", "1: numpy may be imported in isa, tools/history only"),
        (
            "gate/decide.py",
            "from pytest_attnperf.isa import launch",
            "1: pytest_attnperf.isa is imported when the file",
        ),
        ("tools/history/store.py", "import numpy", "1: numpy is imported when the file is loaded"),
        ("roofline/floor.py", "import aiter", "1: aiter is no dependency of this package"),
    ],
)
def test_misplaced_import_is_found(tmp_path: Path, path: str, source: str, expected: str) -> None:
    """A third-party import in the wrong place is named with file, line and rule."""
    (finding,) = misplaced_imports(_write(tmp_path, path, source))
    assert finding.startswith(f"{PACKAGE}/{path}:{expected}")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("measure/runner.py", "def f():\n    import torch"),
        ("measure/runner.py", "if TYPE_CHECKING:\n    import torch"),
        ("plugin/main.py", "import pytest"),
        ("isa/wave.py", "import numpy\nfrom pytest_attnperf.isa.lds import Lds"),
        ("gate/decide.py", "def f():\n    from pytest_attnperf.isa import launch"),
        ("baselines/store.py", "import msgspec, filelock, json"),
    ],
)
def test_import_in_its_place_is_allowed(tmp_path: Path, path: str, source: str) -> None:
    """Lazy imports in the folders listed, imports for types, and the wheel's dependencies are no finding."""
    assert misplaced_imports(_write(tmp_path, path, source)) == []


def test_import_behind_the_server_is_found(tmp_path: Path) -> None:
    """A dependency two imports away from the server, in a parent package and inside a function, is still found."""
    _write(tmp_path, "workers/server.py", "from pytest_attnperf.measure import runner")
    _write(tmp_path, "measure/__init__.py", "import tabulate")
    _write(tmp_path, "measure/runner.py", "def f():\n    from pytest_attnperf import results")
    _write(tmp_path, "results.py", "import json\n\nimport msgspec")
    assert foreign_on_the_server_side(tmp_path) == [
        f"{PACKAGE}/measure/__init__.py:1: tabulate on the worker's side",
        f"{PACKAGE}/results.py:3: msgspec on the worker's side",
    ]


def test_worker_side_loads_without_our_dependencies() -> None:
    """An interpreter without msgspec and filelock can load everything a worker loads at its start."""
    modules = ", ".join(f"{PACKAGE}.{name.replace('/', '.')}" for name in SERVER_SIDE)
    program = f"import sys; sys.modules.update(dict.fromkeys({sorted(CORE)!r})); import {modules}; print('loaded')"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("loaded\n", "")


def test_controller_is_followed_when_imported_at_the_top(tmp_path: Path) -> None:
    """The one import that is not followed must stand inside a function; at the top of a file it is followed."""
    _write(tmp_path, "plugin/worker_session.py", "from pytest_attnperf.plugin import controller_session")
    _write(tmp_path, "plugin/controller_session.py", "import msgspec")
    found = [f"{PACKAGE}/plugin/controller_session.py:1: msgspec on the worker's side"]
    assert foreign_on_the_server_side(tmp_path) == found
    lazily = "def pytest_configure():\n    from pytest_attnperf.plugin import controller_session"
    assert foreign_on_the_server_side(_write(tmp_path, "plugin/worker_session.py", lazily)) == []


def test_import_beside_the_server_is_no_finding(tmp_path: Path) -> None:
    """The controller may use the wheel's dependencies: it is not loaded by the server."""
    _write(tmp_path, "workers/server.py", "import pytest_attnperf.records")
    _write(tmp_path, "records.py", "import torch")
    _write(tmp_path, "workers/controller.py", "import msgspec")
    assert foreign_on_the_server_side(tmp_path) == []
