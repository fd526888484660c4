from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.tuner.tuner_settings import check_space, list_candidates
from pytest_attnperf.tuning_records import Candidate, Constraint, TuningSpace, Value

DEFAULT = Candidate({"M": 64, "N": 32})
NARROW = Constraint("N above M", lambda values: int(values["N"]) <= int(values["M"]))


def space(
    values: dict[str, tuple[Value, ...]] | None = None,
    default: Candidate = DEFAULT,
    constraints: tuple[Constraint, ...] = (NARROW,),
    extra: tuple[Candidate, ...] = (),
) -> TuningSpace:
    """Two tile sizes, one constraint."""
    return TuningSpace("flash", values or {"M": (16, 64), "N": (16, 32)}, default, constraints, extra)


def test_the_default_comes_first_and_constraints_exclude_with_their_reason() -> None:
    """The grid is listed behind the default, without what a constraint forbids, and that is named with why."""
    kept, excluded = list_candidates(space())
    assert [candidate.id for candidate in kept] == ["M=64,N=32", "M=16,N=16", "M=64,N=16"]
    assert [(item.candidate.id, item.stage, item.reason) for item in excluded] == [
        ("M=16,N=32", "constraint", "N above M")
    ]


def test_a_default_that_breaks_a_constraint_or_lies_off_the_grid_stays() -> None:
    """What is used today is measured, whatever the constraints or the lists of values say of it."""
    for default in (Candidate({"M": 16, "N": 32}), Candidate({"M": 48, "N": 32})):
        kept, excluded = list_candidates(space(default=default))
        assert kept[0] == default
        assert default not in [item.candidate for item in excluded]


def test_extra_candidates_come_last() -> None:
    """The library's own autotuner stands outside the grid, and needs none of its parameters."""
    auto = Candidate({}, "autotuned by aiter")
    assert list_candidates(space(extra=(auto,)))[0][-1] is auto


def _raises(_: object) -> bool:
    raise KeyError("K")


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: space({"M": (), "N": (32,)}), "parameter M has no values"),
        (lambda: space({"M": (64, 64), "N": (32,)}), "parameter M names a value twice: 64, 64"),
        (lambda: space({"M": (1, True), "N": (32,)}), "parameter M names a value twice: 1, True"),
        (lambda: space({"M": (1, "1"), "N": (32,)}), "parameter M names a value twice: 1, '1'"),
        (lambda: space(default=Candidate({"M": 64})), "the default 'M=64' lacks N"),
        (lambda: space(default=Candidate({"M": 64, "N": 32, "K": 8})), "the default gives K, which the space does not"),
        (lambda: space({"M": tuple(range(400)), "N": tuple(range(400))}), r"160,000 combinations.*M 400, N 400"),
        (lambda: space({"M": (64,), "N": (32,)}), "no valid candidate besides the default M=64,N=32: it has none"),
        (
            lambda: space(constraints=(Constraint("too large", lambda _: False),)),
            "no valid candidate besides the default M=64,N=32: 3 x too large",
        ),
        (lambda: space(constraints=(Constraint("odd", _raises),)), "constraint 'odd' raised KeyError: 'K' for M="),
        (lambda: space(extra=(Candidate({"M": 8}),)), "candidate 'M=8' outside the grid has no label"),
        (lambda: space(extra=(Candidate({}, "own"), Candidate({}, "own"))), "two candidates are called 'own:'"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(build: Callable[[], TuningSpace], text: str) -> None:
    """Every way a declaration can be off is one line naming the kernel, the part and the value."""
    with pytest.raises(UsageError, match=f"tuning space of flash: {text}"):
        check_space(build())
