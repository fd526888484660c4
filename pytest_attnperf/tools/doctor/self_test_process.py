"""Runs one self-test in this process: `python -m pytest_attnperf.tools.doctor.self_test_process KIND DEVICE`.

Prints one line of JSON. KIND 'timer' gives a `TimerTest`, 'noise' the samples of each case, {"error": ...} if the test
failed. What libraries print goes to standard error. The parent must detect a crash or a hang.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

TIMER, NOISE = "timer", "noise"
DEVICES = ("cuda", "cpu")
ERROR = "error"
TEXT_LIMIT = 300

Test = Callable[[str], dict[str, Any]]


def timer_record(torch_device: str) -> dict[str, Any]:
    """Returns the result of `timer_test` on the device as a dict of builtins, for JSON."""
    from pytest_attnperf.measure.self_test import timer_test

    return asdict(timer_test(torch_device))


def noise_record(torch_device: str) -> dict[str, Any]:
    """Returns case -> its samples from `noise_samples` on the device, as builtins for JSON."""
    from pytest_attnperf.measure.self_test import noise_samples

    return {case: asdict(samples) for case, samples in noise_samples(torch_device).items()}


TESTS: dict[str, Test] = {TIMER: timer_record, NOISE: noise_record}


def run_test(kind: str, torch_device: str, test: Test | None = None) -> str:
    """Runs the test `kind` ('timer', 'noise') or `test`; returns its result as JSON, {"error": ...} if it raised."""
    try:
        found = (test or TESTS[kind])(torch_device)
    except Exception as error:  # a driver, a library or a missing torch may raise anything: the error is the answer
        lines = str(error).strip().splitlines()
        found = {ERROR: f"{type(error).__name__}: {lines[0] if lines else 'no text'}"[:TEXT_LIMIT]}
    return json.dumps(found)


def main(arguments: Sequence[str]) -> int:
    """Runs the test KIND on DEVICE, prints its JSON line and returns 0; for other arguments prints an error, returns
    2."""
    if len(arguments) != 2 or arguments[0] not in TESTS or arguments[1] not in DEVICES:
        sys.stderr.write(f"self-test: expected one of {', '.join(TESTS)}, then one of {', '.join(DEVICES)}\n")
        return 2
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not get into the answer
    kind, torch_device = arguments
    answers.write(run_test(kind, torch_device) + "\n")
    answers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
