"""`attnperf tune --audit`: its options, the device it looks up, and the cases it collects."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_attnperf.cli.option_groups import DependentOptions
from pytest_attnperf.cli.output import count_columns
from pytest_attnperf.environment.device_specs import all_specs
from pytest_attnperf.environment.software import named_fields
from pytest_attnperf.environment.system import System
from pytest_attnperf.errors import UsageError, WorkloadError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.reports.text.wide_tables import WIDTH

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.plugin.own_pytest import Project
    from pytest_attnperf.tools.tuner.audit import Audit
    from pytest_attnperf.workloads.base import Workload
    from pytest_attnperf.workloads.families import Families, Family

    Pair = tuple[Backend[Any], Workload]

SOFTWARE = ("triton", "aiter")
UNUSED = (
    *("out", "budget", "strategy", "trials", "processes", "pairs", "min_gain", "kernel", "when", "default", "static"),
    *("static_files", "gpus", "seed", "jobs", "device", "html", "open"),
)
"""Destinations of the options of a search, which an audit refuses."""


def add_audit(parser: argparse.ArgumentParser) -> None:
    """Adds --audit and the options that need it."""
    parser.add_argument(
        "--audit",
        action="store_true",
        help="search nothing: show which workloads the configuration files of BACKEND (default: all) are for",
    )
    group = DependentOptions(parser, "--audit", lambda options: options.audit)
    group.add("--arch", default="", metavar="ARCH[/PRODUCT]", help="look up this device (default: the GPU here)")
    group.add("--model", default="", metavar="FILE[,...]", help="audit a model's config.json, as --attnperf-model")
    group.add("--json", default=False, action="store_true", help="print JSON")
    parser.set_defaults(dependent=[group], default_of=parser.get_default)


def run_audit(options: argparse.Namespace) -> int:
    """Prints the audit. Returns 1 for gaps or STALE entries, else 0. Raises UsageError for options of a search, an
    unknown device, and files that are invalid."""
    for name in UNUSED:
        if getattr(options, name, None) != options.default_of(name):
            raise UsageError(f"--{name.replace('_', '-')} is of no use with --audit, which searches nothing; drop it")
    if options.model and options.workload:
        raise UsageError("--model and --workload both say what to audit; drop one")
    from pytest_attnperf.plugin.own_pytest import collect_all

    given = [f"--attnperf-model={options.model}"] if options.model else []
    return collect_all(lambda project: _print_audit(_audit_project(project, options), options), options.tests, *given)


def find_device(text: str, here: DeviceInfo | None) -> DeviceInfo:
    """Returns the device named ARCH or ARCH/PRODUCT, of an ARCH the product with most compute units;
    `here` for an empty text. Raises UsageError, with what is known, for any other."""
    if not text:
        if here is None or here.kind == "cpu" or not here.compute_units:
            raise UsageError("no GPU is known here; name the device to look up: --arch gfx942, or --arch gfx942/mi308x")
        return here
    arch, _, product = text.partition("/")
    fitting = [spec for spec in all_specs() if spec.arch == arch and product in ("", *spec.products)]
    if fitting:
        spec = max(fitting, key=lambda one: one.compute_units)
        kind = "rocm" if arch.startswith("gfx") else "cuda"
        return DeviceInfo(kind, arch, product or spec.products[0], spec.name, spec.compute_units)
    known = sorted({f"{spec.arch}/{name}" for spec in all_specs() for name in spec.products})
    raise UsageError(f"--arch {text!r} is not known; known are {', '.join(known)}")


def _audit_project(project: Project, options: argparse.Namespace) -> Audit:
    from pytest_attnperf.plugin.selection import find_backend
    from pytest_attnperf.tools.tuner.audit import audit_pairs

    device = find_device(options.arch, project.device if project.on_gpu else None)
    wanted = find_backend(options.backend, project.backends, project.families) if options.backend else None
    family = project.families.get(options.family).name if options.family else ""
    pairs = [
        (case.backend, case.workload)
        for case in project.cases
        if case.backend is not None
        and case.workload is not None
        and (wanted is None or case.backend.name == wanted.name)
        and family in ("", case.workload.family)
    ]
    if options.workload:
        pairs = _pair_given(pairs, options.workload, project.families)
    if not pairs:
        raise UsageError("no collected case has this backend and family; name other tests by --tests PATH")
    software = named_fields("cpu", System())
    audit = audit_pairs(pairs, device, {name: software[name] for name in SOFTWARE})
    if not audit.rows:
        why = next(iter(audit.unaudited.values()), f"{audit.unsupported} pairs are not supported on {device.arch}")
        raise UsageError(f"nothing can be audited: {why}")
    return audit


def _pair_given(pairs: Sequence[Pair], texts: Sequence[str], families: Families) -> list[Pair]:
    """Returns the workloads of `texts` (lines, ids, files) with every backend of `pairs` that has their family. Raises
    WorkloadError for a text that is a workload of none of these families."""
    first = {(one.name, work.family): one for one, work in pairs}
    read: dict[str, list[Workload]] = {name: [] for _, name in first}
    for text in texts:
        refused = [error for name, found in read.items() if (error := _read_into(found, text, families.get(name)))]
        if len(refused) == len(read):
            raise refused[0]
    return [(one, work) for (_, name), one in first.items() for work in read[name]]


def _read_into(found: list[Workload], text: str, family: Family) -> WorkloadError | None:
    """Appends the workloads that `text` has of this family; returns the error if it is none."""
    from pytest_attnperf.workloads.families import workloads_from_text

    try:
        found += workloads_from_text(text, family)
    except WorkloadError as error:
        return error
    return None


def _print_audit(audit: Audit, options: argparse.Namespace) -> int:
    from pytest_attnperf.tools.tuner.audit_text import audit_json, render_audit

    text = audit_json(audit) if options.json else render_audit(audit, count_columns(unknown=WIDTH))
    sys.stdout.write(f"{text}\n")
    return 0 if audit.is_clean else 1
