"""The base side of a comparison: turns `--attnperf-against` into a tree, interpreter or command for workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.base_spec import OPTION, BaseKind, BaseSpec, parse_spec
from pytest_attnperf.workers.command_plan import container_image
from pytest_attnperf.workers.counterparts import (
    config_file,
    find_missing_files,
    find_vanished_files,
    has_folder_of_suite,
    refuse_without_suite,
    relative_files,
)
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.revisions import USE_A_COPY, Repository
from pytest_attnperf.workers.trees import (
    Tree,
    build_folders,
    cache_folder,
    lock_folder,
    open_tree,
    remove_stale_locks,
    run_build,
    short_hash,
    toolchain_id,
)

SHORT_COMMIT = 8


@dataclass(frozen=True)
class BaseSide:
    """The base side of a comparison (the code to compare with), as its workers need it.

    kind           a revision, a directory, an interpreter or a command
    label          name in messages: 'origin/main (4f2c1abc)'
    root           folder that replaces the working tree's rootdir; None for a command
    python         interpreter; None for that of the working tree
    command        argv of a command that speaks the worker protocol; None for the other kinds
    environment    additional environment variables of its workers
    notes          notes for the results, a sentence each
    missing_files  test files, relative to the rootdir, that this side does not have: their cases exist only here
    empty          whether all test files are missing
    vanished       test files with cases that this side has and the working tree does not
    commit         full commit id, with '+dirty' if a directory differs from it; 'unknown' without git history
    moved          (folder of the working tree, its counterpart here); None if both sides are the same tree
    held           a lock to keep while workers run, so that no other run removes the tree
    """

    kind: BaseKind
    label: str
    root: Path | None = None
    python: str | None = None
    command: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    missing_files: tuple[str, ...] = ()
    empty: bool = False
    vanished: tuple[str, ...] = ()
    commit: str = "unknown"
    moved: tuple[Path, Path] | None = None
    held: object = field(default=None, repr=False, compare=False)


def resolve_base_side(text: str, plan: LaunchPlan, *, build: str = "", cache_root: Path | None = None) -> BaseSide:
    """Returns the base side (the tree to compare with) that `--attnperf-against=TEXT` names: a revision, which is
    checked out, a directory, an interpreter or a command.

    `plan` starts the working tree's workers. `build` is a shell command, run in the base side's root: for a revision
    once per (commit, command, toolchain), in a separate tree; for a directory at every call, because a check for
    changed files would be slow; never in the working tree itself. `cache_root` replaces $XDG_CACHE_HOME.

    Raises UsageError if TEXT is none of these, the tree does not have this project, or the build fails.
    """
    spec = parse_spec(text, Path.cwd())
    if spec.kind is BaseKind.COMMAND:
        notes = _note_not_built(build, "the command brings a built tree")
        return BaseSide(spec.kind, _command_label(spec), command=spec.argv, notes=notes)
    if spec.kind is BaseKind.PYTHON:
        return _interpreter_side(spec, plan, build)
    cache = cache_folder(cache_root, os.environ)
    if spec.kind is BaseKind.DIR:
        return _directory_side(spec, plan, build, cache)
    return _revision_side(spec, plan, build, cache)


def base_plan(plan: LaunchPlan, side: BaseSide) -> LaunchPlan:
    """Returns the plan that starts the base side's workers: the working tree's `plan` with the tree, interpreter and
    environment of `side`. Raises ValueError if `side` is a command, which needs a CommandPlan."""
    if side.root is None:
        raise ValueError(f"base side {side.label}: a command starts its workers itself; use CommandPlan")
    moved = replace(
        plan,
        python=side.python or plan.python,
        moved=side.moved,
        extra_environment={**plan.extra_environment, **side.environment},
    )
    if side.root == plan.rootdir:
        return moved
    missing = set(side.missing_files)
    return replace(
        moved,
        rootdir=side.root,
        files=tuple(str(side.root / name) for name in relative_files(plan) if name not in missing),
        config_file=config_file(plan, side.root),
    )


def _command_label(spec: BaseSpec) -> str:
    """Returns a command's label for messages: 'image IMAGE (docker)' if it starts a container, else 'command TEXT'."""
    image = container_image(spec.argv)
    return f"image {image} ({Path(spec.argv[0]).name})" if image else f"command {spec.text}"


def _interpreter_side(spec: BaseSpec, plan: LaunchPlan, build: str) -> BaseSide:
    assert spec.path is not None
    # The build folder is only for this run: the interpreter's torch version is unknown without running it.
    folders = build_folders(_run_folder(plan, spec), own_aiter="AITER_JIT_DIR" in os.environ)
    path = os.pathsep.join([str(spec.path.parent), os.environ.get("PATH", os.defpath)])
    return BaseSide(
        spec.kind,
        f"{spec.text} (the same tree, another interpreter)",
        root=plan.rootdir,
        python=str(spec.path),
        environment={**folders, "PATH": path},
        notes=_note_not_built(build, "an interpreter runs the working tree itself"),
        commit=_state_of(plan.rootdir),
    )


def _directory_side(spec: BaseSpec, plan: LaunchPlan, build: str, cache: Path) -> BaseSide:
    assert spec.path is not None
    root, commit = spec.path, _state_of(spec.path)
    same = root == plan.rootdir.resolve()
    missing = find_missing_files(plan, root)
    hint, empty = _subfolder_hint(spec, plan), len(missing) == len(plan.files)
    if empty and (hint.startswith("; use") or not has_folder_of_suite(plan, root)):
        refuse_without_suite(missing, f"the directory {root}", hint)
    side = BaseSide(
        spec.kind,
        f"{spec.text} ({'the working tree itself: same-code control' if same else _shorten_commit(commit)})",
        root=plan.rootdir if same else root,
        environment=build_folders(_run_folder(plan, spec), own_aiter=_has_aiter(root)),
        notes=_note_also_revision(spec, plan)
        if not same
        else _note_not_built(build, "the directory is the working tree"),
        missing_files=missing,
        empty=empty,
        vanished=() if same else find_vanished_files(plan, root),
        commit=commit,
        moved=None if same else (plan.rootdir.resolve(), root),
    )
    if build and not same:
        with lock_folder(cache / "directories" / short_hash(str(root))):
            _build_side(build, plan, side, plan.scratch / "base-build.log")
    return side


def require_side(text: str, rootdir: Path) -> None:
    """Raises UsageError if `--attnperf-against=TEXT` names no base side of the project in `rootdir`. Checks nothing out
    and starts nothing."""
    spec = parse_spec(text, Path.cwd())
    if spec.kind is BaseKind.REV:
        _find_commit(spec, rootdir)


def _find_commit(spec: BaseSpec, rootdir: Path) -> tuple[Repository, str]:
    """Returns the repository around `rootdir` and the full id of the revision. Raises UsageError without either."""
    repository = Repository.find_around(rootdir)
    if repository is None:
        raise _nothing_fits(spec, f"{rootdir} is not in a git repository; {USE_A_COPY}")
    try:
        return repository, repository.commit_of(spec.text)
    except UsageError as error:
        raise _nothing_fits(spec, str(error)) from None


def _revision_side(spec: BaseSpec, plan: LaunchPlan, build: str, cache: Path) -> BaseSide:
    repository, commit = _find_commit(spec, plan.rootdir)
    toolchain = toolchain_id(plan.python)
    variant = short_hash(build, toolchain) if build else ""
    with open_tree(repository, commit, cache, variant=variant) as tree:
        side = _side_in(tree, spec, plan, repository, commit, tree.folder / "builds" / toolchain)
        if build and not tree.whole:
            _build_side(build, plan, side, tree.folder / "build.log")
            tree.mark_whole()
    return side


def _side_in(
    tree: Tree, spec: BaseSpec, plan: LaunchPlan, repository: Repository, commit: str, builds: Path
) -> BaseSide:
    label = f"{spec.text} ({_shorten_commit(commit)})"
    part = plan.rootdir.resolve().relative_to(repository.top)
    root = tree.top / part
    if not root.is_dir():
        raise UsageError(
            f"{OPTION}={spec.text}: {label} has no folder {part}, where the suite's rootdir is; name a revision "
            "with that folder"
        )
    if tree.alone:
        remove_stale_locks(builds)
    missing = find_missing_files(plan, root)
    return BaseSide(
        spec.kind,
        label,
        root=root,
        environment=build_folders(builds, own_aiter=_has_aiter(root)),
        notes=tree.notes,
        missing_files=missing,
        empty=len(missing) == len(plan.files),
        vanished=find_vanished_files(plan, root),
        commit=commit,
        moved=(repository.top, tree.top),
        held=tree.held,
    )


def _build_side(command: str, plan: LaunchPlan, side: BaseSide, log: Path) -> None:
    """Runs the build command by the shell in the root of `side`, with its workers' environment and its output in `log`.
    Raises UsageError if it fails."""
    assert side.root is not None
    base = base_plan(plan, side)
    base.link_harness()
    environment = base.make_environment(os.environ, "base-build", None)
    run_build(command, label=side.label, folder=side.root, python=base.python, environment=environment, log=log)


def _nothing_fits(spec: BaseSpec, reason: str) -> UsageError:
    if not spec.tried:
        return UsageError(f"{OPTION}={spec.text}: {reason}")
    tried = "; ".join((*spec.tried, f"no revision: {reason}"))
    return UsageError(f"{OPTION}={spec.text} is neither a directory, an interpreter, a command nor a revision: {tried}")


def _run_folder(plan: LaunchPlan, spec: BaseSpec) -> Path:
    return plan.scratch / f"base-{short_hash(str(spec.path))}"


def _has_aiter(root: Path) -> bool:
    return (root / "aiter" / "jit").is_dir()


def _note_not_built(build: str, reason: str) -> tuple[str, ...]:
    return (f"the build command was not run: {reason}",) if build else ()


def _state_of(folder: Path) -> str:
    try:
        repository = Repository.find_around(folder)
        return (repository.state_of(folder) if repository else "") or "unknown"
    except UsageError:
        return "unknown"


def _shorten_commit(commit: str) -> str:
    name, plus, rest = commit.partition("+")
    return f"{name[:SHORT_COMMIT]}{plus}{rest}" if name != "unknown" else "no git history"


def _note_also_revision(spec: BaseSpec, plan: LaunchPlan) -> tuple[str, ...]:
    repository = Repository.find_around(plan.rootdir)
    try:
        known = repository is not None and repository.has_commit(spec.text)
    except UsageError:
        return ()
    if not known:
        return ()
    return (f"{spec.text!r} is taken as the directory; to use the revision of this name: {OPTION}=rev:{spec.text}",)


def _subfolder_hint(spec: BaseSpec, plan: LaunchPlan) -> str:
    """Returns the end of the error for a directory without the suite: what to type instead. If a folder below it has
    the suite's files, it names that folder."""
    repository = Repository.find_around(plan.rootdir)
    hint = f"; name the counterpart of {plan.rootdir}, or use rev:{spec.text} for a revision of that name"
    if repository is None or spec.path is None:
        return hint
    part = plan.rootdir.resolve().relative_to(repository.top)
    if part != Path() and any((spec.path / part / name).is_file() for name in relative_files(plan)):
        return f"; use {OPTION}={Path(spec.text) / part}"
    return hint
