from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from pytest_attnperf.correctness.metrics import compare_output
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.planted_keys import Plant, list_edges, make_plans, target_score
from pytest_attnperf.workloads.prefill import Prefill


def all_plans(seq_q: int, seq_kv: int, *, causal: bool, seeds: range, lanes: int = 1, window: int = 0) -> set[Plant]:
    """Every plant that appears for any of the seeds, in lanes that exist."""
    found = (make_plans(seq_q, seq_kv, causal=causal, seed=seed, lanes=lanes, window=window)[:lanes] for seed in seeds)
    return {plant for sets in found for plan in sets for plant in plan}


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 63, 512, 1000, 2049, 32768, 131072])
def test_edges_are_bounded_and_hold_both_ends(length: int) -> None:
    """Edges lie inside, are at most 26, and hold the first and last position and both sides of the last tile's edge."""
    found = list_edges(length)
    assert found == sorted(set(found))
    assert {0, length - 1} <= set(found) <= set(range(length))
    assert len(found) <= 26
    for tile in (16, 32, 64, 128):
        last = (length - 1) // tile * tile
        assert last == 0 or {last - 1, last} <= set(found)


@pytest.mark.parametrize(("seq_q", "seq_kv"), [(1, 1), (3, 700), (63, 63), (512, 2048), (700, 3), (64, 63)])
@pytest.mark.parametrize("causal", [False, True])
def test_plants_are_distinct_rows_and_at_most_one_key_beyond_the_mask(seq_q: int, seq_kv: int, causal: bool) -> None:
    """A row carries one plant; a causal plant is a key the row sees, or the first it does not see."""
    for plan in make_plans(seq_q, seq_kv, causal=causal, seed=1, lanes=4):
        assert len({plant.row for plant in plan}) == len(plan)
        for plant in plan:
            assert 0 <= plant.row < seq_q
            last_seen = plant.row + seq_kv - seq_q if causal else seq_kv - 1
            assert last_seen >= 0
            assert 0 <= plant.key <= min(last_seen + 1, seq_kv - 1)


@pytest.mark.parametrize(("seq_q", "seq_kv"), [(1, 50), (63, 63), (64, 2048), (600, 500), (3, 2)])
@pytest.mark.parametrize("window", [1, 2, 16, 100, 5000])
@pytest.mark.parametrize("lanes", [1, 4])
def test_plants_of_a_window_are_seen_or_just_outside_it(seq_q: int, seq_kv: int, window: int, lanes: int) -> None:
    """A windowed plant is a key its row sees, the one after the last, or the one before the first; a row that sees
    nothing carries none."""
    for seed in range(5):
        for plan in make_plans(seq_q, seq_kv, causal=True, seed=seed, lanes=lanes, window=window):
            assert len({plant.row for plant in plan}) == len(plan)
            for plant in plan:
                last = plant.row + seq_kv - seq_q
                assert last >= 0
                assert max(0, last - window) <= plant.key <= min(last + 1, seq_kv - 1)


def test_both_sides_of_both_edges_of_a_window_are_planted() -> None:
    """At every tile edge of the rows the first key seen, the last one expired, the last seen and the first forbidden
    are planted, for some head and some of 16 seeds."""
    found = all_plans(512, 512, causal=True, seeds=range(16), lanes=4, window=100)
    at = {shift: {plant.row for plant in found if plant.key == plant.row + shift} for shift in (-100, -99, 0, 1)}
    inside = {row for row in list_edges(512) if row >= 100}
    assert all(inside - {511} <= rows for rows in at.values())


@pytest.mark.parametrize("line", ["s=1,kv=2048,h=8", "s=4,kv=2048,h=4", "s=16,kv=2048,h=2", "s=40,kv=2048,h=1"])
@pytest.mark.parametrize("seed", range(8))
def test_one_head_or_few_rows_still_carry_a_hidden_key(line: str, seed: int) -> None:
    """For every seed an expired key is planted and, where there is one, a forbidden one, however few rows there are."""
    workload = Prefill.parse_line(f"{line},d=64,causal,w=1000")
    shift = workload.seq_kv - workload.seq_q
    sets = make_plans(workload.seq_q, workload.seq_kv, causal=True, seed=seed, lanes=workload.heads, window=1000)
    ahead = {plant.key - plant.row - shift for plan in sets[: workload.heads] for plant in plan}
    assert -1000 in ahead
    assert (1 in ahead) == (workload.seq_q > 1)


DTYPES = ["f16", "bf16", "tf32", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "i8"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("line", ["s=300,h=2,d=64,w=150", "s=8,kv=2048,h=4,d=64,w=1000", "s=330,kv=300,h=2,d=64,w=200"])
def test_a_window_off_by_one_fails_by_many_budgets(line: str, dtype: str) -> None:
    """A result of a window one key shorter or longer is off by more than eight budgets, in every dtype."""
    workload = Prefill.parse_line(f"{line},causal,{dtype}")
    inputs = workload.make_inputs(2, "cpu", planted=True)
    expected = References().compute_expected(workload, inputs, seed=2, planted=True)
    yardstick = expected.yardsticks["out"]
    for window in (workload.window - 1, workload.window + 1):
        wrong = replace(workload, window=window).reference(inputs)["out"].to(yardstick.dtype)
        figures = compare_output("x", "out", wrong, expected.reference["out"], yardstick, Tolerance())
        assert figures.max_error > 8 * figures.max_budget
    right = workload.reference(inputs)["out"].to(yardstick.dtype)
    figures = compare_output("x", "out", right, expected.reference["out"], yardstick, Tolerance())
    assert figures.max_error <= figures.max_budget


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("line", ["s=64,kv=2048,h=2,d=64", "s=330,kv=300,h=2,d=64,causal"])
def test_a_lost_key_fails_by_many_budgets(line: str, dtype: str) -> None:
    """A result without the last key is off by more than ten budgets in every dtype, also where rows see no key."""
    workload = Prefill.parse_line(f"{line},{dtype}")
    inputs = workload.make_inputs(2, "cpu", planted=True)
    expected = References().compute_expected(workload, inputs, seed=2, planted=True)
    q, k, v, *scales = inputs
    shorter = replace(workload, seq_kv=workload.seq_kv - 1, causal=False)
    visible_rows = slice(workload.rows_without_keys, None)
    got = expected.reference["out"].clone()
    got[:, visible_rows] = shorter.reference((q, k[:, :-1], v[:, :-1], *scales))["out"][:, visible_rows]
    if workload.causal:  # only the last row sees the last key
        got[:, :-1] = expected.reference["out"][:, :-1]
    yardstick = expected.yardsticks["out"]
    figures = compare_output("x", "out", got.to(yardstick.dtype), expected.reference["out"], yardstick, Tolerance())
    assert figures.max_error > 10 * figures.max_budget


def test_plans_are_decided_by_the_seed() -> None:
    """The same seed plants the same rows, another seed other ones."""
    one, again, other = (make_plans(63, 63, causal=True, seed=seed, lanes=4) for seed in (1, 1, 2))
    assert one == again != other


@pytest.mark.parametrize("seq_q", [1, 2, 100])
def test_seeds_cover_every_edge(seq_q: int) -> None:
    """Where one (batch, head) has too few rows for all edges, seeds take turns until all were planted."""
    found = {plant.key for plant in all_plans(seq_q, 1000, causal=False, seeds=range(300))}
    assert found == set(list_edges(1000))


def test_every_causal_edge_is_planted_on_both_sides_of_the_mask() -> None:
    """At every tile edge the last visible and the first forbidden key are planted, for some head."""
    found = all_plans(512, 512, causal=True, seeds=range(1), lanes=2)
    diagonal = {plant.row for plant in found if plant.key == plant.row}
    forbidden = {plant.row for plant in found if plant.key == plant.row + 1}
    assert set(list_edges(512)) <= diagonal
    assert set(list_edges(512)) - {511} <= forbidden


@pytest.mark.parametrize("seed", range(20))
def test_the_last_key_is_always_planted_where_there_is_room(seed: int) -> None:
    """Four slots are enough for the last and the first key to be planted for every seed."""
    keys = {plant.key for plan in make_plans(1, 32768, causal=False, seed=seed, lanes=4)[:4] for plant in plan}
    assert {0, 32767} <= keys


@pytest.mark.parametrize(
    "line",
    [
        "s=512,h=2,d=64,causal,f16",
        "s=4,kv=32768,h=2,d=64,bf16",
        "s=2,kv=4000,h=4,hk=2,d=16,bf16",
        "s=64,h=2,d=8,f16",
        "s=512,h=2,d=64,causal,f8e4m3",
        "s=4,kv=4096,h=4,d=128,f8e5m2",
        "s=512,h=2,d=64,i8",
        "s=70,kv=31,h=4,hk=2,d=64,causal,f16",
        "s=512,h=4,hk=2,d=64,causal,w=40,bf16",
    ],
)
def test_a_planted_key_holds_most_of_its_rows_weight(line: str) -> None:
    """Every planted key holds over half of its row's softmax weight, and half of them over 0.75, also in 8 bits."""
    workload = Prefill.parse_line(line)
    inputs = workload.make_inputs(3, "cpu", planted=True)
    q, k = (tensor.double() for tensor in inputs[:2])
    if len(inputs) == 6:
        q, k = q * inputs[3], k * inputs[4]
    window = workload.window
    sets = make_plans(
        workload.seq_q, workload.seq_kv, causal=workload.causal, seed=3, lanes=workload.heads, window=window
    )
    weights = []
    for head in range(workload.heads):
        key_head = head // (workload.heads // workload.kv_heads)
        for plant in sets[head % len(sets)]:
            last = plant.row + workload.seq_kv - workload.seq_q if workload.causal else workload.seq_kv
            first = min(plant.key, max(0, last - window + 1)) if window else 0
            seen = k[0, first : max(last, plant.key) + 1, key_head]
            scores = seen @ q[0, plant.row, head] / math.sqrt(workload.head_dim)
            weights.append(float(scores.softmax(0)[plant.key - first]))
    weights.sort()
    assert weights[len(weights) // 2] > 0.75
    assert weights[0] > 0.5


@pytest.mark.parametrize("head_dim", [1, 8, 16, 64, 512])
@pytest.mark.parametrize("seq_kv", [1, 63, 32768, 1 << 20])
def test_the_planted_score_solves_its_equation(head_dim: int, seq_kv: int) -> None:
    """t = ln Skv + t^2 / (2 c^2 D) + 1.5 for every size, and keys are made longer only where D is too small."""
    target, stretch = target_score(seq_kv, head_dim)
    above = math.log(seq_kv) + 1.5
    assert target == pytest.approx(above + target * target / (2 * stretch * stretch * head_dim))
    assert (stretch > 1) == (head_dim < 2.5 * above)


def test_planting_changes_planted_rows_and_the_length_of_keys_only() -> None:
    """v, the other rows of q and the direction of every key are those of the plain inputs."""
    workload = Prefill(1, 512, 1, 64, dtype="f32")
    ordinary = workload.make_inputs(5, "cpu", planted=False)
    planted = workload.make_inputs(5, "cpu", planted=True)
    assert torch.equal(ordinary[2], planted[2])
    cosine = torch.nn.functional.cosine_similarity(ordinary[1], planted[1], dim=-1)
    assert float(cosine.min()) > 0.9999
    rows = {plant.row for plant in make_plans(512, 512, causal=False, seed=5, lanes=1)[0]}
    changed = (ordinary[0] != planted[0]).any(-1).flatten().nonzero().flatten().tolist()
    assert set(changed) == rows
