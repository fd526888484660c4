from __future__ import annotations

import random
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_attnperf.tools.profilers.repeats import Repeats, encode_kernels, find_repeats

LAYER = "gagngcgn"
"""What one layer runs, a letter per kernel; attention, a, once."""


def _pass(layers: int) -> str:
    return f"E{LAYER * layers}H"


def _found(text: str, needed: str = "") -> Repeats:
    found = find_repeats(text, needed=frozenset(needed))
    assert found is not None
    return found


@given(st.integers(2, 9), st.integers(2, 30), st.integers(0, 2**32))
@example(8, 6, 71)  # what runs between repeats by chance, so that two passes and it repeat, too
@settings(max_examples=25, deadline=None)
def test_passes_are_found_whatever_stands_around_them(passes: int, layers: int, seed: int) -> None:
    """A loader before that uses kernels of the passes, a few others between, and others after change neither the number
    nor the places of passes."""
    chance = random.Random(seed)
    loader = "t" * chance.randrange(400) + "".join(chance.choices("ftgnx", k=chance.randrange(60))) + "x"
    gaps = ["s" * chance.randrange(1, 4) for _ in range(passes - 1)]
    after = "z" + "".join(chance.choices("zyf", k=chance.randrange(30)))
    text, begins = loader, []
    for gap in (*gaps, after):
        begins.append(len(text))
        text += _pass(layers) + gap
    found = find_repeats(text, needed=frozenset("a"))
    assert found is not None
    assert len(found.begins) == passes
    assert [abs(begin - true) <= 3 for begin, true in zip(found.begins, begins, strict=True)] == [True] * passes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a" * 400,
        "a" * 100 + "b" * 100 + "c" * 200,
        "".join(map(chr, range(1, 2000))),
        "".join(random.Random(1).choices("abc", k=3000)),
        "".join(random.Random(2).choices("abcdefghijklmnopqrstuvwxyz", k=3000)),
        "".join(map(chr, range(1, 600))) + "ab" * 2 + "".join(map(chr, range(600, 1200))),
    ],
)
def test_without_repetition_nothing_is_found(text: str) -> None:
    """Single kernels in a row, kernels that run once, random orders and one accidental pair are no passes."""
    assert find_repeats(text) is None


def test_a_single_pass_repeats_as_its_layers_only() -> None:
    """One pass has repeats, those of its layers; which of both they are is not decided by names."""
    found = _found(_pass(24))
    assert (len(found.begins), len(found.unit), found.begins[0]) == (24, 8, 1)


def test_layers_with_one_irregular_kernel_are_no_passes_of_several_layers() -> None:
    """36 layers of one token in which one kernel is added once are repeats of one layer each, not of six."""
    text = f"xyE{LAYER * 12}q{LAYER * 24}H"
    assert len(_found(text, "a").unit) == 8
    assert len(_found(f"xy{LAYER * 7}q{LAYER * 5}r{LAYER * 9}HW", "a").unit) == 8


def test_a_loop_of_loading_longer_than_the_passes_gives_way_to_attention() -> None:
    """1,000 conversions and transposes in turn are longer than two passes, which attention tells from them."""
    text = "tc" * 1000 + _pass(30) * 2
    assert (len(_found(text).begins), _found(text).unit) == (1000, "tc")
    found = _found(text, "a")
    assert (found.begins, found.ends, found.unit) == ((2000, 2242), (2242, 2484), _pass(30))


def test_passes_of_unequal_length_count_where_they_are_equal() -> None:
    """One pass of five with 30 more dispatches within is left out, and said to stand between; it is not divided."""
    odd = f"E{LAYER * 10}{'q' * 30}{LAYER * 5}H"
    found = _found(_pass(15) * 2 + odd + _pass(15) * 2)
    assert (len(found.begins), found.between, found.displaced) == (4, 152, 0)
    assert found.begins == (0, 122, 396, 518)


def test_a_pass_begins_with_the_kernel_that_runs_least() -> None:
    """A trace that begins within a pass, or behind work with the same end, shows where passes begin."""
    assert _found(_pass(16)[60:] + _pass(16) * 3).begins == (70, 200, 330)
    assert _found("gnH" + _pass(16) * 3).begins == (3, 133, 263)


def test_displaced_dispatches_are_tolerated_and_counted() -> None:
    """Dispatches that slip over the edge of a pass leave its place; half a pass is none, however near its length."""
    text = _pass(15) * 5
    found = _found(text[:121] + text[122] + text[121] + text[123:])
    assert (found.begins, found.displaced, found.between) == ((0, 122, 244, 366, 488), 2, 0)
    half = _found((_pass(32) * 4)[: 258 * 3 + 129])
    assert (found.covered, half.begins, half.covered) == (610, (0, 258, 516), 774)


def test_interleaved_streams_displace_no_pass() -> None:
    """A second stream at random places within passes leaves most of them nearly equal, and none is invented."""
    chance = random.Random(1)
    text = ""
    for number in range(8):
        own = list(_pass(15))
        for _ in range(5 + (number == 4)):
            own.insert(chance.randrange(1, len(own)), "r")
        text += "".join(own)
    found = _found(text, "a")
    assert len(found.begins) in (7, 8)
    assert {begin % 127 for begin in found.begins[:4]} == {0}


def test_a_given_number_of_repeats_chooses() -> None:
    """With 12 micro-batches in 3 steps both are repeats; the longer unit is the result, another if that is asked."""
    text = (_pass(8) * 4 + "caa") * 3
    assert (len(_found(text).begins), len(_found(text).unit)) == (3, 267)
    twelve = find_repeats(text, passes=12)
    assert twelve is not None
    assert len(twelve.unit) == 66


@pytest.mark.parametrize("gap", ["", "s"])
def test_time_is_nearly_linear(gap: str) -> None:
    """100,000 dispatches behind a loader take a few seconds at most, with and without other work between passes."""
    chance = random.Random(1)
    text = "t" * 5000 + "".join(_pass(124) + gap * chance.randrange(9) for _ in range(100))
    began = time.process_time()
    assert len(_found(text, "a").begins) == 100
    assert time.process_time() - began < 20


def test_encoding_gives_each_kernel_a_character() -> None:
    """Numbers of kernels become characters, thousands of them, and back."""
    assert [ord(letter) for letter in encode_kernels([0, 1, 70000])] == [0, 1, 70000]
