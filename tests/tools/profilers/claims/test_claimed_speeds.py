from __future__ import annotations

from typing import Any

import pytest

from pytest_attnperf.records.profiles import ForwardPasses, ProfileFinding, ProfileSummary
from pytest_attnperf.tools.profilers.claims.claim_rules import make_known
from pytest_attnperf.tools.profilers.claims.claimed_arithmetic import assess_with_profile
from pytest_attnperf.tools.profilers.claims.claimed_figures import Evaluations, Nodes
from tests.tools.profilers.claims.documents import claims_of, found_in

TABLE = {
    "rows": [{"name": "all", "time": "100.0 ms"}],
    "total": {"said": "100 ms in all", "time": "100.0 ms"},
}
MODEL = {"sequences": 64, "layers": 15}
CALLS = {"calls": {"said": "75 calls", "count": 75}}


def speed(**said: str) -> dict[str, Any]:
    """A document with one claimed speed."""
    return {"speeds": [{"said": "so fast", **said}]}


def one(found: list[ProfileFinding], rule: str) -> ProfileFinding:
    """The only finding of a rule."""
    (only,) = [finding for finding in found if finding.rule == rule]
    return only


@pytest.mark.parametrize(
    ("said", "holds", "text"),
    [
        ({"evaluations": "2,333 positions/s"}, True, "2,333 positions/s = 2,333 nps where every node is evaluated"),
        ({"evaluations": "2,333 positions/s", "nodes": "2,333 nps"}, True, "= 2,333 nps where every node"),
        ({"evaluations": "2,000 evals/s", "nodes": "2.5 knps", "cached": "20%"}, True, "/ (1 - 20%) = 2,500 nps"),
        ({"evaluations": "2,000 evals/s", "nodes": "2.9 knps", "cached": "20%"}, False, "/ (1 - 20%) = 2,500 nps"),
        (
            {"evaluations": "2,000 evals/s", "nodes": "2,500 nps"},
            None,
            "20% of the nodes must be without an evaluation",
        ),
        ({"evaluations": "2,000 evals/s", "nodes": "1,500 nps"}, None, "fewer nodes than evaluations"),
        ({"evaluations": "2,000 evals/s", "nodes": "1,500 nps", "cached": "100%"}, None, "all nodes may be without"),
    ],
)
def test_nodes_follow_from_evaluations(said: dict[str, str], holds: bool | None, text: str) -> None:
    """nps is evaluations/s over the share of nodes that are evaluated, and the finding says how; without that share
    a difference is open, with the share that it needs."""
    found = one(found_in(**speed(**said)), "nodes per second")
    assert found.holds is holds
    assert text in found.text


def test_a_speed_without_figures_is_open() -> None:
    """A sentence without nodes and evaluations is not judged; nodes alone derive nothing."""
    assert one(found_in(**speed()), "speed").holds is None
    assert found_in(**speed(nodes="2,333 nps")) == []


@pytest.mark.parametrize(
    ("said", "holds"),
    [
        ({"evaluations": "3,200 evaluations/s"}, True),
        ({"nodes": "3,200 nps"}, True),
        ({"evaluations": "3,300 evaluations/s"}, None),
        ({"nodes": "3,300 nps"}, None),
    ],
)
def test_evaluations_fit_into_the_gpu_time(said: dict[str, str], holds: bool | None) -> None:
    """75 calls of 15 layers are 5 passes of 64: in 100 ms 3,200 evaluations/s at most. More is open, not wrong: the
    benchmark may be another run."""
    document = {**speed(**said), "model": MODEL, "performance": CALLS, "table": TABLE}
    found = one(found_in(**document), "evaluations within GPU time")
    assert found.holds is holds
    assert "5 passes of 64 in 100 ms of GPU time are 3,200 evaluations/s at most" in found.text
    assert ("as many nps where every node is evaluated" in found.text) == ("nodes" in said)


def test_passes_as_the_report_counts_them_serve_without_calls() -> None:
    """Three passes that only the report counts, of 64 sequences in 100 ms, are 1,920 per second."""
    passes = {"sequences": 64, "passes": {"said": "3 batches", "count": 3}}
    found = one(found_in(**speed(nodes="2,333 nps"), model=passes, table=TABLE), "evaluations within GPU time")
    assert "3 passes of 64 in 100 ms of GPU time are 1,920" in found.text
    assert found.holds is None


@pytest.mark.parametrize(("count", "holds"), [(5, True), (3, None), (None, "none")])
def test_a_profile_allows_a_speed_or_does_not(count: int | None, holds: bool | str | None) -> None:
    """With a profile its own passes and GPU time are the limit; where its passes are not known nothing is said."""
    known = make_known(claims_of({**speed(nodes="3,200 nps"), "model": MODEL}))
    passes = ForwardPasses(count, "by layers") if count else None
    summary = ProfileSummary("run", (), (), 100_000_000, 75, (), (), passes=passes)
    found = list(assess_with_profile(known, summary))
    assert [finding.rule for finding in found] == ["profile: evaluations within GPU time"] * (holds != "none")
    assert [finding.holds for finding in found] == [holds] * (holds != "none")


@pytest.mark.parametrize(("kind", "text"), [(Nodes, "2,333 positions/s"), (Evaluations, "2,333 nps"), (Nodes, "2333")])
def test_the_two_rates_are_not_mixed(kind: type[Nodes] | type[Evaluations], text: str) -> None:
    """Nodes are in nps and evaluations in evaluations/s, so that neither stands for the other."""
    with pytest.raises(ValueError, match=r"unit"):
        kind.parse(text)
