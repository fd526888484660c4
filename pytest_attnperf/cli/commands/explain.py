"""`attnperf explain`: says why a case has its verdict, in words and figures, from stored results."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.option_groups import HISTORY, HISTORY_VARIABLE
from pytest_attnperf.cli.output import choose_ink, count_columns
from pytest_attnperf.errors import AttnperfError, UsageError

if TYPE_CHECKING:
    from pytest_attnperf.gate.effort import Aim, UnitCost
    from pytest_attnperf.gate.recount import Recount
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.reports.explain.facts import DecisionOption, Facts, Stored, Told, TypingPlace
    from pytest_attnperf.results import CaseResult, RunResult

GROUP = "every day"
ORDER = 40
SUMMARY = "explain a verdict: each figure, and what would decide it"
DESCRIPTION = "Explains one verdict from stored results: plain words first, figures below."

RESULTS = Path(".attnperf/results.json")
BASELINES = Path("baselines")
COMMON_BASES = ("origin/main", "origin/master")
WIDTH = 80
"""Columns if no terminal tells its width."""

WIDTH_LEAST = 40
SECOND_LOOK = 3
BASELINE_PROCESSES = 7
"""Processes of the baseline that is suggested for a case without known noise."""

EPILOG = """WHAT is a node id, a case's key (prefill/triton.flash/prefill-b4-...), a compiled kernel's key, or a part of
these that only one has. Without it, the worst case of the run is explained. Nothing is measured: all figures come from
the results file. Figures that do not follow from its samples are reported. The baseline entry that the case was
compared with is read too, if its folder exists.

examples:
  attnperf explain                                             the worst case of the last run
  attnperf explain triton.flash/prefill-b4-s512                one case, by a part of its key
  attnperf explain "suites/test_prefill.py::test_prefill[triton.flash-prefill-b4-s512-h8-d256-f16-causal]"
  attnperf explain prefill-b4-s512 --results build/results.json --json

exit status: 0 explained, 1 explained, and the case failed its test, 2 the command or the file is invalid, or WHAT
matches no case or several
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf explain` to its parser."""
    parser.add_argument(
        "what", nargs="?", default="", metavar="WHAT", help="node id, key, or a part; default: the worst"
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="FILE", help=f"results file (default: {RESULTS})"
    )
    parser.add_argument("--baselines", type=Path, metavar="DIR", help=f"folder (default: {BASELINES}, if it exists)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="when to use colours")


def run(options: argparse.Namespace) -> int:
    """Prints why a case has its verdict. Returns 1 if the case fails, else 0. Raises UsageError if no case or several
    match, ResultsFileError for an unreadable file."""
    from pytest_attnperf.records.code import CodeResult
    from pytest_attnperf.reports.files.one_case import find_single_result, read_index
    from pytest_attnperf.reports.text.figures import printable_json

    index = read_index(_read_content(options.results), str(options.results))
    entry = index.find(options.what) if options.what else index.choose_worst()
    found = index.run_with(entry)
    held = find_single_result(found)
    if isinstance(held, CodeResult):
        text, values = _explain_code(held, found, options)
    else:
        text, values = _explain_case(
            recount_case(held, found, options.results, index.timed_count, options.baselines), options
        )
    if options.json:
        sys.stdout.write(f"{printable_json(json.dumps(values, indent=1))}\n")
    else:
        alone = bool(options.what) or len(index.entries) == 1
        first = "" if alone else f"the worst of {len(index.entries)} cases; to explain another, name it\n\n"
        sys.stdout.write(f"{first}{text}\n")
    return 1 if held.fails else 0


def recount_case(case: CaseResult, found: RunResult, source: Path, cases: int, baselines: Path | None) -> Told:
    """Returns the case with all that `attnperf explain` prints: figures recomputed from its samples, contradictions,
    stored entry, ways to decide it. `cases` is the number of cases that share the run's false-alarm rate."""
    from pytest_attnperf.gate.recount import recount_figures
    from pytest_attnperf.reports.explain.facts import Facts, Told

    again = recount_figures(case, cases)
    facts = Facts(
        source=str(source),
        cases=cases,
        tolerated=again.tolerated,
        relative_sd=again.relative_sd,
        z=again.z,
        share=again.share,
        contradicted=(*again.contradicted, *_list_contradictions(case, found.device)),
        stored=_find_stored(case, found, again, baselines),
    )
    told = Told(case, found, facts)
    told = replace(told, facts=replace(facts, here=look_around(told, baselines)))
    return replace(told, facts=_add_options(told, again))


def look_around(told: Told, folder: Path | None) -> TypingPlace:
    """Returns what the current folder has, on which it depends which commands can be typed: revisions, uncommitted
    changes, a history, an author. `folder` is that of the baselines, as typed; None if it was not."""
    from pytest_attnperf.reports.explain import steps
    from pytest_attnperf.reports.explain.facts import TypingPlace
    from pytest_attnperf.workers.revisions import Repository, read_user_name
    from pytest_attnperf.workers.source_tree import Revisions, top_folders

    named = steps.choose_baselines(told.case) if folder is None else str(folder)
    history = bool(os.environ.get(HISTORY_VARIABLE)) or Path(HISTORY).is_file()
    plain = TypingPlace(baselines=named, history=history, author=bool(read_user_name()))
    try:
        repository = Repository.find_around(Path.cwd())
        state = "" if repository is None else repository.state_of(Path.cwd())
        if repository is None or not state:
            return plain
        dirty = state.endswith("+dirty")
        test_file = Path(told.case.nodeid.partition("::")[0])
        base = repository.choose_with_file((*steps.list_bases(told), *COMMON_BASES), test_file)
        base = "HEAD" if dirty and repository.is_same(base, "HEAD") else base
        good, bad = (steps.parse_commit(text) for text in (told.case.stored_commit, told.run.commit))
        same, stored = repository.is_same(good, bad), told.facts.stored
        known = Revisions(repository, Path.cwd(), good)
        untraced = bool(good) and not known.has_sources(
            told.case.stored_commit, top_folders(told.case.sources), stored.source_id if stored else ""
        )
        good, bad = (good, bad) if not untraced and repository.has_between(good, bad) else ("", "")
        return replace(plain, base=base, good=good, bad=bad, dirty=dirty, same_commit=same, untraced=untraced)
    except UsageError:  # git is missing, or the repository is damaged
        return plain


def _list_contradictions(case: CaseResult, device: DeviceInfo | None) -> list[str]:
    """Returns where samples and checks contradict the stated verdict, in words; empty where they do not."""
    from pytest_attnperf.gate.recount import BY_TIME, IMPOSSIBLE
    from pytest_attnperf.session.consistent import find_contradictions, list_proof_gaps

    try:
        found = [] if device is None or not case.first else find_contradictions(case, device)
        if case.verdict in BY_TIME and (case.first or case.pairs):
            found += [f"it is said to be right: {text}" for text in list_proof_gaps(case.checks, None)]
    except IMPOSSIBLE as error:
        found = [f"its samples cannot be evaluated: {error}"]
    return found


def _add_options(told: Told, again: Recount) -> Facts:
    """Returns the facts with the ways to decide an UNDECIDED case (more processes or pairs, their cost and commands);
    unchanged for another verdict."""
    from pytest_attnperf.gate.effort import unit_cost
    from pytest_attnperf.records import Verdict
    from pytest_attnperf.records.notes import NoteKind, filter_notes
    from pytest_attnperf.reports.text.figures import format_change

    case, facts = told.case, told.facts
    if case.verdict is not Verdict.UNDECIDED or not told.case.nodeid:
        return facts
    cost = unit_cost(case)
    known = again.ratio is not None and again.z is not None and again.relative_sd is not None
    if filter_notes(case.reasons, NoteKind.BUDGET) or not known or again.ratio is None or again.ratio <= 1:
        return replace(facts, options=tuple(_plain_options(told, cost)))
    options, undecidable = _more_pairs(told, again, cost) if case.pairs else _more_processes(told, again, cost)
    counted = (
        f"Computed for a change that stays at {format_change(again.ratio)} with this run's noise and false-alarm rate. "
        "The next look has its own noise: it detects a true change of exactly this size half of the time."
    )
    return replace(facts, options=tuple(options), undecidable=undecidable, counted=counted)


def _plain_options(told: Told, cost: UnitCost) -> list[DecisionOption]:
    """Returns ways to decide a case where the processes that it needs cannot be computed: first, if time ran out,
    measure it alone, else a new baseline; second, pairs with the base side."""
    from pytest_attnperf.records.notes import NoteKind, filter_notes
    from pytest_attnperf.reports.explain import steps
    from pytest_attnperf.reports.explain.facts import DecisionOption

    case = told.case
    pairs = f"{steps.PAIRS} pairs against {steps.name_base(told)}"
    by_pairs = DecisionOption(
        pairs, _estimate_seconds(cost.pair_s, steps.PAIRS, cost.process_s), steps.format_pairs_command(told)
    )
    if filter_notes(case.reasons, NoteKind.BUDGET):
        what = f"both looks of the case alone, {1 + SECOND_LOOK} processes"
        alone = DecisionOption(
            what, _estimate_seconds(cost.process_s, 1 + SECOND_LOOK), (steps.format_pytest_command(case),)
        )
        return [alone, by_pairs]
    what = f"a baseline of {BASELINE_PROCESSES} processes, recorded at the base revision, whose spread is the noise"
    record = steps.format_recording_command(case)
    return [DecisionOption(what, _estimate_seconds(cost.process_s, BASELINE_PROCESSES), (record,)), by_pairs]


def _more_pairs(told: Told, again: Recount, cost: UnitCost) -> tuple[list[DecisionOption], str]:
    """Returns ([option with enough pairs], '') for a case that pairs left open, or ([], why no number does)."""
    from pytest_attnperf.gate.effort import PAIRS_MAX, pairs_needed
    from pytest_attnperf.gate.interleaved import ASYMMETRY
    from pytest_attnperf.reports.explain import steps
    from pytest_attnperf.reports.explain.facts import DecisionOption

    assert again.relative_sd is not None
    taken = len(told.case.pairs)
    count = pairs_needed(_choose_aim(told, again), relative_sd=again.relative_sd, taken=taken, asymmetry=ASYMMETRY)
    what = f"{count} pairs against {steps.name_base(told)} instead of {taken}"
    if count is None and taken < steps.PAIRS:
        count = steps.PAIRS
        what = f"{count} pairs against {steps.name_base(told)} instead of {taken}, too few to know the noise"
    if count is None:
        return [], (
            f"Not even {PAIRS_MAX} pairs would decide it: the change is too small for the noise of this case. Find the "
            "source of the noise, or allow a larger threshold."
        )
    return [
        DecisionOption(
            what, _estimate_seconds(cost.pair_s, count, cost.process_s), steps.format_pairs_command(told, count)
        )
    ], ""


def _more_processes(told: Told, again: Recount, cost: UnitCost) -> tuple[list[DecisionOption], str]:
    """Returns options for a case that fresh processes left open: more processes, and pairs; and why no number of
    processes decides it, else ''."""
    from pytest_attnperf.gate.effort import PROCESSES_MAX, pairs_needed, processes_needed
    from pytest_attnperf.gate.interleaved import ASYMMETRY
    from pytest_attnperf.reports.explain import steps
    from pytest_attnperf.reports.explain.facts import DecisionOption

    assert again.relative_sd is not None
    case, stored, options, undecidable = told.case, len(told.case.stored_us), [], ""
    aim = _choose_aim(told, again)
    needed = processes_needed(aim, relative_sd=again.relative_sd, stored=stored, card_error=case.card_error)
    if needed is None:
        undecidable = f"Not even {PROCESSES_MAX} processes a side would decide it: find the source of the noise."
    else:
        look = steps.format_pytest_command(case, f"--attnperf-second-look={needed.fresh}")
        record = steps.format_recording_command(case, f"--attnperf-processes={needed.stored}")
        more = needed.stored > stored
        what = f"{needed.fresh} fresh processes instead of {len(case.second or case.first)}"
        what = f"{needed.stored} stored processes (recorded at the base revision) and {what}" if more else what
        units = 1 + needed.fresh + (needed.stored if more else 0)
        options.append(
            DecisionOption(what, _estimate_seconds(cost.process_s, units), (record, look) if more else (look,))
        )
    # Pairs of independent processes scatter by at most this; measuring them side by side only reduces it.
    apart = math.sqrt(2) * again.relative_sd
    pairs = pairs_needed(aim, relative_sd=apart, taken=0, asymmetry=ASYMMETRY)
    count = steps.PAIRS if pairs is None else max(steps.PAIRS, pairs)
    base = steps.name_base(told)
    what = f"at most {count} pairs against {base}, if pairs scatter no more than processes do"
    if pairs is None:
        what = f"{count} pairs against {base}; after some pairs it is known how many decide it"
    options.append(
        DecisionOption(
            what, _estimate_seconds(cost.pair_s, count, cost.process_s), steps.format_pairs_command(told, count)
        )
    )
    return options, undecidable


def _choose_aim(told: Told, again: Recount) -> Aim:
    """Returns the undecided slowdown as an `Aim`, from which needed processes or pairs are computed. The recomputed
    ratio, tolerated ratio and noise quantile must not be None."""
    from pytest_attnperf.gate.effort import Aim

    assert again.ratio is not None
    assert again.tolerated is not None
    assert again.z is not None
    return Aim(again.ratio, again.tolerated, again.z, told.case.degrees_of_freedom)


def _estimate_seconds(each_s: float | None, units: int, first_s: float | None = 0.0) -> float | None:
    return None if each_s is None or first_s is None else each_s * units + first_s


def _find_stored(case: CaseResult, found: RunResult, again: Recount, folder: Path | None) -> Stored | None:
    """Returns what the baselines in `folder` now say of the case: its entry compared, or why there is none. None
    without a folder or stored times.

    Raises UsageError if --baselines names no folder.
    """
    from pytest_attnperf.baselines.store import BaselineStore
    from pytest_attnperf.reports.explain import steps
    from pytest_attnperf.reports.explain.facts import Stored

    where = Path(steps.choose_baselines(case) or BASELINES) if folder is None else folder
    if not where.is_dir():
        if folder is not None:
            raise UsageError(f"--baselines {folder} is no folder; it takes what pytest --update-baselines wrote")
        return None
    if found.device is None or not case.stored_us:
        return None
    store = BaselineStore(where)
    try:
        entry = store.find(found.device.arch, found.device.product, case.key.suite, case.key.entry)
        if entry is None:
            return Stored(str(where), other="it has no entry for this case now")
        if tuple(process.median_us for process in entry.entry.processes) != case.stored_us:
            when = entry.entry.recorded or "another day"
            return Stored(
                str(where), other=f"its entry is not the one that the case was compared with (recorded {when})"
            )
        return _compare_stored(case, found, again, entry, store)
    except AttnperfError as error:
        return Stored(str(where), other=str(error).partition("\n")[0])


def _compare_stored(case: CaseResult, found: RunResult, again: Recount, entry: object, store: object) -> Stored:
    """Returns, in words, how a case differs from its stored entry: kernel launches, configuration, toolchain, and
    canary (a fixed GEMM and copy, which show a slower machine)."""
    from pytest_attnperf.baselines.store import BaselineStore, StoredEntry
    from pytest_attnperf.correctness.what_ran import list_differences
    from pytest_attnperf.gate.canary_drift import compare_canaries
    from pytest_attnperf.gate.comparable import list_config_changes
    from pytest_attnperf.reports.explain.facts import Stored

    assert isinstance(entry, StoredEntry)
    assert isinstance(store, BaselineStore)
    assert found.device is not None
    held = entry.entry
    shift = compare_canaries(case.canary, entry.canary)
    noise = store.noise_model(found.device.arch, found.device.product, case.key.suite).estimate_noise(
        case.key.entry, case.baseline_us or held.processes[0].median_us, held.processes[0].timer, held.bound
    )
    known = noise is not None and not case.pairs and again.relative_sd is not None
    return Stored(
        str(entry.path),
        launches=tuple(list_differences(case.launches, held.launches)) if case.launches and held.launches else (),
        config=tuple(list_config_changes(held.config, case.config)),
        toolchain=tuple([] if case.fingerprint is None else case.fingerprint.list_changes(entry.fingerprint)),
        canary=shift.describe_shift(case.ratio or 1.0, case.floor_bound) if shift else "",
        noise=f"{noise.relative_sd:.2%} by what is stored in {entry.path.name} now" if known and noise else "",
        source_id=held.source_id,
    )


def _explain_case(told: Told, options: argparse.Namespace) -> tuple[str, dict[str, object]]:
    from pytest_attnperf.reports.explain.explain_page import build_case_values, render_explanation

    if options.json:
        return "", build_case_values(told)
    return render_explanation(told, width=count_columns(WIDTH, WIDTH_LEAST), ink=choose_ink(options.color)), {}


def _explain_code(held: object, found: RunResult, options: argparse.Namespace) -> tuple[str, dict[str, object]]:
    from pytest_attnperf.records.code import CodeResult
    from pytest_attnperf.reports.explain.explain_page import build_code_values, render_code_explanation

    assert isinstance(held, CodeResult)
    source = str(options.results)
    if options.json:
        return "", build_code_values(held)
    return render_code_explanation(
        held, found, source, width=count_columns(WIDTH, WIDTH_LEAST), ink=choose_ink(options.color)
    ), {}


def _read_content(path: Path) -> bytes:
    from pytest_attnperf.records.regular_file import propose_path, read_regular
    from pytest_attnperf.reports.files.json_results import BYTES_MAX

    if not path.is_file():
        raise UsageError(
            f"{path} is no file{propose_path(path)}; explain reads what pytest --attnperf wrote, {RESULTS} unless "
            "--results says otherwise"
        )
    return read_regular(path, BYTES_MAX)
