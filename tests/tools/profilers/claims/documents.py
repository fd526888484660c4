"""What a report claims, as a document of its figures."""

from __future__ import annotations

from typing import Any

import msgspec

from pytest_attnperf.records.profiles import ProfileFinding
from pytest_attnperf.tools.profilers.claims.claimed_figures import PrintedFigure
from pytest_attnperf.tools.profilers.claims.claims_page import assess_report
from pytest_attnperf.tools.profilers.claims.records import Claims


def claims_of(document: dict[str, Any]) -> Claims:
    """The claims of a document."""

    def figure(kind: type[Any], value: object) -> object:
        assert issubclass(kind, PrintedFigure)
        return kind.parse(value)

    return msgspec.convert({"schema": 1, **document}, type=Claims, dec_hook=figure)


def found_in(**document: Any) -> list[ProfileFinding]:
    """What is found in a document."""
    return list(assess_report(claims_of(document)))
