"""Runs each package's suite with the package that packages.toml pins, and prints one table. See README.md.

Nothing is installed into the interpreter that runs this: each package goes to a folder of its own, without what it
depends on, and only its own suite sees it. Needs Python 3.11 or later.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

HERE = Path(__file__).resolve().parent
MODES = {"prove": [], "gate": ["--attnperf"], "record": ["--update-baselines"]}
NO_TESTS = 5  # pytest's exit status; a suite that was skipped whole


@dataclass
class Result:
    """How one package's suite went: counts of cases, and why the rest was skipped."""

    package: str
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    wrong: bool = False

    def row(self) -> tuple[str, ...]:
        """The package, its cases by outcome, and the seconds that it took."""
        outcomes = ("proved", "skipped", "failed")
        return (
            self.package,
            str(self.counts.total()),
            *(str(self.counts[name]) for name in outcomes),
            f"{self.seconds:.0f}",
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="names in packages.toml (default: all)")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--gate", dest="mode", action="store_const", const="gate", help="time, and hold against baselines"
    )
    modes.add_argument(
        "--record", dest="mode", action="store_const", const="record", help="time, and store as baselines"
    )
    parser.add_argument(
        "--into", type=Path, default=Path("build/foreign"), metavar="DIR", help="where packages are installed"
    )
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="install from the wheels here, without a network")
    parser.add_argument(
        "--timeout", type=float, default=1800.0, metavar="S", help="seconds for one suite (default 1800)"
    )
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], metavar="ARG", help="the rest goes to pytest")
    parser.set_defaults(mode="prove")
    return parser.parse_args()


def installed(name: str, package: dict[str, Any], into: Path, wheels: Path | None) -> str:
    """Put the package and its needs into a folder, unless they are there; why that cannot be, or ''."""
    wanted = [f"{name}=={package['version']}", *package["needs"]]
    stamp = into / "installed.txt"
    if stamp.is_file() and stamp.read_text() == "\n".join(wanted):
        return ""
    shutil.rmtree(into, ignore_errors=True)
    source = ["--no-index", "--find-links", str(wheels)] if wheels else []
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command = [*pip, "--only-binary", ":all:", *source, "--target", str(into), *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return f"cannot be installed: {said[-1] if said else 'pip exited with ' + str(done.returncode)}"
    stamp.write_text("\n".join(wanted))
    return ""


def environment(folder: Path) -> dict[str, str]:
    """This process's, with the package; without a GPU, Triton's kernels are interpreted."""
    import torch

    environ = dict(os.environ)
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), environ.get("PYTHONPATH", ""))))
    if not torch.cuda.is_available():
        environ["TRITON_INTERPRET"] = "1"
    return environ


def run(name: str, package: dict[str, Any], folder: Path, options: argparse.Namespace) -> Result:
    """Run one suite, with its output as it comes."""
    result, report = Result(name), folder / "junit.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", package["suite"], f"--junitxml={report}", *MODES[options.mode]]
    try:
        done = subprocess.run(
            [*command, *options.pytest], cwd=HERE, env=environment(folder), check=False, timeout=options.timeout
        )
    except subprocess.TimeoutExpired:
        result.wrong = True
        result.reasons[f"not done after {options.timeout:g} s"] += 1
        return result
    if report.is_file():
        count(result, report)
    result.wrong = done.returncode not in (0, NO_TESTS) or not result.counts
    if result.wrong and not result.counts["failed"]:
        result.reasons[f"pytest exited with {done.returncode}"] += 1
    return result


def count(result: Result, report: Path) -> None:
    """Take the cases from pytest's own report; a module that was skipped while it was collected is one case."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            result.counts["failed"] += 1
        elif skipped is None:
            result.counts["proved"] += 1
        else:
            result.counts["skipped"] += 1
            reason = skipped.get("message") or "no reason given"
            result.reasons[
                (skipped.text or reason).split(": ", 1)[-1] if reason == "collection skipped" else reason
            ] += 1


def show(results: list[Result]) -> None:
    """One table, and under it every reason with the number of its cases."""
    head = ("package", "cases", "proved", "skipped", "failed", "seconds")
    rows = [head, *(result.row() for result in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *numbers = row
        print(first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)))
    for result in results:
        for reason, number in result.reasons.items():
            print(f"{result.package}: {number} x {reason}")


def main() -> int:
    """0, or 1 if anything was wrong. A package that cannot be had is skipped, and said so."""
    options, results = arguments(), []
    packages = tomllib.loads((HERE / "packages.toml").read_text())
    if unknown := set(options.packages) - set(packages):
        print(f"no suite for {', '.join(sorted(unknown))}; there are {', '.join(packages)}", file=sys.stderr)
        return 2
    for name in options.packages or packages:
        folder, start = options.into.resolve() / name, time.monotonic()
        if reason := installed(name, packages[name], folder, options.wheels):
            result = Result(name, Counter(skipped=1), Counter([reason]))
        else:
            result = run(name, packages[name], folder, options)
        result.seconds = time.monotonic() - start
        results.append(result)
    show(results)
    return int(any(result.wrong for result in results))


if __name__ == "__main__":
    sys.exit(main())
