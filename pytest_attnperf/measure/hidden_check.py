"""A block among those that are timed whose inputs nobody has announced, and whose last result is judged.

A call can find out that it is checked, and not timed: by who calls it, by whether Python's collector runs, by what
came before, by planted elements. So one block of each process runs from the very place where all others do, on inputs
as the timed ones are, of another seed. Its time is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_attnperf.correctness.judge import Checking, Judge, advance
from pytest_attnperf.records import CheckReport

INSIDE = "inside a timed block"


class HiddenCheck:
    """Judges the last result of one block.

    judge    of the case that is timed
    seed     of its inputs
    last     what the last call of the last block returned
    after    number of blocks that are measured before
    loaded   called once the inputs have changed, and once they are the timed ones again
    restore  puts the timed inputs back
    report   what was found; None before
    """

    def __init__(
        self,
        judge: Judge,
        seed: int,
        last: Callable[[], Any],
        after: int,
        *,
        restore: Callable[[], None],
        loaded: Callable[[], None] = lambda: None,
    ) -> None:
        self._judge = judge
        self._seed = seed
        self._last = last
        self._after = after
        self._restore = restore
        self._loaded = loaded
        self._checking: Checking | None = None
        self.report: CheckReport | None = None

    def begin(self, blocks: int) -> bool:
        """Load the inputs if the next block is the one; `blocks` were measured before it."""
        if self.report is not None or blocks < self._after:
            return False
        self._checking = self._judge.checking(INSIDE, seed=self._seed, planted=False, poisoned=False)
        self.report = advance(self._checking)
        self._loaded()
        return self.report is None

    def end(self) -> None:
        """Judge what the last call of that block returned, and put the timed inputs back."""
        assert self._checking is not None, "begin() comes first"
        self.report = advance(self._checking, self._last())
        assert self.report is not None, "a case that has passed its check needs one call"
        self._restore()
        self._loaded()
