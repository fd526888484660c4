"""The cards of runs side by side: which is slow, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.figures import ABSENT, format_change, one_line
from pytest_attnperf.reports.text.grid import Column, Group, Row, grid

CELL_LIMIT = 24


class _Offset(Protocol):
    """Fractions."""

    @property
    def offset(self) -> float: ...
    @property
    def interval95(self) -> tuple[float, float]: ...
    @property
    def cases(self) -> int: ...


class ShownCard(Protocol):
    """A card as it is shown; '' and None where something is not known."""

    @property
    def device_id(self) -> str: ...  # noqa: D102
    @property
    def cases(self) -> int: ...  # noqa: D102
    @property
    def clock_mhz(self) -> float | None: ...  # noqa: D102
    @property
    def power_cap_w(self) -> str: ...  # noqa: D102
    @property
    def temperature_c(self) -> str: ...  # noqa: D102
    @property
    def partition(self) -> str: ...  # noqa: D102
    @property
    def offset(self) -> _Offset | None: ...  # noqa: D102
    @property
    def slow(self) -> bool: ...  # noqa: D102


COLUMNS = (
    Column("", "left"),
    Column("cases"),
    Column("offset"),
    Column("95 %"),
    Column("over", rank=1),
    Column("MHz", rank=2),
    Column("W cap", rank=3),
    Column("C", rank=4),
    Column("partition", rank=5),
)


def card_table(groups: Sequence[tuple[str, Sequence[ShownCard]]], *, width: int, ink: Ink = PLAIN) -> str:
    """One line per card, under a heading per device; '' without cards.

    'over' is how many cases the offset is made of, which are those that other cards have, too.
    """
    shown = [Group(heading, tuple(map(_row, cards))) for heading, cards in groups if cards]
    return grid(shown, COLUMNS, corner="card", width=width, ink=ink)


def _row(card: ShownCard) -> Row:
    offset = card.offset
    interval = "" if offset is None else " .. ".join(format_change(1 + end) for end in offset.interval95)
    return Row(
        card.device_id,
        (
            "SLOW" if card.slow else "",
            str(card.cases),
            ABSENT if offset is None else format_change(1 + offset.offset),
            interval or ABSENT,
            ABSENT if offset is None else str(offset.cases),
            ABSENT if card.clock_mhz is None else f"{card.clock_mhz:.0f}",
            *(one_line(text, CELL_LIMIT) or ABSENT for text in (card.power_cap_w, card.temperature_c, card.partition)),
        ),
    )
