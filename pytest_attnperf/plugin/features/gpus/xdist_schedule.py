"""Which worker of pytest-xdist runs which case next: neighbours of one backend stay together.

What a process pays once for a backend (its compiler started, its kernels loaded) would be paid by every worker if
cases were dealt out in the order of the workloads. They are dealt out one by one all the same, so that workers end
together: who has no case of its backend left goes to the backend with the most, and helps another at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pytest


def heap_of(nodeid: str) -> str:
    """What a test has in common with its neighbours: its file, its function and its backend."""
    test, _, parameters = nodeid.partition("[")
    return f"{test}[{parameters.partition('-')[0]}"  # no backend has a hyphen in its name


def next_test(pending: Sequence[int], heap: Callable[[int], str], current: str, others: Collection[str]) -> int:
    """The test that a worker at the heap `current` runs next, of `pending`, which is not empty.

    others   the heaps that the other workers are at
    """
    own = next((test for test in pending if heap(test) == current), None)
    if own is not None:
        return own
    sizes = Counter(map(heap, pending))
    free = {name: size for name, size in sizes.items() if name not in others}
    largest = _largest(free or sizes)
    return next(test for test in pending if heap(test) == largest)


def _largest(sizes: dict[str, int]) -> str:
    return max(sizes, key=lambda name: sizes[name])


def scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's scheduler of `--dist load`, that picks the tests which it sends by their backend."""
    from xdist.scheduler import LoadScheduling

    return _by_backend(LoadScheduling)(config, log)


def _by_backend(load_scheduling: Any) -> Any:
    class ByBackend(load_scheduling):  # type: ignore[misc]
        def _send_tests(self, node: Any, num: int) -> None:
            if not hasattr(self, "_at"):
                self._at: dict[Any, str] = {}
            tests = [self._take(node) for _ in range(min(num, len(self.pending)))]
            if tests:
                self.node2pending[node].extend(tests)
                node.send_runtest_some(tests)

        def _take(self, node: Any) -> int:
            others = _at(self._at, (other for other in self.node2pending if other is not node))
            test = next_test(
                self.pending, lambda index: heap_of(self.collection[index]), self._at.get(node, ""), others
            )
            self._at[node] = heap_of(self.collection[test])
            self.pending.remove(test)
            return test

    return ByBackend


def _at(places: dict[Any, str], nodes: Iterable[Any]) -> set[str]:
    return {places[node] for node in nodes if node in places}
