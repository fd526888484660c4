"""Runs on several GPUs: workers of pytest-xdist, each on its own GPU, and cases on all GPUs at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from pytest_attnperf.environment.cards import GpuBusyError, lease_directory, lease_free
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import count_xdist_workers, is_distributed, is_xdist_controller, run_config
from pytest_attnperf.plugin.features.gpus import xdist_gpus
from pytest_attnperf.plugin.features.gpus.gpu_choice import (
    PIN,
    CardWatch,
    GpuChoice,
    check_same_product,
    describe_left_out,
    own_gpus,
    usable_cards,
)

TOGETHER = "--attnperf-together"
NOT_TOGETHER = (
    *options.TIMED[:3],
    ("warm", "--attnperf-warm"),
    ("profile", "--attnperf-profile"),
    ("changed", "--attnperf-changed"),
    ("record_local", "--attnperf-record-local"),
)

_NOTES = pytest.StashKey[tuple[str, ...]]()
_WATCH = pytest.StashKey[CardWatch]()


def auto_workers(config: pytest.Config) -> int | None:
    """Returns the number of workers of `-n auto` in a timed run: one per GPU, 0 on a CPU. None leaves it to xdist.
    Raises UsageError as `usable_cards`."""
    return len(usable_cards(config)) if run_config(config).is_timed else None


def refuse_pin(config: pytest.Config) -> None:
    """Raises UsageError if --attnperf-pin-gpu fits no GPU, or cases run in pytest's own process."""
    pins = run_config(config).pin_gpu
    if run_config(config).in_process:
        raise pytest.UsageError(
            f"{PIN}={pins} says where workers run, and --attnperf-isolate=none starts none; drop one"
        )
    usable_cards(config)


def refuse_workers(config: pytest.Config) -> None:
    """Raises UsageError for more workers of xdist than devices, and for `--dist each`, which repeats cases."""
    if not is_xdist_controller(config):
        return
    flag = _find_flag(config)
    if config.getoption("dist") == "each":
        raise pytest.UsageError(
            f"--dist each with {flag}: every worker would measure every case, and only the last result would count; "
            "use --dist load"
        )
    workers, cards = count_xdist_workers(config), usable_cards(config)
    if workers <= max(1, len(cards)):
        return
    what = f"{len(cards)} visible GPU{'s' if len(cards) != 1 else ''}" if cards else "one CPU"
    raise pytest.UsageError(
        f"-n {workers} with {flag}, but {what}: timings of workers that share a device disturb each other; "
        f"use -n {max(1, len(cards))}" + ("" if cards else " or no -n")
    )


def refuse_together(config: pytest.Config) -> None:
    """Raises UsageError for --attnperf-together with another mode, with -n, without workers, or on less than 2 GPUs."""
    asked = run_config(config)
    if not asked.together:
        return
    for name, flag in NOT_TOGETHER:
        if getattr(asked, name):
            raise pytest.UsageError(f"{flag} with {TOGETHER}: it only shows how cards disturb each other; drop one")
    for name in ("budget", "against"):
        if name in asked.typed:
            flag = options.BY_NAME[name].flag
            raise pytest.UsageError(
                f"{flag} with {TOGETHER}: it judges nothing and needs neither budget nor base side; drop one"
            )
    if is_distributed(config):
        raise pytest.UsageError(f"{TOGETHER} with -n: it uses all GPUs by itself; drop -n, or give -n0")
    if asked.in_process:
        raise pytest.UsageError(f"{TOGETHER} needs a process on each GPU; drop --attnperf-isolate=none")
    seen = len(usable_cards(config))
    if seen < 2:
        raise pytest.UsageError(
            f"{TOGETHER} needs at least 2 GPUs to run on at once, and this run sees {seen or 'none'}"
            + (f"; see CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and {PIN}" if seen else "")
        )


def prepare_xdist(config: pytest.Config) -> None:
    """Leases or checks the GPUs of a run whose cases run in xdist's workers, and passes them to the workers.

    Each worker leases one. A recording measures on all cards; those without a worker are leased here. The state of
    the cards is also read here, because no worker runs yet.

    Raises GpuBusyError if fewer GPUs are free than workers start.
    """
    if config.getoption("maxschedchunk", default=None) is None:
        config.option.maxschedchunk = 1  # cases take seconds: many left at one worker would take minutes
    cards, workers = usable_cards(config), count_xdist_workers(config)
    if not cards:
        config.stash[_WATCH] = CardWatch.begin(())
    if not cards or not workers:
        return
    records = run_config(config).is_recording
    if records or workers > 1:
        check_same_product(config)
    leases = lease_free(cards)
    free = [card for card in cards if card.token in {lease.token for lease in leases}]
    spare = leases[workers:] if records else []
    for lease in leases:
        if lease not in spare:
            lease.release()
    if len(free) < workers:
        raise GpuBusyError(
            f"{workers} workers, but only {len(free)} of {len(cards)} visible GPUs are free: other runs hold the rest "
            f"(locks in {lease_directory()}); wait for it to end, or use -n {max(1, len(free))}"
        )
    for lease in spare:
        config.add_cleanup(lease.release)
    config.stash[_NOTES] = (
        describe_left_out([card for card in cards if card not in free], len(cards)) if records else ()
    )
    leased = workers if records else len(free)
    own_device = bool(own_gpus(config))
    xdist_gpus.hand_down(config, free, leased, own_device=own_device)
    used = free if records else free[:workers]
    config.stash[_WATCH] = CardWatch.begin([card.token for card in used], own_device=own_device)


def read_controller_choice(config: pytest.Config) -> GpuChoice:
    """Returns xdist's controller's choice: no GPU, but the notes and GPU states that `prepare_xdist` kept."""
    return GpuChoice(notes=config.stash.get(_NOTES, ()), watch=config.stash.get(_WATCH, None))


def _find_flag(config: pytest.Config) -> str:
    return next(flag for name, flag in options.TIMED if getattr(run_config(config), name))


def heap_of(nodeid: str) -> str:
    """Returns 'file::function[backend' of a test id: tests of one backend should run in one worker."""
    test, _, parameters = nodeid.partition("[")
    return f"{test}[{parameters.partition('-')[0]}"  # names of backends have no hyphen


def next_test(pending: Sequence[int], heap: Callable[[int], str], current: str, others: Collection[str]) -> int:
    """Returns the test that a worker runs next after one of group `current`: one of that group, else one of the largest
    group, if possible of a group that no other worker runs.

    pending   indices of tests that no worker has yet; not empty
    heap      returns the group of a test (`heap_of`)
    others    groups that the other workers run
    """
    own = next((test for test in pending if heap(test) == current), None)
    if own is not None:
        return own
    sizes = Counter(map(heap, pending))
    free = {name: size for name, size in sizes.items() if name not in others}
    most = free or sizes
    largest = max(most, key=lambda name: most[name])
    return next(test for test in pending if heap(test) == largest)


def make_backend_scheduler(config: pytest.Config, log: Any) -> Any:
    """Returns xdist's scheduler for `--dist load`, changed to give a worker tests of the same backend.

    Each backend costs a process time once (compiler start, loading kernels). In the order of workloads every worker
    would pay this for all backends. Tests are still sent one by one, so that workers end together: a worker without
    tests of its backend takes the backend with most tests that no other worker has, and at the end helps others.
    """
    from xdist.scheduler import LoadScheduling

    return _make_scheduler_class(LoadScheduling)(config, log)


def _make_scheduler_class(load_scheduling: Any) -> Any:
    class ByBackend(load_scheduling):  # type: ignore[misc]
        def _send_tests(self, node: Any, num: int) -> None:
            if not hasattr(self, "_at"):
                self._at: dict[Any, str] = {}
            tests = [self._take(node) for _ in range(min(num, len(self.pending)))]
            if tests:
                self.node2pending[node].extend(tests)
                node.send_runtest_some(tests)

        def _take(self, node: Any) -> int:
            others = {self._at[other] for other in self.node2pending if other is not node and other in self._at}
            test = next_test(
                self.pending, lambda index: heap_of(self.collection[index]), self._at.get(node, ""), others
            )
            self._at[node] = heap_of(self.collection[test])
            self.pending.remove(test)
            return test

    return ByBackend
