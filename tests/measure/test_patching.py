from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_attnperf.measure.patching import EVERY_FUNCTION, Patch, Patches

NAME = "patched_while_watched"


def louder(previous: Callable[[], str]) -> Callable[[], str]:
    """Say it in capitals."""
    return lambda: previous().upper()


PATCH = Patch(NAME, "Speaker", "say", lambda previous: lambda self: str(previous(self)).upper())


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module that can be imported, and is not."""
    (tmp_path / f"{NAME}.py").write_text("class Speaker:\n    def say(self):\n        return 'hello'\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop(NAME, None)


def said() -> str:
    """What the module's class says, importing it where it is not loaded."""
    return str(importlib.import_module(NAME).Speaker().say())


def test_a_loaded_module_is_patched_and_given_back(on_disk: None) -> None:
    """The method is another one inside, and the original object afterwards."""
    original = importlib.import_module(NAME).Speaker.say
    with Patches([PATCH]):
        assert said() == "HELLO"
    assert importlib.import_module(NAME).Speaker.say is original


def test_a_module_loaded_meanwhile_is_patched(on_disk: None) -> None:
    """What is imported inside is patched as it loads, though nothing was imported for that, and given back."""
    with Patches([PATCH]):
        assert NAME not in sys.modules
        assert said() == "HELLO"
    assert said() == "hello"


def test_a_module_loaded_afterwards_is_not_patched(on_disk: None) -> None:
    """Leaving ends the waiting, and takes the finder out of the import system."""
    finders = list(sys.meta_path)
    with Patches([PATCH]):
        pass
    assert sys.meta_path == finders
    assert said() == "hello"


def test_two_wait_for_one_module(on_disk: None) -> None:
    """Both are placed, the inner one in front, and both are gone afterwards."""
    inner = Patch(NAME, "Speaker", "say", lambda previous: lambda self: f"{previous(self)}!")
    with Patches([PATCH]), Patches([inner]):
        assert said().lower() == "hello!"
    assert said() == "hello"


def test_what_is_not_there_is_left_out(on_disk: None) -> None:
    """An attribute, an owner or a module that an installed version lacks changes nothing."""
    missing = [
        Patch(NAME, "Speaker", "sing", louder),
        Patch(NAME, "Singer", "say", louder),
        Patch("no_such", "", "x", louder),
    ]
    importlib.import_module(NAME)
    with Patches(missing):
        assert said() == "hello"
    assert not hasattr(importlib.import_module(NAME).Speaker, "sing")


def test_a_function_of_the_module_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an owner the attribute is the module's."""
    module: Any = ModuleType(NAME)
    module.say = lambda: "hello"
    monkeypatch.setitem(sys.modules, NAME, module)
    with Patches([Patch(NAME, "", "say", louder)]):
        assert module.say() == "HELLO"
    assert module.say() == "hello"


def test_every_function_of_a_module(on_disk: None, tmp_path: Path) -> None:
    """Each that the module defines is another one inside; what it imports and its values stay."""
    source = "from os.path import join\nTEN = 10\ndef one():\n    return 'a'\ndef two():\n    return 'b'\n"
    (tmp_path / f"{NAME}.py").write_text(source)
    with Patches([Patch(NAME, "", EVERY_FUNCTION, louder)]):
        module: Any = importlib.import_module(NAME)
        assert (module.one(), module.two(), module.TEN, module.join("a", "b")) == ("A", "B", 10, "a/b")
    assert (module.one(), module.two()) == ("a", "b")


def test_what_another_put_there_stays(on_disk: None) -> None:
    """Leaving does not take away what someone else has put in place meanwhile."""
    speaker = importlib.import_module(NAME).Speaker
    with Patches([PATCH]):
        speaker.say = lambda self: "mine"
    assert said() == "mine"
