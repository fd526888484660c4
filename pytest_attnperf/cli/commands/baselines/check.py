"""`attnperf baselines check`: compares every stored entry with the cases of this tree, without measuring."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.option_groups import add_tests
from pytest_attnperf.cli.output import count_columns
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.gate.upkeep import Due
    from pytest_attnperf.plugin.own_pytest import Cases
    from pytest_attnperf.records import DeviceInfo

ORDER = 1
SUMMARY = "compare every stored entry with this tree, without measuring"
DESCRIPTION = "Compares every stored baseline entry with the cases of this tree. Needs no GPU, and measures nothing."

BASELINES = Path("baselines")
TIERS = ("pr", "nightly")
REMOVABLE = ("orphaned", "stale")
WIDTH = 100
"""Columns if no terminal tells its width."""

EPILOG = """stale     workload, policy or method is not what was recorded: record it again (or --remove-stale)
orphaned  no case has this key, or the case is not timed any more; --remove-orphaned removes it
missing   runs of the tier time the case on this product, but no time is stored

A backend whose library is not installed here counts as unsupported: its cases are not missing. Machine code is not
compared: another compiler version makes different code from the same kernel.

examples:
  attnperf baselines check
  attnperf baselines check --on sm_90/h200 --tests suites/test_prefill.py
  attnperf baselines check --tier nightly
  attnperf baselines check --remove-orphaned && git diff baselines/

exit status: 0 every entry fits and no case is without one, 1 something is stale, orphaned or missing, 2 the command,
the project or a file is invalid
"""


@dataclass(frozen=True)
class Product:
    """A product whose entries are compared."""

    arch: str
    name: str


@dataclass(frozen=True)
class ComparedProduct:
    """The number of a product's entries, of those `untraced` (no commit has the code that they timed), and what is
    stale, orphaned or missing."""

    entries: int
    untraced: int
    due: Sequence[Due]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf baselines check` to its parser."""
    parser.add_argument("--on", default="", metavar="ARCH/PRODUCT", help="compare this product only (default: all)")
    parser.add_argument(
        "--baselines", type=Path, default=BASELINES, metavar="DIR", help=f"stored baselines (default: {BASELINES})"
    )
    add_tests(parser)
    parser.add_argument(
        "--tier", choices=TIERS, default=TIERS[0], help="cases that need an entry: of pull requests (default), or all"
    )
    for state in REMOVABLE:
        parser.add_argument(f"--remove-{state}", action="store_true", help=f"remove {state} entries from their files")


def run(options: argparse.Namespace) -> int:
    """Compares baseline entries with the working tree's cases, prints the outdated, orphaned and missing ones, and
    removes entries by option. Returns 1 if any is left to fix, else 0. Raises UsageError for invalid options, and
    BaselineError for an invalid baseline file."""
    from pytest_attnperf.plugin.own_pytest import collect_cases

    removed = [state for state in REMOVABLE if getattr(options, f"remove_{state}")]
    if removed and options.tests:
        raise UsageError(
            f"--remove-{removed[0]} with --tests: other files may have cases of the same suite, whose entries would be "
            "lost; drop --tests"
        )
    products = _list_products(options.baselines, options.on)
    work = partial(_print_all_due, options, products)
    return collect_cases(work, options.tests, whole=bool(removed))


def _list_products(root: Path, on: str) -> list[Product]:
    """Returns the GPU models with baselines under `root`, or only `on` (ARCH/PRODUCT). Raises UsageError if none."""
    found = [Product(path.parent.name, path.name) for path in sorted(root.glob("*/*")) if any(path.glob("*.json"))]
    chosen = [one for one in found if on in ("", f"{one.arch}/{one.name}")]
    if chosen:
        return chosen
    there = ", ".join(f"{one.arch}/{one.name}" for one in found)
    if not there:
        raise UsageError(f"{root} holds no baseline of any product; record one with pytest --update-baselines")
    raise UsageError(f"{root} holds no entries of {on}; there are: {there}")


def _print_all_due(options: argparse.Namespace, products: Sequence[Product], cases: Cases) -> int:
    """Compares and prints each product's outdated, orphaned and missing entries. Returns 1 if there are any, else 0."""
    due = 0
    for product in products:
        compared = _compare_entries(options, product, cases)
        due += len(compared.due)
        _print_product(product, compared)
    return int(bool(due))


def _compare_entries(options: argparse.Namespace, product: Product, cases: Cases) -> ComparedProduct:
    """Compares a product's baseline entries with the cases. First deletes from the files what a --remove option names;
    that is not counted."""
    from pytest_attnperf.baselines.store import BaselineStore, StoredEntry
    from pytest_attnperf.baselines.writing import remove_entries
    from pytest_attnperf.gate.upkeep import compare_with_tree
    from pytest_attnperf.workers.tree_state import DIRTY

    store = BaselineStore(options.baselines)
    of_tree = cases(_make_device(product))
    suites = {case.key.suite for case in of_tree}
    if not options.tests:
        suites |= set(store.list_suites(product.arch, product.name))
    kept: list[StoredEntry] = []
    due: list[Due] = []
    for suite in sorted(suites):
        stored = store.load(product.arch, product.name, suite)
        found = compare_with_tree(suite, stored, [case for case in of_tree if case.key.suite == suite], options.tier)
        gone = [one for one in found if getattr(options, f"remove_{one.state.value}", False)]
        removed = {one.key.entry for one in gone}
        if removed:
            path = remove_entries(store, options.baselines, product.arch, product.name, suite, sorted(removed))
            sys.stderr.write(f"{len(removed)} entries removed from {path}\n")
        kept += [one for entry, one in stored.items() if entry not in removed]
        due += [one for one in found if one not in gone]
    return ComparedProduct(len(kept), sum(one.entry.commit.endswith(DIRTY) for one in kept), due)


def _make_device(product: Product) -> DeviceInfo:
    """Returns a device record of this product, to ask backends what they support; it has no figures of a real GPU."""
    from pytest_attnperf.records import DeviceInfo

    kind = "cuda" if product.arch.startswith("sm_") else "rocm" if product.arch.startswith("gfx") else "cpu"
    return DeviceInfo(kind, product.arch, product.name, product.name)


def _print_product(product: Product, compared: ComparedProduct) -> None:
    from pytest_attnperf.reports.text.text_width import wrap_text

    counts = Counter(one.state.value for one in compared.due)
    said = ", ".join(f"{counts[state]} {state}" for state in sorted(counts)) or "nothing is due"
    untraced = f" ({compared.untraced} of code that no commit has)" if compared.untraced else ""
    sys.stdout.write(f"{product.arch}/{product.name}: {compared.entries} entries{untraced}; {said}\n")
    for one in compared.due:
        text = f"{one.state.value:<9} {one.key}: {'; '.join(one.reasons)}"
        sys.stdout.writelines(f"{line}\n" for line in wrap_text(text, count_columns(WIDTH), " " * 10))
        if one.command:
            sys.stdout.write(f"          {one.command}\n")
