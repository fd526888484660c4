"""What a user types, on a GPU: `pytest --attnperf` fails every liar with a text that names its trick, and no twin."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.testing.liars import LIARS, Liar

ON_GPU = [liar for liar in LIARS if not liar.needs_cpu]
AGAINST_TWIN = [liar for liar in ON_GPU if liar.verdict in (Verdict.SLOWER, Verdict.SUSPICIOUS)]
LATE = [liar for liar in ON_GPU if liar.needs_timing and liar not in AGAINST_TWIN]
TRIED = [liar for liar in ON_GPU if liar.needs_trial]
OTHERS = [liar for liar in ON_GPU if liar not in (*AGAINST_TWIN, *LATE, *TRIED)]
DEVICE = "--attnperf-device=gpu"

pytestmark = pytest.mark.gpu


def each(liars: list[Liar]) -> Any:
    """One test for each liar, named by its trick."""
    return pytest.mark.parametrize("liar", liars, ids=[liar.trick for liar in liars])


@pytest.fixture(scope="module")
def timed(make_project: Callable[..., Any]) -> Any:
    """What `pytest --attnperf` says of all liars and twins; where the verdict needs a baseline, it is the twin's.

    Those have long blocks, so that a call that is slow now and then is in every one of them; so have those that begin
    to lie after many calls, of which a GPU that others use makes few in a short one.
    """
    project = make_project(AGAINST_TWIN)
    flags = (DEVICE, "--attnperf-effort=block_us=10000")
    stored = project.run(*flags, "--update-baselines", honest=True)
    assert {said.verdict for said in stored.values()} == {"RECORDED"}, "\n".join(said.text for said in stored.values())
    against_twin = project.run(*flags, "--attnperf", "--attnperf-threshold=50")
    late = make_project(LATE).run(*flags, "--attnperf")
    tried = make_project(TRIED).run(DEVICE, "--attnperf", "--attnperf-trials=all")
    return {**against_twin, **late, **tried, **make_project(OTHERS).run(DEVICE, "--attnperf")}


@pytest.fixture(scope="module")
def untried(make_project: Callable[..., Any]) -> Any:
    """What `pytest --attnperf` says of the liars that need a trial, without one."""
    return make_project(TRIED).run(DEVICE, "--attnperf", "--attnperf-trials=none")


@each(ON_GPU)
def test_a_liar_is_caught_and_its_trick_is_named(liar: Liar, timed: dict[str, Any]) -> None:
    """The liar's test fails with its verdict, and the text says what the trick did."""
    said = timed[liar.lying.name]
    assert said.failed, f"passed as {said.verdict}: {liar.says}"
    assert said.verdict == liar.verdict.value
    assert re.search(liar.clue, said.text), said.text


@each(ON_GPU)
def test_its_twin_passes(liar: Liar, timed: dict[str, Any]) -> None:
    """The same backend without the trick is right, eager and replayed, and no slower than a baseline of its own."""
    said = timed[liar.honest.name]
    assert not said.failed, said.text
    assert said.verdict in (("SAME", "FASTER", "UNDECIDED") if liar in AGAINST_TWIN else ("NO_BASELINE",))


@each(TRIED)
def test_a_liar_that_needs_a_trial_is_right_without_it(liar: Liar, untried: dict[str, Any]) -> None:
    """The usual proof does not see the trick, which is why there is a trial."""
    assert untried[liar.lying.name].verdict == "NO_BASELINE", untried[liar.lying.name].text
