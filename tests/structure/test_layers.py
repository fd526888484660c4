"""The layers of docs/design.md, asserted on every import of the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "pytest_attnperf"

ORDER: tuple[tuple[str, ...], ...] = (
    (
        "records",
        "pairs",
        "code_records",
        "stage_records",
        "profile_records",
        "roofline_records",
        "counter_records",
        "tuning_records",
        "history_records",
        "gpu_records",
        "errors",
        "results",
        "backends",
        "kernel_builds",
        "atomic_file",
        "regular_file",
        "unique_keys",
    ),
    ("stats", "workloads", "environment"),
    ("correctness", "roofline", "codeobject"),
    ("measure",),
    ("baselines",),
    ("gate",),
    ("workers",),
    ("session",),
    (
        "plugin",
        "cli",
        "worker_command",
        "bisect_command",
        "occupancy_command",
        "occupancy_kernels",
        "ladder_command",
        "stages_command",
        "run_kernel_command",
        "build_kernels_command",
        "profile_command",
        "profile_results",
        "profile_output",
        "calibrate_device_command",
        "tune_command",
        "dispatch_command",
        "report_command",
        "report_inputs",
        "history_command",
        "gate_command",
        "comment_command",
        "doctor_command",
        "warm_command",
        "explain_command",
        "accept_command",
        "merge_baselines_command",
        "compare_command",
        "merge_command",
        "completion_command",
        "ci",
    ),
)
"""Lowest first. A layer may import itself, its neighbours in one tuple, and every layer before it."""

_DATA = {"records", "pairs", "code_records", "stage_records", "profile_records", "counter_records", "errors", "results"}
_DATA |= {
    "roofline_records",
    "tuning_records",
    "history_records",
    "gpu_records",
    "atomic_file",
    "regular_file",
    "unique_keys",
}
_UP_TO_WORKERS = {name for names in ORDER[: ORDER.index(("workers",)) + 1] for name in names}
BESIDE = {
    "reports": _DATA,
    "profilers": _DATA | {"environment", "roofline", "codeobject"},
    "tuner": _UP_TO_WORKERS,
    "dispatch": _DATA | {"stats", "workloads"},
    "history": _DATA | {"stats"},
    "doctor": _UP_TO_WORKERS,
}
"""Beside the layers: what each may import. The top layer and `testing` may import them."""

FREE = "testing"
"""May import everything, and nothing may import it."""


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
        layer = path.relative_to(package).parts[0].removesuffix(".py")
        allowed = set(ORDER[0]) if layer == "__init__" else allowed_layers(layer)
        where = path.relative_to(root).as_posix()
        violations += [
            f"{where}:{line}: {layer} may not import {other}"
            for line, other in package_imports(path)
            if other not in allowed and not other.startswith("__")
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
        ("session.py", "from pytest_attnperf.reports import html", "session may not import reports"),
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


def test_layers_are_those_of_the_design() -> None:
    """docs/design.md names the layers in the order asserted here; it may name some that do not exist yet."""
    line = next(text for text in (ROOT / "docs/design.md").read_text().splitlines() if text.startswith("Layers, each"))
    documented = line.partition("import): ")[2].partition(". ")[0].split(" < ")
    placed = {name for names in ORDER for name in names}
    assert [set(group.split(", ")) & placed for group in documented] == [set(names) for names in ORDER]
