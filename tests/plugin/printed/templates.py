"""Commands in the texts of the package, as its sources write them: what a run fills in stands as X."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.plugin.printed.typed_commands import find_commands

PACKAGE = Path(__file__).parents[3] / "pytest_attnperf"
HELP = frozenset({"DESCRIPTION", "EPILOG", "SUMMARY", "USAGE"})
"""Names of texts that are help: tests/test_docs_commands.py reads these."""

FILLED = "X"

MET = {
    "cli/commands/list.py: attnperf list X": "looked_over",
    "cli/commands/report.py: pytest --attnperf": "reported_without_results",
    "cli/commit_files.py: git add X && git commit -m X": "slower_by_a_commit",
    "cli/program.py: pytest --attnperf": "misnamed",
    'gate/comparable.py: attnperf baselines accept X --reason "WHY"': "crept",
    'gate/comparable.py: pytest --update-baselines --attnperf-accept="WHY" X': "crept",
    "gate/upkeep.py: pytest --update-baselines X": "checked_baselines",
    "reports/explain/code_words.py: attnperf occupancy --arch XX --threads X": "compiled_worse",
    'reports/explain/steps.py: attnperf baselines accept XXXX --reason "..."': "slower_than_local_in_a_dirty_tree",
    "reports/explain/steps.py: attnperf bisect X": "slower_by_a_commit",
    "reports/explain/steps.py: attnperf doctor": "moved",
    "reports/explain/steps.py: attnperf explain XX": "without_baseline",
    "reports/explain/steps.py: attnperf history X": "same_with_a_history",
    "reports/explain/steps.py: git diff": "slower_than_local_in_a_dirty_tree",
    "reports/run/terminal.py: attnperf explain XX": "slower_in_results_elsewhere",
    "reports/text/commands.py: pytest --attnperf X": "slower_by_a_commit",
    "session/accept/acceptable.py: pytest --update-baselines X": "accepted_grown",
    "session/accept/accepting.py: pytest --update-baselines X": "accepted_without_entry",
    "session/code_session.py: pytest --update-baselines --attnperf-arch=X X": "compiled_without_baseline",
    "session/not_the_code.py: pytest --update-baselines X": "stale",
    'session/rejudge/claims.py: pytest --attnperf "X"': "judged_again",
    "plugin/summary.py: pytest --update-baselines": "without_some_baselines",
    "reports/run/terminal.py: pytest --update-baselines X": "judged_again",
    "session/rejudge/timed_cases.py: pytest --update-baselines X": "judged_again",
    "session/settings.py: pytest --update-baselines XX": "without_baseline",
    "tools/history/history_store.py: attnperf history --history X --import .attnperf/results.json": (
        "shown_without_history"
    ),
}
"""Templates, and the situation in which each is printed and typed."""

EXCUSED = {
    "it calibrates a GPU": ("baselines/ceilings_store.py", "roofline/bound.py", "session/profiling.py"),
    "it needs a GPU": (
        "cli/report_modes",
        "measure/gpu_timer.py",
        "session/card_spread.py",
        "tools/dispatch/regions.py",
        "tools/doctor/process_noise.py",
        "tools/doctor/self_test.py",
        "tools/profilers/",
        "cli/profile_output.py",
        "reports/run/ladder_cases.py",
    ),
    "it needs torch, or its absence": (
        "cli/commands/init.py",
        "measure/gpu_timer.py",
        "tools/starter/files.py",
        "plugin/main.py",
    ),
    "it needs a conflict of a merge: tests/cli/commands/baselines/test_merge.py": (
        "cli/commands/baselines/merge.py",
        "records/unique_keys.py",
    ),
    "it needs recordings of two machines: tests/cli/commands/baselines/test_pool.py": (
        "cli/commands/baselines/pool.py",
        "session/accept/pooling.py",
    ),
    "it needs a slow merge commit: tests/cli/commands/test_bisect.py": ("cli/commands/bisect.py",),
    "it needs a remote to fetch from: tests/workers/test_revisions.py": ("workers/revisions.py",),
    "it needs an ill machine, or another plugin": ("tools/doctor/engine.py", "tools/doctor/packages.py"),
    "it needs a full disk or an old schema": ("tools/history/history_failures.py", "tools/history/store_schema.py"),
    "it needs a container's command: tests/workers/environments/test_installed.py": (
        "workers/environments/installed.py",
    ),
    "it needs a journal under version control": ("plugin/features/journal/journaling.py",),
    "it needs a file that --from-results names and that is missing": ("plugin/report_inputs.py",),
    "it needs a backend without a kernel of its own: tests/plugin/features/code_objects/test_executed_builds.py": (
        "cli/commands/kernel/run.py",
    ),
    "it needs a compiler that fails, or hangs": ("reports/explain/code_words.py", "reports/explain/by_proof.py"),
    "words about a command, nothing to type": (
        "cli/commands/completion.py",
        "cli/commands/doctor.py",
        "cli/commands/history.py",
        "cli/commands/profile.py",
        "cli/commands/tune.py",
        "cli/commands/worker.py",
        "cli/old_names.py",
        "plugin/fixtures.py",
        "reports/files/json_results.py",
        "tools/doctor/power.py",
    ),
}
"""Why what these files print beside `MET` is not typed by these tests."""


def list_templates() -> list[str]:
    """'<file>: <command>' of every text that is no docstring and no help, sorted. Samples of `testing` are left out."""
    files = (path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "testing")
    return sorted({f"{path.relative_to(PACKAGE)}: {found}" for path in files for found in _read_commands(path)})


def matches(template: str, command: str) -> bool:
    """Whether a printed command may come of a template."""
    wanted = re.escape(template.partition(": ")[2]).replace(FILLED, ".*")
    return re.match(wanted, command, re.DOTALL) is not None


def _read_commands(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_out = {id(part) for node in ast.walk(tree) for part in _list_left_out(node)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else FILLED for part in node.values)
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        yield from (command for group in find_commands(text) for command in group)


def _list_left_out(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that are no text of their own: docstrings, help, and pieces of a text that is filled in."""
    if isinstance(node, ast.Expr):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return [part for part in ast.walk(node) if part is not node]
    if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id in HELP for to in node.targets):
        return list(ast.walk(node.value))
    return []
