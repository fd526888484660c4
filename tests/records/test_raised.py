"""What is said of an error that the user's code raised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.backends import Declares, Prepared
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import raised
from pytest_attnperf.records.raised import describe_raised, format_user_frames, is_users_file
from pytest_attnperf.workloads import families


def catch(call: Callable[[], object]) -> Exception:
    """The error that a call raises."""
    with pytest.raises(Exception) as found:
        call()
    return found.value


def load_through_the_package() -> None:
    """A function of the user that the package calls, and that calls the standard library."""
    Prepared(call=print, tensors=(), convert=lambda new: json.loads("{"), outputs=dict).load(())


def test_the_deepest_line_of_the_user_is_the_place() -> None:
    """Neither the package's line that calls it, nor the library's that raises."""
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "json.loads(" in text)
    assert describe_raised(catch(load_through_the_package)).startswith(f"{__file__}:{line}: JSONDecodeError: Expecting")
    assert describe_raised(UsageError("mine.py:3: says its place itself")) == "mine.py:3: says its place itself"


def test_frames_of_the_package_are_left_out() -> None:
    """The user's frames and what they call stay, also in the error that was raised first."""
    error = catch(load_through_the_package)
    lines = format_user_frames(error)
    assert __file__ in lines
    assert "in load_through_the_package" in lines
    assert json.decoder.__file__ in lines
    assert "backends.py" not in lines


def test_a_message_of_the_package_needs_no_frames() -> None:
    """Without a frame of the user its text says all; with one, that is where to look; other errors keep theirs."""
    assert format_user_frames(UsageError("said")) == ""
    lines = format_user_frames(catch(lambda: Declares(kernels="flash")))  # type: ignore[arg-type]
    assert __file__ in lines
    assert "backends.py" not in lines
    error = catch(lambda: None.missing)  # type: ignore[attr-defined]
    error.__traceback__ = None
    assert "AttributeError" in format_user_frames(error)


def test_whose_a_file_is() -> None:
    """An op family belongs to whoever adds it, though it stands in the package."""
    assert is_users_file(__file__)
    assert is_users_file(families.__file__)
    assert not any(map(is_users_file, (json.__file__, pytest.__file__, raised.__file__, "<string>")))
