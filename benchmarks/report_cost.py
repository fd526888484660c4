"""Seconds and peak memory of rendering a large run, in each form by itself.

    .venv/bin/python benchmarks/report_cost.py [--cases N] [--only terminal,html,markdown] [--seed N]

The run is drawn (`testing/sample_runs.py`), not measured. Every form is rendered in a fresh process, which first makes
the run: its size and time are shown apart, as the form 'nothing'. Seconds are CPU seconds of rendering, the import of
the form's libraries among them; memory is the process's largest resident set (`ru_maxrss`). A form that this version
does not have says so.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pytest_attnperf.reports.run.joined import Joined, join_single
from pytest_attnperf.testing.sample_runs import sample_run

MIB = 2**20
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
WIDTH = 120


def nothing(joined: Joined) -> str:
    """What making the run takes by itself."""
    return ""


def terminal(joined: Joined) -> str:
    """All that a terminal shows with -v: every row of every table, and the closing lines."""
    from pytest_attnperf.reports.run.run_text import run_text

    return run_text(joined, width=WIDTH, verbosity=1)


def html(joined: Joined) -> str:
    """The page."""
    from pytest_attnperf.reports.html.page import render_page

    return render_page(joined)


def markdown(joined: Joined) -> str:
    """The step summary."""
    from pytest_attnperf.reports.files.markdown import render_summary

    return render_summary(joined)


FORMS: dict[str, Callable[[Joined], str]] = {
    "nothing": nothing,
    "terminal": terminal,
    "html": html,
    "markdown": markdown,
}


def main() -> int:
    """Print the table; 1 where a form could not be rendered, 2 where the command is off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--only", default="nothing,terminal,html,markdown", metavar="FORM,...")
    parser.add_argument("--one", choices=FORMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one, options.cases, options.seed)))
        return 0
    forms = options.only.split(",")
    if unknown := [form for form in forms if form not in FORMS]:
        parser.error(f"--only={options.only} names {unknown[0]!r}; there are: {', '.join(FORMS)}")
    rows = [row_of(form, options.cases, options.seed) for form in forms]
    headers = ("form", "CPU s", "peak MiB", "output MiB")
    print(f"{options.cases} cases, each form in a fresh process that makes the run first")
    print(tabulate(rows, headers, tablefmt="simple", floatfmt=".2f"))
    return 1 if any(len(row) == 2 for row in rows) else 0


def measured(form: str, cases: int, seed: int) -> dict[str, float]:
    """Render once, here."""
    joined = join_single(sample_run(cases, seed=seed))
    started = time.process_time()
    text = FORMS[form](joined)
    seconds = time.process_time() - started
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
    return {"seconds": seconds, "peak": largest / MIB, "size": len(text.encode()) / MIB}


def row_of(form: str, cases: int, seed: int) -> list[str | float]:
    """One form, measured in a process of its own; its name and the error where it fails."""
    command = [sys.executable, __file__, "--one", form, "--cases", str(cases), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return [form, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]]
    found = json.loads(done.stdout)
    return [form, found["seconds"], found["peak"], found["size"]]


if __name__ == "__main__":
    sys.exit(main())
