"""`attnperf kernel build`: compiles the registered HIP kernels to object files, for machines that must not compile."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.option_groups import add_tests
from pytest_attnperf.codeobject.building import build_object
from pytest_attnperf.codeobject.built import Built, object_bytes, source_hashes
from pytest_attnperf.codeobject.object_manifest import PrebuiltObject, read_manifest, write_manifest
from pytest_attnperf.errors import CodeObjectError, ToolMissingError, UsageError
from pytest_attnperf.kernel_builds import ALL_ARCHS, HipSource, KernelBuild
from pytest_attnperf.records.atomic_file import write_atomically

if TYPE_CHECKING:
    from pytest_attnperf.plugin.own_pytest import Registered

ORDER = 2
SUMMARY = "compile the registered HIP kernels into a folder of objects"
DESCRIPTION = "Compiles every registered HIP kernel for AMD GPUs into a folder of objects. Needs no GPU."

OUT = "build/kernels"
EPILOG = f"""With ATTNPERF_HIP_OBJECTS=DIR, kernels are loaded from that folder; kernels/hip/BUILD.md says more.

exit status: 0 all are written, 1 some do not compile, 2 the command is invalid, or there is no compiler

examples:
  attnperf kernel build --arch gfx942
  attnperf kernel build --arch gfx942,gfx950 --kernel hip.flash --out {OUT}
"""


@dataclass(frozen=True)
class BuildOutcome:
    """The result of one build: the compiled kernel, or an error."""

    declared: KernelBuild
    built: Built | None = None
    error: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf kernel build` to its parser."""
    parser.add_argument("--arch", default="gfx942", metavar="ARCH,...", help="targets, or 'all' (default: gfx942)")
    parser.add_argument("--kernel", action="append", metavar="NAME", help="compile this kernel only; may be repeated")
    parser.add_argument(
        "--out", type=Path, default=Path(OUT), metavar="DIR", help=f"folder of the objects (default: {OUT})"
    )
    add_tests(parser)


def run(options: argparse.Namespace) -> int:
    """Builds the project's HIP kernels and writes their objects. Returns 1 if one failed, else 0. Raises UsageError for
    unknown names, ToolMissingError without a compiler."""
    from pytest_attnperf.plugin.own_pytest import visit_project

    return visit_project(lambda registered: build_all(registered, options), options.tests)


def build_all(registered: Registered, options: argparse.Namespace) -> int:
    """Builds the chosen kernels of a project, and writes objects and manifests. Returns 1 if a kernel failed, else 0.
    Raises UsageError if there is nothing to build."""
    from pytest_attnperf.plugin.worker_session import COMPILED_CACHE

    archs = _parse_archs(options.arch)
    declared = [
        one for one in registered.kernels.list_builds(archs, options.kernel) if isinstance(one.source, HipSource)
    ]
    if not declared:
        raise UsageError(_reason_nothing_to_build(registered, archs, options.kernel))
    made = _build_each(declared, registered.config.rootpath / COMPILED_CACHE)
    failed = [one for one in made if one.built is None]
    for arch in archs:
        done = [one for one in made if one.declared.arch == arch]
        if done:
            _write_objects(options.out / arch, arch, done, keeps_others=options.kernel is not None)
    for one in failed:
        sys.stderr.write(f"{one.error}\n")
    sys.stdout.write(f"{len(made) - len(failed)} objects in {options.out}, {len(failed)} failed\n")
    return 1 if failed else 0


def _parse_archs(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError(f"--arch={text!r} names no architecture; give one such as gfx942, several, or 'all'")
    return tuple(dict.fromkeys(arch for name in names for arch in (ALL_ARCHS if name == "all" else (name,))))


def _reason_nothing_to_build(registered: Registered, archs: Sequence[str], names: Sequence[str] | None) -> str:
    """Returns an error text: why no chosen kernel can be built for `archs`, and which kernels have a HIP source."""
    chosen = [registered.kernels.get(name) for name in names] if names else list(registered.kernels)
    reasons = [f"{one.name}: {why}" for one in chosen for arch in archs for why in one.unsupported_reasons(arch)]
    kernels = (
        one.name
        for one in registered.kernels
        if any(isinstance(build.source, HipSource) for arch in ALL_ARCHS for build in one.builds(arch))
    )
    asked = f"{', '.join(names)} " if names else "no registered kernel "
    return (
        f"{asked}has no HIP source to build for {', '.join(archs)}"
        f"{' (' + '; '.join(reasons) + ')' if reasons and names else ''}; "
        f"kernels with one: {', '.join(kernels) or 'none'}"
    )


def _build_each(declared: Sequence[KernelBuild], cache: Path) -> list[BuildOutcome]:
    """Builds all kernels, as many at once as there are CPU cores, and returns an outcome for each, in order. Raises
    ToolMissingError without a compiler."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda one: _build_one(one, cache), declared))


def _build_one(declared: KernelBuild, cache: Path) -> BuildOutcome:
    try:
        return BuildOutcome(declared, build_object(declared, cache))
    except ToolMissingError:
        raise
    except CodeObjectError as error:
        return BuildOutcome(declared, error=str(error))


def _write_objects(folder: Path, arch: str, made: Iterable[BuildOutcome], *, keeps_others: bool) -> None:
    """Writes the objects of successful builds into `folder`, then its manifest, and prints a line per object.
    `keeps_others` keeps manifest entries of kernels that were not built now."""
    entries = {}
    if keeps_others:
        entries = {(one.kernel, one.config): one for one in read_manifest(folder, arch)}
    for one in made:
        entries.pop((one.declared.kernel, one.declared.config), None)
        if one.built is None:
            continue
        entry, data = make_manifest_entry(one.declared, one.built)
        write_atomically(folder / entry.file, data)
        entries[entry.kernel, entry.config] = entry
        sys.stdout.write(f"{folder / entry.file}: {len(data):,} bytes, {entry.compiler}\n")
    write_manifest(folder, arch, entries.values())


def make_manifest_entry(declared: KernelBuild, built: Built) -> tuple[PrebuiltObject, bytes]:
    """Returns the manifest's entry for a built kernel (hash, sources, launch, ...), and the bytes of its object."""
    source = declared.source
    assert isinstance(source, HipSource)
    data = object_bytes(built)
    (name,) = source_hashes([source.path], Path(built.source_root))
    entry = PrebuiltObject(
        file=f"{declared.kernel}-{declared.config}.co",
        sha256=hashlib.sha256(data).hexdigest(),
        kernel=declared.kernel,
        config=declared.config,
        function=source.kernel,
        source=name,
        sources=built.sources,
        defines=dict(source.defines),
        threads=source.threads,
        dynamic_lds_bytes=source.dynamic_lds_bytes,
        compiler=built.compiler,
    )
    return entry, data
