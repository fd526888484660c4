"""`attnperf occupancy --cycles`: the estimate of a key loop, and what has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main as cli
from pytest_attnperf.codeobject import decoding
from pytest_attnperf.errors import ToolMissingError
from tests.cli.commands.test_occupancy import occupancy

DATA = Path(__file__).parents[2] / "data"
OBJECTS = DATA / "code_objects"
TILE = str(DATA / "assembly" / "tile-gfx942.co")


def test_cycles_of_a_foreign_object(capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel with a key loop and one without: figures of the first, and the reason of the second."""
    status, out, _ = occupancy(capsys, TILE, "--cycles", "--threads", "64", "--keys-per-iteration", "16")
    first, _, second = out.partition("\n\n\n")
    assert status == 0
    assert first.startswith("tile\ngfx942: ")
    assert "a wave, per 32 keys" in first
    assert re.search(r"^MFMA +2 +32$", first, re.MULTILINE)
    assert second.startswith("spill\n")
    assert "no estimate: it has no matrix instructions" in second


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([str(OBJECTS / "mfma.gfx942.co")], "product for gfx942: its matrix instructions stand in no loop"),
        ([TILE.replace("942", "1201")], "tile for gfx1201: the issue model knows gfx90a, gfx942, gfx950"),
        ([str(OBJECTS / "kernels.sm_90.cubin")], "not sm_90"),
        (["--arch", "gfx942"], "--cycles reads instructions: name a code object or a registered kernel"),
    ],
)
def test_cycles_that_cannot_be_estimated(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, no figures, and why."""
    status, out, err = occupancy(capsys, "--cycles", *arguments)
    assert (status, out) == (2, "")
    assert said in err


def test_cycles_need_a_disassembler(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without LLVM's tools instructions are not known, and what is missing is named."""

    def missing(arch: str) -> None:
        raise ToolMissingError(f"no llvm-objdump disassembles {arch}")

    monkeypatch.setattr(decoding, "find_objdumps", missing)
    status, out, err = occupancy(capsys, TILE, "--kernel", "tile", "--cycles")
    assert (status, out) == (2, "")
    assert "its instructions or loops are not known: no llvm-objdump disassembles gfx942" in err


def test_keys_are_of_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --cycles they would say nothing; none is no number of keys."""
    assert "--keys-per-iteration needs --cycles" in occupancy(capsys, TILE, "--keys-per-iteration", "32")[2]
    with pytest.raises(SystemExit):
        cli(["occupancy", TILE, "--cycles", "--keys-per-iteration", "0"])
    assert "'0' is not a whole number of at least 1" in capsys.readouterr().err


def test_cycles_are_on_the_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`--cycles --html` adds the key loop of each kernel to its occupancy."""
    page = tmp_path / "c.html"
    status, out, err = occupancy(capsys, TILE, "--cycles", "--threads", "64", "--html", str(page))
    assert status == 0
    assert out.startswith("tile\n")
    assert err == f"written: {page}\n"
    text = page.read_text()
    assert "Cycles of tile" in text
    assert "no estimate: it has no matrix instructions" in text
    assert "2 kernels" in text
