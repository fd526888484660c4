"""Finds the workloads of benchmark scripts of Hugging Face's `kernels` by reading them: nothing of them is executed.

A script lies in `benchmarks/` of a kernel repository, is named `benchmark*.py`, and has subclasses of
`kernels.benchmark.Benchmark`, whose methods `benchmark_NAME` are workloads, `verify_NAME` their references.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.errors import UsageError, propose_name
from pytest_attnperf.records.regular_file import describe_os_error, read_regular
from pytest_attnperf.reports.text.figures import one_line

BASE = "Benchmark"
"""Name of the class of `kernels.benchmark` that scripts derive from."""

WORKLOAD, VERIFY = "benchmark_", "verify_"
FOLDER, PATTERN = "benchmarks", "benchmark*.py"
SCRIPT_BYTES_MOST = 1 << 20


@dataclass(frozen=True)
class ScriptWorkload:
    """A workload of a script: its class and name; `is_verified` says whether there is a reference."""

    script: Path
    kind: str
    name: str
    is_verified: bool


def find_scripts(path: Path) -> tuple[Path, ...]:
    """Returns the scripts of a kernel repository, of a folder of scripts, or the one file. Raises UsageError if there
    is none."""
    if path.is_file():
        return (path,)
    if not path.is_dir():
        raise UsageError(f"there is no {path}; name a kernel repository with {FOLDER}/{PATTERN}, or one such file")
    for folder in (path / FOLDER, path):
        if found := tuple(sorted(one for one in folder.glob(PATTERN) if one.is_file())):
            return found
    raise UsageError(f"{path} has no {PATTERN}, and no {FOLDER}/{PATTERN}; name a folder of benchmark scripts")


def read_workloads(script: Path) -> list[ScriptWorkload]:
    """Returns the workloads of a script in the order of its classes and methods.

    Raises UsageError for a file that cannot be read or is no Python, one without a subclass of Benchmark, a class
    without workloads or with a base that the file does not have, and a reference without its workload.
    """
    classes = {one.name: one for one in _parse(script).body if isinstance(one, ast.ClassDef)}
    kinds = [name for name in classes if _is_benchmark(name, classes, script)]
    if not kinds:
        has = f"; it has the classes {', '.join(classes)}" if classes else ""
        raise UsageError(f"{script} has no class that derives from kernels.benchmark.{BASE}{has}")
    derived_from = {name for one in kinds for name in _list_bases(classes[one])}
    found = []
    for kind in kinds:
        workloads = _list_class(script, kind, _list_methods(kind, classes))
        if not workloads and kind not in derived_from:
            raise UsageError(f"{script}: class {kind} has no method {WORKLOAD}NAME; add one, or drop the class")
        found += workloads
    return found


def _parse(script: Path) -> ast.Module:
    try:
        return ast.parse(read_regular(script, SCRIPT_BYTES_MOST), str(script))
    except OSError as error:
        raise UsageError(describe_os_error(error)) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{script} is no Python file: {one_line(str(error))}") from error


def _is_benchmark(name: str, classes: Mapping[str, ast.ClassDef], script: Path) -> bool:
    """Returns whether a class of the file derives from Benchmark, by way of others of the file or at once."""
    pending, seen, foreign = [name], set[str](), []
    while pending:
        for base in _list_bases(classes[pending.pop()]):
            if base == BASE and base not in classes:
                return True
            if base in classes and base not in seen:
                seen.add(base)
                pending.append(base)
            elif base not in classes:
                foreign.append(base)
    has_workload = any(one.startswith(WORKLOAD) for one in _list_methods(name, classes))
    if foreign and has_workload:
        raise UsageError(
            f"{script}: class {name} derives from {foreign[0]}, which the file does not define: what it inherits "
            f"cannot be read; derive it from kernels.benchmark.{BASE}, or move the base into the file"
        )
    return False


def _list_bases(one: ast.ClassDef) -> list[str]:
    """Returns the last names of the bases: 'Benchmark' of `kernels.benchmark.Benchmark`."""
    return [ast.unparse(base).rpartition(".")[2] for base in one.bases]


def _list_methods(name: str, classes: Mapping[str, ast.ClassDef]) -> list[str]:
    """Returns the names that a class and its bases in the file define, each once, those of bases first."""
    found: dict[str, None] = {}
    pending, seen = [name], {name}
    while pending:
        one = classes[pending.pop()]
        own = dict.fromkeys(_list_names(one))
        found = {**own, **found}
        new = [base for base in _list_bases(one) if base in classes and base not in seen]
        seen.update(new)
        pending += new
    return list(found)


def _list_names(one: ast.ClassDef) -> list[str]:
    names: list[str] = []
    for part in one.body:
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.append(part.name)
        elif isinstance(part, ast.Assign):
            names += [target.id for target in part.targets if isinstance(target, ast.Name)]
    return names


def _list_class(script: Path, kind: str, methods: list[str]) -> list[ScriptWorkload]:
    names = [one.removeprefix(WORKLOAD) for one in methods if one.startswith(WORKLOAD)]
    for one in methods:
        name = one.removeprefix(VERIFY)
        if one.startswith(VERIFY) and name not in names:
            raise UsageError(
                f"{script}: {kind}.{one} has no {WORKLOAD}{name}{propose_name(name, names)}: nothing would run it; "
                "rename one of the two"
            )
    return [ScriptWorkload(script, kind, name, f"{VERIFY}{name}" in methods) for name in names]
