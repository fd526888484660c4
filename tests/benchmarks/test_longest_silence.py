"""The longest times in which a command prints nothing on a terminal."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.longest_silence import Output, Silence, answer, environment, shown, silences, watched


def test_silences_stand_before_between_and_behind() -> None:
    """Every time without output counts, also before the first and behind the last one; the longest comes first."""
    outputs = [Output(2.0, b"first\n"), Output(2.5, b"\x1b[1msecond\x1b[0m"), Output(9.0, b"third")]
    assert silences(outputs, 12.0) == [
        Silence(6.5, 2.5, "first second"),
        Silence(3.0, 9.0, "first second third"),
        Silence(2.0, 0.0, ""),
        Silence(0.5, 2.0, "first"),
    ]
    assert silences([], 4.0) == [Silence(4.0, 0.0, "")]
    assert shown(b"\r\x1b[2Kattnperf:\x1b7 x\x1b8") == "attnperf: x"


def test_only_what_says_so_is_an_answer() -> None:
    """An echo of ^C, and a line that would have come anyway, do not answer it."""
    said = Output(3.4, b"attnperf: interrupted; ending 2 workers")
    outputs = [Output(1.0, b"interrupt me"), Output(3.0, b"^C"), Output(3.2, b"case 1 of 3"), said]
    assert answer(outputs, 2.0) == said
    assert answer(outputs[:-1], 2.0) is None


@pytest.mark.parametrize(("after", "text"), [(None, "on a terminal of 100"), (0.2, "KeyboardInterrupt")])
def test_a_command_is_watched_on_a_terminal(after: float | None, text: str) -> None:
    """It sees a terminal, caches that are fresh, and Ctrl-C when somebody presses it."""
    program = (
        "import os, time\n"
        "time.sleep(0.5)\n"
        "if os.isatty(1): print('on a terminal of', os.get_terminal_size().columns, os.environ['TRITON_CACHE_DIR'])"
    )
    given = environment(fresh_caches=True, folder=os.sep + "fresh")
    said = b"".join(output.text for output in watched([sys.executable, "-c", program], given, after)).decode()
    assert text in said
    assert ("/fresh/triton_cache_dir" in said) is (after is None)
