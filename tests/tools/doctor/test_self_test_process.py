from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.tools.doctor import self_test_process
from pytest_attnperf.tools.doctor.self_test_process import NOISE, TIMER, main, run_test

ROOT = Path(__file__).parents[3]


def test_a_real_process_answers_in_one_line() -> None:
    """The process prints one line of JSON, also where torch is missing."""
    command = [sys.executable, "-S", "-m", "pytest_attnperf.tools.doctor.self_test_process", "timer", "cpu"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    [line] = ran.stdout.splitlines()
    assert json.loads(line)["error"].startswith("ModuleNotFoundError: No module named ")


def test_the_timer_of_a_cpu() -> None:
    """On a CPU the answer is the host's timer, right results, and the time of a tiny call."""
    pytest.importorskip("torch")
    found = json.loads(run_test(TIMER, "cpu"))
    assert (found["timer"], found["right"], found["graph_us"]) == ("host", True, None)
    assert 0 < found["empty_us"] < 10_000


def test_what_libraries_print_is_no_answer(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a library below Python prints on standard output goes to standard error; the answer stands alone."""

    def chatty(device: str) -> dict[str, Any]:
        os.write(1, b"from below\n")
        return {"device": device}

    monkeypatch.setitem(self_test_process.TESTS, NOISE, chatty)
    own = os.dup(1)
    try:
        assert main([NOISE, "cpu"]) == 0
    finally:
        os.dup2(own, 1)
        os.close(own)
    out, err = capfd.readouterr()
    assert out == '{"device": "cpu"}\n'
    assert err == "from below\n"


@pytest.mark.parametrize("arguments", [(), ("timer",), ("other", "cpu"), ("noise", "tpu")])
def test_arguments_that_name_no_test(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that are off are said in one line, and status 2."""
    assert main(arguments) == 2
    assert capsys.readouterr().err == "self-test: expected one of timer, noise, then one of cuda, cpu\n"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ModuleNotFoundError("No module named 'torch'"), "ModuleNotFoundError: No module named 'torch'"),
        (RuntimeError("HIP error: invalid device\nadvice"), "RuntimeError: HIP error: invalid device"),
        (AssertionError(), "AssertionError: no text"),
    ],
)
def test_an_error_is_the_answer(error: Exception, text: str) -> None:
    """Whatever a library raises becomes one line of the answer."""

    def broken(_device: str) -> dict[str, Any]:
        raise error

    assert json.loads(run_test(NOISE, "cuda", broken)) == {"error": text}
