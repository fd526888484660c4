from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_attnperf.measure.rejection import BuildLog, CompileWatch
from pytest_attnperf.measure.sampling import sample_blocks
from pytest_attnperf.measure.stopping import StoppingRule

pytest_plugins = ["tests.measure.fake_autotuners"]


def test_torch_compile_is_counted() -> None:
    """A shape that torch.compile has not seen raises the count; one it has seen does not."""
    compiled = torch.compile(lambda tensor: tensor * 2 + 1, backend="eager", dynamic=False)
    with CompileWatch() as watch:
        before = watch.count
        compiled(torch.ones(3))
        first = watch.count
        compiled(torch.ones(3))
        again = watch.count
        compiled(torch.ones(4))
        assert (first - before, again - first, watch.count - again) == (1, 0, 1)


def test_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither torch._dynamo nor Triton is loaded the watch loads neither and counts nothing."""
    for name in ("torch._dynamo.utils", "triton.knobs", "triton.runtime.jit"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with CompileWatch() as watch:
        assert watch.count == 0
    assert "torch._dynamo.utils" not in sys.modules
    assert "triton.runtime.jit" not in sys.modules


def _fake_triton(monkeypatch: pytest.MonkeyPatch, hook: Any) -> Any:
    """Triton's knobs as of 3.4, holding `hook`; the real ones need a GPU to compile anything."""
    knobs = ModuleType("triton.knobs")
    runtime = SimpleNamespace(jit_cache_hook=hook)
    knobs.runtime = runtime  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton.knobs", knobs)
    return runtime


def test_triton_compilations_are_counted_and_the_hook_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's hook counts while watched and is what it was before afterwards."""
    runtime = _fake_triton(monkeypatch, None)
    with CompileWatch() as watch:
        before = watch.count
        assert runtime.jit_cache_hook(key="k", repr="kernel[...]") is None
        assert watch.count - before == 1
    assert runtime.jit_cache_hook is None


def test_the_installed_triton_has_the_hook() -> None:
    """The Triton that is installed takes the hook and gives it back."""
    knobs = pytest.importorskip("triton.knobs", reason="Triton 3.4 or later is not installed")
    before = knobs.runtime.jit_cache_hook
    with CompileWatch() as watch:
        assert knobs.runtime.jit_cache_hook(fn=SimpleNamespace(name="add")) is None
        assert watch.description == "1 x Triton kernel add"
    assert knobs.runtime.jit_cache_hook is before


def test_an_existing_triton_hook_still_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that was there is called with the same arguments, and its answer is passed on."""
    seen: list[dict[str, Any]] = []

    def hook(**kwargs: Any) -> bool:
        seen.append(kwargs)
        return True

    runtime = _fake_triton(monkeypatch, hook)
    with CompileWatch():
        assert runtime.jit_cache_hook(key="k") is True
    assert seen == [{"key": "k"}]
    assert runtime.jit_cache_hook is hook


def test_a_hook_installed_meanwhile_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving does not take away a hook that someone else put in place while watching."""
    runtime = _fake_triton(monkeypatch, None)
    with CompileWatch():
        runtime.jit_cache_hook = print
    assert runtime.jit_cache_hook is print


def test_older_triton_keeps_its_hook_on_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Triton 3.4 the hook is a class attribute of JITFunction."""
    jit = ModuleType("triton.runtime.jit")
    function = type("JITFunction", (), {"cache_hook": None})
    jit.JITFunction = function  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "triton.knobs", raising=False)
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", jit)
    with CompileWatch() as watch:
        before = watch.count
        function.cache_hook()  # type: ignore[attr-defined]
        assert watch.count - before == 1
    assert function.cache_hook is None  # type: ignore[attr-defined]


def test_tuning_by_triton_is_counted(triton_tuner: Callable[..., Any]) -> None:
    """Every configuration that Triton's autotuner times counts, under the kernel's name; a tuned kernel does not."""
    tuner, x = triton_tuner(), SimpleNamespace(dtype="torch.float16")
    bench = type(tuner)._bench
    with CompileWatch() as watch:
        before = watch.count
        tuner.run(x, 512)
        tuned = watch.count
        tuner.run(x, 512)
        again = watch.count
        tuner.run(x, 1024)
        assert (tuned - before, again - tuned, watch.count - again) == (2, 0, 2)
        assert watch.description == "4 x configuration of the autotuned kernel tuned"
    assert type(tuner)._bench is bench


def test_a_choice_from_disk_is_counted(triton_tuner: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that Triton's autotuner looks up on disk takes time in a block, too."""
    tuner, x = triton_tuner(), SimpleNamespace(dtype="torch.float16")
    if not hasattr(type(tuner), "check_disk_cache"):
        pytest.skip("this Triton keeps no choices on disk")

    def found_on_disk(autotuner: Any, key: Any, configs: list[Any], bench: Any) -> bool:
        autotuner.cache[key] = configs[0]
        autotuner.configs_timings = {}
        return True

    monkeypatch.setattr(type(tuner), "check_disk_cache", found_on_disk)
    tuner.cache_results = True
    with CompileWatch() as watch:
        before = watch.count
        tuner.run(x, 512)
        assert watch.count - before == 1


def test_tuning_by_inductor_is_counted(inductor_tuner: type[Any]) -> None:
    """Every configuration that Inductor compiles or times in this process counts, under the kernel's name."""
    tuner = inductor_tuner("triton_poi_fused_0", (256, 512))
    with CompileWatch() as watch:
        before = watch.count
        tuner.run()
        tuned = watch.count
        tuner.run()
        assert (tuned - before, watch.count - tuned) == (4, 0)
        assert watch.description == "4 x configuration of Inductor's kernel triton_poi_fused_0"


def test_a_build_by_aiter_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that aiter builds on first use counts under its name."""
    core: Any = ModuleType("aiter.jit.core")
    core.build_module = lambda name, sources: f"{name}.so"
    monkeypatch.setitem(sys.modules, "aiter.jit.core", core)
    with CompileWatch() as watch:
        assert core.build_module("mha_fwd", []) == "mha_fwd.so"
        assert watch.description == "1 x build of aiter's mha_fwd"


def test_what_cannot_be_named_is_counted(inductor_tuner: type[Any]) -> None:
    """Where another version has no such name inside, the count is the same."""
    tuner = inductor_tuner("triton_poi_fused_0", (256, 512))
    del tuner.kernel_hash
    with CompileWatch() as watch:
        tuner.run()
        assert watch.description == "4 x kernel that cannot be named"


def test_only_the_most_frequent_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long list of kernels is cut, and says how many it leaves out."""
    runtime = _fake_triton(monkeypatch, None)
    with CompileWatch() as watch:
        for number in range(8):
            runtime.jit_cache_hook(fn=SimpleNamespace(name=f"kernel_{number}"))
        assert watch.description.endswith("1 x Triton kernel kernel_5, 2 more")


def _aiter_says(*lines: str) -> None:
    for line in lines:
        logging.getLogger("aiter").info(line)


@pytest.fixture
def aiter_logger() -> Iterator[logging.Logger]:
    """aiter's logger, whose level, flags and filters are afterwards what they were before the test."""
    logger = logging.getLogger("aiter")
    before = (logger.level, logger.disabled, logger.propagate, list(logger.filters), list(logger.handlers))
    yield logger
    level, logger.disabled, logger.propagate, logger.filters[:], logger.handlers[:] = before
    logger.setLevel(level)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("start build [mha_fwd_bf16_nbias] under /jit/build", "'start build mha_fwd_bf16_nbias' in aiter's log"),
        ("finish build [mha_fwd_bf16_nbias], cost 71.30000000s", "'finish build mha_fwd_bf16_nbias' in aiter's log"),
        ("\x1b[32mfinish build [module_norm], cost 3.1s \x1b[0m", "'finish build module_norm' in aiter's log"),
        ("start build /opt/aiter/build/pa_1f2e", "'start build pa_1f2e' in aiter's log"),
        ("finish build /opt/aiter/build/pa_1f2e, cost 9.5s", "'finish build pa_1f2e' in aiter's log"),
        ("import [module_norm] under /jit/module_norm.so", "'import module_norm' in aiter's log"),
    ],
)
def test_what_aiter_logs_of_builds_is_counted(line: str, said: str) -> None:
    """Each wording of aiter's versions counts, in colour or not; a folder is told by its last part."""
    with CompileWatch() as watch:
        before = watch.count
        _aiter_says(line)
        assert watch.count - before == 1
        assert watch.description == f"1 x {said}"


def test_other_lines_of_aiter_are_not_builds(aiter_logger: logging.Logger) -> None:
    """Its remarks on tuning files and on imports in general do not reject a sample."""
    with CompileWatch() as watch:
        _aiter_says("shape M:1 not found tuned config", "path 1: /x (not exist)", "flydsl: import failed", "build done")
        assert watch.description == ""


@pytest.mark.parametrize("how", ["level", "disabled", "propagate"])
def test_a_silenced_logger_is_heard_and_stays_silent(aiter_logger: logging.Logger, how: str) -> None:
    """Builds count whatever was set, nobody else hears more for it, and all is as before afterwards."""
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    aiter_logger.addHandler(handler)
    aiter_logger.setLevel(logging.WARNING if how == "level" else logging.INFO)
    aiter_logger.disabled = how == "disabled"
    aiter_logger.propagate = how != "propagate"
    before = (aiter_logger.level, aiter_logger.disabled, aiter_logger.propagate, list(aiter_logger.handlers))
    with CompileWatch() as watch:
        _aiter_says("start build [mha_fwd] under /x")
        assert watch.description == "1 x 'start build mha_fwd' in aiter's log"
    assert (aiter_logger.level, aiter_logger.disabled, aiter_logger.propagate, aiter_logger.handlers) == before
    assert aiter_logger.filters == []
    assert heard == (["start build [mha_fwd] under /x"] if how == "propagate" else [])


def test_watches_within_each_other_all_hear(aiter_logger: logging.Logger) -> None:
    """A watch around a case's first run and one around the sampling both count a build."""
    aiter_logger.setLevel(logging.ERROR)
    with CompileWatch() as outer, BuildLog() as log, CompileWatch() as inner:
        before = (outer.count, inner.count)
        _aiter_says("start build [a] under /x", "finish build [a], cost 1.0s", "start build [b] under /x")
        assert (outer.count - before[0], inner.count - before[1]) == (3, 3)
    assert set(log.built) == {"a", "b"}
    assert (aiter_logger.level, aiter_logger.filters) == (logging.ERROR, [])


def test_a_level_set_meanwhile_is_kept(aiter_logger: logging.Logger) -> None:
    """aiter's import sets the level of its logger; leaving the watch does not undo that."""
    aiter_logger.setLevel(logging.WARNING)
    with CompileWatch():
        aiter_logger.setLevel(logging.DEBUG)
    assert aiter_logger.level == logging.DEBUG


def test_a_compile_by_aiters_ctypes_interfaces_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """They build with a function of their own, which says nothing while another process builds the same."""
    utils: Any = ModuleType("csrc.cpp_itfs.utils")
    utils.compile_lib = lambda source, folder, includes=None: folder
    monkeypatch.setitem(sys.modules, "csrc.cpp_itfs.utils", utils)
    with CompileWatch() as watch:
        assert utils.compile_lib("int x;", "pa_1f2e") == "pa_1f2e"
        assert watch.description == "1 x build of aiter's pa_1f2e"


class _BuildingTimer:
    """Blocks of 100, 101, ... us per call; while the third is measured, aiter builds a module."""

    name, cache_state, note, replays = "building", "hot", "", False
    calls_per_block, max_pairs = 10, 1
    clock_mhz: tuple[float, ...] = ()
    blocks = 0

    def prepare(self, call: Any, block_us: float) -> None:
        """Nothing to prepare."""

    def measure(self, pairs: int) -> list[float]:
        """One block."""
        self.blocks += 1
        if self.blocks == 3:
            _aiter_says("start build [mha_fwd_fp16_lse] under /x", "finish build [mha_fwd_fp16_lse], cost 71.3s")
        return [99.0 + self.blocks]

    def run_once(self, *, poisoned: bool = False) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing to free."""


def test_a_sample_with_a_build_is_rejected() -> None:
    """The block during which aiter built is measured again; its time is in no sample."""
    with CompileWatch() as watch:
        samples = sample_blocks(_BuildingTimer(), StoppingRule(4, 4, 1e9), watch)
    assert samples.block_us == (100.0, 101.0, 103.0, 104.0)
    assert samples.rejected_blocks == 1
