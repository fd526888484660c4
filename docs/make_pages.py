"""Pages of commands for the pictures of docs/images: `make_images` takes one of each.

Their figures are real where the repository has them: baselines and a tuning space of an H200, a published profile. What
is drawn by chance is called 'sample' in the page.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from benchmarks import site_cost
from pytest_attnperf.cli.program import main as run_command
from pytest_attnperf.records import CaseKey, DeviceInfo, Verdict
from pytest_attnperf.records.stages import Breakdown, StageTime
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import CaseResult
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tuning_records import NO_BETTER, Candidate, Trial, TuneResult

ROOT = Path(__file__).parents[1]
H200 = ROOT / "baselines/sm_90/h200"
PROFILE = ROOT / "tests/data/profiles/public/mi300_owlv2.json.gz"
TUNED = ROOT / "tests/data/tuning/h200_prefill_forward_d256.json"
STAGES = {
    "layer.plain": {"norm": 8.1, "qkv": 41.0, "rope": 12.4, "attention": 148.7, "out": 29.9},
    "layer.fused": {"norm": 8.0, "qkv": 40.2, "rope": 3.1, "attention": 92.5, "out": 29.6},
}
SITE_CASES, SITE_RUNS = 60, 40


def write_pages(folder: Path) -> Iterator[tuple[str, Path]]:
    """Writes a page of each command into `folder`; yields the picture's name and the page."""
    runs = [folder / f"{name}.json" for name in ("before", "after")]
    for seed, path in enumerate(runs, 1):
        json_results.write(path, sample_run(24, seed=seed))
    yield "page-compare.png", _page(folder, "compare", [path.name for path in runs])
    yield "page-dispatch.png", _page(folder, "dispatch", [str(H200)])
    yield "page-ladder.png", _report(folder, "step", H200 / "hip_ladder.json")
    yield "page-stages.png", _report(folder, "stage", _write_stages(folder))
    shutil.copy(PROFILE, folder)
    yield "page-profile.png", _page(folder, "profile", [PROFILE.name])
    numbers = ("--arch", "gfx942", "--vgprs", "96", "--sgprs", "40", "--lds", "8192", "--threads", "256")
    yield "page-occupancy.png", _page(folder, "occupancy", numbers)
    tuned = folder / "tuned"
    tuned.mkdir()
    (tuned / "tune.json").write_bytes(msgspec.json.encode(_read_tuned()))
    _run(["report", tuned.name, "--report", str(folder / "tune")], folder)
    yield "page-tune.png", folder / "tune" / "report.html"


def write_site(folder: Path) -> Iterator[tuple[str, Path]]:
    """Writes a site over a drawn history; yields the pictures' names and the pages."""
    site_cost.fill(folder / "history.sqlite", SITE_CASES, SITE_RUNS)
    site = folder / "site"
    _run(["history", "--history", str(folder / "history.sqlite"), "--html", str(site)], folder)
    yield "site-index.png", site / "index.html"
    largest = max((site / "cases").iterdir(), key=lambda page: page.stat().st_size)
    yield "site-case.png", largest
    commits = sorted((site / "commits").iterdir())
    yield "site-commit.png", next(page for page in commits if "No lasting change" not in page.read_text())


def _page(folder: Path, command: str, words: Sequence[str]) -> Path:
    path = folder / f"{command}.html"
    _run([command, *words, "--html", str(path)], folder)
    return path


def _report(folder: Path, by: str, results: Path) -> Path:
    _run(["report", str(results), "--by", by, "--report", str(folder / by)], ROOT)  # whose backends have ideas
    return folder / by / "report.html"


def _run(words: Sequence[str], folder: Path) -> None:
    """Runs a command in `folder`, so that pages name no path of this machine, without what it prints. Raises SystemExit
    with that if it could not do its work."""
    said, before = io.StringIO(), Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = run_command(list(words))
    finally:
        os.chdir(before)
    if status not in (0, 1):
        raise SystemExit(f"make_images: attnperf {' '.join(words)} failed: {said.getvalue()}")


def _write_stages(folder: Path) -> Path:
    cases = []
    for backend, stages in STAGES.items():
        call = Breakdown(
            tuple(StageTime(name, us) for name, us in stages.items()), sum(stages.values()), "graph", 9.0, 3.0
        )
        key = CaseKey("layer", backend, "block-b1-s4096-h32-hk8-d128-bf16")
        cases.append(CaseResult(key, "n", Verdict.RECORDED, "", median_us=call.call_us, breakdown=call))
    path = folder / "stages.json"
    json_results.write(path, replace(sample_run(1), cases=tuple(cases)))
    return path


def _read_tuned() -> TuneResult:
    """The whole space of a kernel as it was timed on an H200, a process each, as the result of a tuning run."""
    stored = json.loads(TUNED.read_text(encoding="utf-8"))
    first = stored["workloads"][0]
    timed = [(row["us"][first], Candidate(row["values"])) for row in stored["rows"]]
    timed.sort(key=lambda pair: pair[0])
    (default_us, default) = next(pair for pair in timed if dict(pair[1].values) == stored["default"])
    ranking = tuple((candidate, us / default_us) for us, candidate in timed)
    said = "one process a candidate: nothing is decided"
    return TuneResult(
        backend="triton.flash",
        kernel="prefill_forward",
        arch="sm_90",
        device=DeviceInfo("cuda", "sm_90", "h200", name="NVIDIA H200"),
        workloads=(first,),
        strategy="exhaustive",
        verdict=NO_BETTER,
        summary=said,
        default=default,
        winner=timed[0][1],
        candidates=len(timed),
        trials=tuple(Trial(candidate, first, 1, us) for us, candidate in timed),
        ranking=ranking,
    )
