from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.records.notes import NoteKind, kind_of
from pytest_attnperf.tools.profilers.passes import Calls, find_passes

LAYER = ("gemm", "attn", "gemm", "norm", "gemm", "act", "gemm", "norm")
"""What one layer runs; attention once."""

DECODE = tuple(f"decode_{name}" if name in ("gemm", "attn") else name for name in LAYER)
"""The same with other GEMMs and another attention, as for one token."""


def _pass(layers: int) -> list[str]:
    return ["embed", *LAYER * layers, "head"]


def _traced(names: list[str], **apart: int) -> Calls:
    """Calls with their order."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    counts = {name: names.count(name) for name in numbers}
    return Calls(counts, [name for name in counts if name == "attn"], [numbers[name] for name in names], numbers, apart)


def _serving(tokens: int, layers: int) -> Calls:
    """A prompt first, then tokens one by one, each a forward pass."""
    return _attending(["embed", *LAYER * layers, "head", *["embed", *DECODE * layers, "head"] * tokens])


def _attending(names: list[str]) -> Calls:
    """Calls with their order, in which every name that ends in 'attn' is attention."""
    calls = _traced(names)
    return replace(calls, attention=[name for name in calls.counts if name.endswith("attn")])


def _counted(counts: dict[str, int], **apart: int) -> Calls:
    return Calls(counts, [name for name in counts if name == "attn"], apart=apart)


def test_passes_and_layers_of_a_trace() -> None:
    """5 passes of 15 layers are found in the order of dispatches, with the place where each begins."""
    found = find_passes(_traced(_pass(15) * 5, copies=304, fills=4))
    assert (found.passes.count, found.passes.layers) == (5, 15)
    assert found.begins == tuple(range(0, 5 * 122, 122))
    assert found.ends == tuple(range(122, 6 * 122, 122))
    assert found.passes.how.startswith("5 passes: 5 times the same 122 dispatches in one order; 75 calls")
    assert "75 calls of attention = 5 passes x 15 layers" in found.passes.how
    assert found.passes.odd == (
        "copies: 304 calls do not divide by 5 passes (copies and fills come from loading a model, too)",
        "fills: 4 calls do not divide by 5 passes (copies and fills come from loading a model, too)",
    )
    assert {kind_of(line) for line in found.passes.odd} == {NoteKind.COPIES}


def test_layers_are_not_taken_for_passes() -> None:
    """75 fits 98 % of the dispatches and many kernels run that often, but what runs once per pass decides for 5."""
    counts = {"embed": 5, "head": 5, "attn": 75, "gemm": 300, "norm": 150, "act": 75}
    assert find_passes(_counted(counts)).passes.count == 5


def test_one_kernel_alone_leaves_it_open_without_an_order() -> None:
    """Where a single kernel says 5 and all others 75, counts do not tell; the order does."""
    counts = {"embed": 5, "attn": 75, "gemm": 300, "norm": 150, "act": 75}
    found = find_passes(_counted(counts))
    assert found.passes.count is None
    assert "75 or 5, which only one kernel supports" in found.passes.how
    assert find_passes(_traced(["embed", *LAYER * 15] * 5)).passes.count == 5


@given(st.integers(2, 9), st.integers(4, 9), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_any_number_of_passes_is_found(passes: int, layers: int, seed: int) -> None:
    """Passes and layers come out whatever kernels surround the model once, at its start."""
    start = [f"init_{i}" for i in range(random.Random(seed).randrange(3))]
    found = find_passes(_traced(start + _pass(layers) * passes))
    assert (found.passes.count, found.passes.layers) == (passes, layers)
    assert found.begins == tuple(len(start) + number * (2 + 8 * layers) for number in range(passes))


def test_queues_beside_each_other_may_displace_a_few() -> None:
    """A dispatch that slips over the edge of a pass is tolerated, and said."""
    names = _pass(15) * 5
    names[121], names[122] = names[122], names[121]
    found = find_passes(_traced(names))
    assert found.passes.count == 5
    assert "5 stretches of 122 dispatches, 2 of them in a wrong one" in found.passes.how


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (_traced(["a"] * 5 + ["b"] * 5 + ["c"] * 10), "no run of two kernels or more repeats"),
        (_traced(["a"] * 100), "that needs at least two kernels"),
        (_counted({}), "that needs at least two kernels"),
        (_counted({"a": 1, "b": 1}), "every kernel ran once"),
        (_counted({"jacobi": 1000, "norm1": 1001, "local": 1000, "halo": 1000, "norm2": 1001}), "nearest is 1000"),
        (_counted({"a": 7, "b": 13, "c": 28}), "nearest is 7: the calls of kernels with 72.9%"),
        (_counted({"a": 4, "b": 8, "c": 12}), "nearest is 4: the calls of kernels with 100.0% of the "),
    ],
)
def test_data_without_passes_gets_none(calls: Calls, expected: str) -> None:
    """Benchmarks one after the other, single kernels and counts without a common measure are no passes."""
    found = find_passes(calls)
    assert (found.passes.count, found.passes.odd, found.begins) == (None, (), ())
    assert found.passes.how.startswith("no passes inferred: ")
    assert expected in found.passes.how


def test_given_passes_are_kept_and_compared() -> None:
    """3 batches claimed where the calls say 5: the 3 stay, the reason says 5, and what does not divide is named."""
    names = _pass(15) * 5
    found = find_passes(_traced(names), passes=3)
    assert found.passes.count == 3
    assert found.passes.how.startswith("3 passes as given; the order shows 5 passes: 5 times the same 122 dispatches")
    assert "embed: 5 calls do not divide by 3 passes" in found.passes.odd
    assert find_passes(_traced(names), passes=5).passes.how.startswith("5 passes as given: 5 passes: 5 times the same")
    counted = find_passes(_counted(dict(Counter(names))), passes=3).passes.how
    assert "3 passes as given: the calls of kernels with 98.4% of the dispatches divide by it" in counted
    assert "; inferred are 5 passes: " in counted
    assert find_passes(_traced(names), passes=5).begins[1] == 122
    lone = find_passes(_counted({"a": 6}), passes=3)
    assert "divide by it; no passes inferred: " in lone.passes.how


def test_given_passes_that_do_not_fit_have_no_places() -> None:
    """Where most calls do not divide by a given number, nothing begins anywhere: few kernels fit by accident."""
    calls = _traced([*["a", "b", "c"] * 3, *["d"] * 91])
    assert find_passes(calls, passes=3).begins == ()
    assert find_passes(_traced(["a", "b", "c"] * 3), passes=3).begins == (0, 3, 6)


def test_device_of_several_is_said() -> None:
    """Whose calls were counted stands beside the answer, whatever it is."""
    calls = Calls({"a": 5, "b": 5}, whose="on Agent 4, the busiest of 2 devices")
    assert find_passes(calls).passes.how.endswith("; counted on Agent 4, the busiest of 2 devices")
    assert "; counted on Agent 4" in find_passes(Calls({"a": 5, "b": 7}, whose=calls.whose)).passes.how


def test_given_layers_speak_for_passes() -> None:
    """75 calls of attention and 15 layers are 5 passes where no kernel runs once per pass; 16 do not fit."""
    counts = {"attn": 75, "gemm": 300, "norm": 150, "act": 80}
    assert find_passes(_counted(counts)).passes.count is None
    found = find_passes(_counted(counts), layers=15)
    assert (found.passes.count, found.passes.layers) == (5, 15)
    assert "75 calls of attention are 5 times the 15 layers given" in found.passes.how
    wrong = find_passes(_traced(_pass(15) * 5), layers=16)
    assert "16 layers as given do not fit: attention has 75 calls, 80 expected" in wrong.passes.how
    without = find_passes(_traced(["a", "b"] * 5), layers=4)
    assert "4 layers as given; no kernel of attention to compare with" in without.passes.how


def test_of_equal_ones_the_largest_is_taken() -> None:
    """Where 6 and 4 explain as many dispatches, counts give 6 and say that 4 would fit too."""
    found = find_passes(_counted({"a": 6, "b": 6, "c": 4, "d": 4, "e": 4, "gemm": 1200}))
    assert found.passes.count == 6
    assert "; 4 would fit too; 3 kernels run less often (c: 4): if these are layers" in found.passes.how


def test_attention_once_per_pass_tells_no_layers() -> None:
    """A benchmark of attention alone has no layers."""
    assert find_passes(_traced(["mask", "attn"] * 5)).passes.layers is None


def test_attention_in_two_kernels_of_different_counts_tells_no_layers() -> None:
    """Where kernels of attention run differently often per pass, layers stay unknown rather than added up."""
    calls = Calls({"a": 5, "b": 5, "attn_full": 10, "attn_window": 50}, ["attn_full", "attn_window"])
    assert find_passes(calls).passes.layers is None


def test_long_names_are_cut() -> None:
    """A name of a thousand characters leaves the sentence readable."""
    found = find_passes(_counted({"a": 2, "b": 2, "x" * 900: 2000, "y" * 900: 3}))
    assert found.passes.odd == (f"{'y' * 47}...{'y' * 30}: 3 calls do not divide by 2 passes",)


@pytest.mark.parametrize("tokens", [63, 127])
def test_decoding_behind_a_prefill_is_not_taken_for_its_layers(tokens: int) -> None:
    """A prefill calls its own kernels once per layer, and the tokens may divide by the layers: each token is a pass,
    and the prefill stands before them."""
    found = find_passes(_serving(tokens, 32))
    assert (found.passes.count, found.passes.layers, found.begins[0]) == (tokens, 32, 258)
    assert f"{tokens} times the same 258 dispatches in one order, with 258 before them" in found.passes.how


def test_one_pass_of_equal_layers_is_not_many_passes() -> None:
    """32 layers behind one embedding repeat as 32 passes do: left open, with an order and from counts alone."""
    names = ["embed", *LAYER * 32]
    for calls in (_traced(names), _counted({name: names.count(name) for name in names})):
        found = find_passes(calls).passes
        assert found.count is None
        assert "32 stretches with one call of attention each may be passes, or layers of one" in found.how
        assert found.how.endswith("give --passes or --layers")
    assert "since 1 kernel runs outside" in find_passes(_traced(names)).passes.how
    assert "since 1 kernel runs less often (embed: 1)" in found.how
    given = find_passes(_traced(names), passes=1).passes
    assert given.layers == 32
    assert given.how.startswith("1 pass as given: ")


def test_layers_that_are_all_calls_of_attention_are_one_pass() -> None:
    """32 calls of attention and 32 layers given are one pass, which begins with the first kernel."""
    found = find_passes(_traced(["embed", *LAYER * 32]), layers=32)
    assert (found.passes.count, found.passes.layers, found.begins) == (1, 32, (0,))
    assert "1 pass: 32 calls of attention are the 32 layers given" in found.passes.how


def test_a_loop_over_attention_says_what_it_might_be() -> None:
    """Where nothing but the loop ran, its count stays, and that layers would look the same is said."""
    found = find_passes(_traced(["mask", "attn"] * 5)).passes
    assert found.count == 5
    assert found.how.endswith("each has one call of attention: if these are layers of one pass, give --passes 1")


def test_a_trace_that_ends_within_a_pass_has_the_whole_ones() -> None:
    """Three and a half passes have counts and sums that fit four: three are whole, and half of one stands after."""
    whole = ["embed", *LAYER * 32, "head"]
    names = (whole * 4)[: len(whole) * 3 + len(whole) // 2]
    found = find_passes(_traced(names))
    assert (found.passes.count, found.begins, found.ends[-1]) == (3, (0, 258, 516), 774)
    assert "3 times the same 258 dispatches in one order, with 129 after them" in found.passes.how


def test_models_of_two_depths_are_no_passes_of_the_mean_depth() -> None:
    """Ten passes of 12 layers and ten of 24 with the same kernels are not twenty of 18: the longer ones count."""
    found = find_passes(_traced(_pass(12) * 10 + _pass(24) * 10))
    assert (found.passes.count, found.passes.layers, found.begins[0]) == (10, 24, 980)


def test_steps_of_several_micro_batches_leave_the_layers_open() -> None:
    """Three steps of four micro-batches: 3 stay, and that each holds 4 forward passes of 8 layers is said."""
    found = find_passes(_traced([*_pass(8) * 4, "clip", *["adam"] * 2] * 3)).passes
    assert (found.count, found.layers) == (3, None)
    assert "each of the 3 has 32 layers, or 4 forward passes of 8 layers" in found.how


def test_requests_of_several_forward_passes_are_said_to_be_so() -> None:
    """Ten times a prefill and 15 tokens repeat ten times, and attention of two kinds says that each may hold more."""
    request = ["tokens", "embed", *LAYER * 8, "head", *["embed", *DECODE * 8, "head"] * 15]
    found = find_passes(_attending(request * 10)).passes
    assert (found.count, found.layers) == (10, None)
    assert found.how.endswith("attention runs 8 and 120 times per pass on average: one may hold several forward passes")
