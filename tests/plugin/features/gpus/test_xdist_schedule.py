from __future__ import annotations

from pytest_attnperf.plugin.features.gpus.xdist_schedule import heap_of, next_test

BACKENDS = ("native.eager", "triton.flash", "hip.best")
TESTS = [
    f"suites/test_prefill.py::test_prefill[{backend}-prefill-b1-s{number}-h1-d16-f16]"
    for number in range(8)
    for backend in BACKENDS
]
"""As pytest collects them: workload by workload, with all backends of each."""


def dealt_out(workers: int) -> list[list[str]]:
    """What each worker runs where all cases take the same time."""
    pending = list(range(len(TESTS)))
    ran: list[list[str]] = [[] for _ in range(workers)]
    at = [""] * workers
    while pending:
        for worker in range(workers):
            if pending:
                others = {at[other] for other in range(workers) if other != worker}
                test = next_test(pending, lambda index: heap_of(TESTS[index]), at[worker], others)
                pending.remove(test)
                at[worker] = heap_of(TESTS[test])
                ran[worker].append(TESTS[test])
    return ran


def test_a_worker_stays_with_its_backend_and_helps_at_the_end() -> None:
    """Two workers share three backends: each begins one, both end together, and the order of workloads stays."""
    ran = dealt_out(2)
    assert [len(tests) for tests in ran] == [12, 12]
    for tests in ran:
        backends = [heap_of(test).partition("[")[2] for test in tests]
        assert len(set(backends)) == 2
        assert backends == sorted(backends, key=backends.index)
        assert tests[:8] == [test for test in TESTS if heap_of(test) == heap_of(tests[0])]


def test_every_test_is_dealt_out_once() -> None:
    """More workers than backends share one, and nothing is lost or run twice."""
    for workers in (1, 4, 30):
        ran = [test for tests in dealt_out(workers) for test in tests]
        assert sorted(ran) == sorted(TESTS)


def test_a_test_without_parameters_is_a_heap_of_its_own() -> None:
    """Ordinary tests beside cases have no backend."""
    assert heap_of("test_other.py::test_plain") != heap_of("test_other.py::test_other")
