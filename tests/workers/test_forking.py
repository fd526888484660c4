"""What keeps a process from being a template, and what its forks need; workers that are forked are in test_template."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.workers import forking
from pytest_attnperf.workers.forking import Obstacle, is_driver_initialised, reseed_random, spare_driver

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")


def cuda(answer: int) -> Callable[[], Any]:
    """A driver whose count of devices gives this status."""
    return lambda: SimpleNamespace(cuDeviceGetCount=lambda count: answer)


@pytest.mark.parametrize(("answer", "touched"), [(3, False), (0, True), (100, True)])
def test_the_driver_is_asked_whether_it_was_initialised(answer: int, touched: bool) -> None:
    """Any answer but CUDA_ERROR_NOT_INITIALIZED comes of an initialised one, 'no device' too."""
    assert is_driver_initialised({}, cuda(answer)) is touched


def test_a_process_without_a_driver_has_not_touched_it() -> None:
    """Nothing is loaded to find that out."""
    assert not is_driver_initialised({}, lambda: None)
    assert not is_driver_initialised({"torch": SimpleNamespace()}, cuda(3))


def test_torch_is_asked_too() -> None:
    """It knows of a context that it has made."""
    torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True))
    assert is_driver_initialised({"torch": torch}, lambda: None)


def test_an_open_node_of_amd_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """HIP opens /dev/kfd when it is initialised, and keeps it."""
    monkeypatch.setattr(forking, "AMD_NODE", os.devnull)
    with open(os.devnull, "rb"):
        assert is_driver_initialised({}, lambda: None)


def test_the_real_driver_is_asked_with_a_pointer() -> None:
    """ctypes hands over where to write the count."""
    seen = []
    is_driver_initialised({}, lambda: SimpleNamespace(cuDeviceGetCount=lambda count: seen.append(count) or 3))
    assert isinstance(seen[0]._obj, ctypes.c_int)


def found_in(code: str) -> str:
    """The obstacle that a process finds behind `code`, by name; 'None' without one."""
    program = f"from pytest_attnperf.workers.forking import find_obstacle\n{textwrap.dedent(code)}\n"
    program += "found = find_obstacle(loaded)\nprint(found and found.name)\n"
    answer = subprocess.run(
        [sys.executable, "-c", "loaded = {}\n" + program], capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


def test_a_plain_process_is_a_template() -> None:
    """Nothing keeps it from that, and its trial is killed as its controller's end demands."""
    assert found_in("") == "None"


def test_a_thread_is_an_obstacle_and_an_idle_one_is_not() -> None:
    """pytest-rerunfailures starts a thread that waits for what never comes to a worker."""
    code = """
    import threading, types
    wait = types.FunctionType((lambda: threading.Event().wait()).__code__, globals())
    wait.__module__ = {module!r}
    threading.Thread(target=wait, daemon=True).start()
    """
    assert found_in(code.format(module="pytest_rerunfailures")) == "None"
    assert found_in(code.format(module="a_suite")) == "THREADS"


def test_threads_of_a_library_that_can_be_forked_are_none() -> None:
    """OpenBLAS starts as many as there are cores when numpy is imported, and ends them before a fork."""
    pytest.importorskip("numpy")
    assert found_in("import numpy") == "None"


def test_what_torch_refuses_in_a_fork_is_found_by_trying() -> None:
    """It remembers that it has asked for a GPU, where the driver does not."""
    code = """
    from types import SimpleNamespace
    import os
    own = os.getpid()
    asked = SimpleNamespace(is_initialized=lambda: False, _is_in_bad_fork=lambda: os.getpid() != own)
    loaded = {"torch": SimpleNamespace(cuda=asked)}
    """
    assert found_in(code) == "DRIVER"


def test_a_system_that_ends_nothing_is_found_by_trying() -> None:
    """A sandbox whose kernel takes no signal for a pipe would leave workers behind."""
    code = """
    import fcntl
    from pytest_attnperf.workers import forking
    forking.TRIAL_SECONDS = 0.1
    forking.end_with = lambda life: None
    """
    assert found_in(code) == Obstacle.KERNEL.name


def test_a_process_ends_with_the_other_end_of_its_pipe() -> None:
    """Also where that was closed before it asked."""
    for close_first in (True, False):
        life, controller = os.pipe()
        code = f"import time\nfrom pytest_attnperf.workers.forking import end_with\nend_with({life})\ntime.sleep(60)"
        if close_first:
            os.close(controller)
        process = subprocess.Popen([sys.executable, "-c", code], pass_fds=(life,))
        os.close(life)
        if not close_first:
            os.close(controller)
        assert process.wait(20) == -signal.SIGKILL


def test_the_check_that_spares_the_driver_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the user has set it."""
    monkeypatch.delenv(forking.NVML_CHECK, raising=False)
    undo = spare_driver()
    assert os.environ[forking.NVML_CHECK] == "1"
    undo()
    assert forking.NVML_CHECK not in os.environ
    monkeypatch.setenv(forking.NVML_CHECK, "0")
    spare_driver()()
    assert os.environ[forking.NVML_CHECK] == "0"


def test_numbers_of_numpy_are_drawn_anew_unless_it_was_seeded() -> None:
    """A suite that seeds it as it is imported has the same numbers in every process, forked or fresh."""
    numpy = pytest.importorskip("numpy")
    before, state = numpy.random.get_state(), random.getstate()
    try:
        numpy.random.seed(5)
        first = numpy.random.get_state()[1].tolist()
        reseed_random(forking._DRAWN_AT_START)
        assert numpy.random.get_state()[1].tolist() == first
        numpy.random.set_bit_generator(numpy.random.MT19937())
        unseeded = numpy.random.get_state()[1].tolist()
        reseed_random(forking._DRAWN_AT_START)
        assert numpy.random.get_state()[1].tolist() != unseeded
    finally:
        numpy.random.set_state(before)
        random.setstate(state)


def test_threads_of_this_process_are_counted() -> None:
    """Of another thread its id is said, of the one that asks nothing."""
    ends, began = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (began.set(), ends.wait()))
    thread.start()
    began.wait()
    assert thread.native_id in forking._thread_ids()
    assert threading.get_native_id() not in forking._thread_ids()
    ends.set()
    thread.join()
