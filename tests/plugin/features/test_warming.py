"""`pytest --attnperf-warm`: what it says in the end, and one run on the fake device."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.config import RunConfig
from pytest_attnperf.plugin.features.warming import (
    CASE_LIMIT_S,
    CacheFolder,
    Contents,
    backend_lines,
    cache_folders,
    growth_lines,
    lost_lines,
    read_contents,
    refuse_warm,
    slowest_table,
    total_line,
)
from pytest_attnperf.plugin.run import run_settings
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.warm import Reopened

KEY = CaseKey("prefill", "triton.flash", "prefill-b1-s4096-h16-d128-f16-causal")
LOST = Reopened(KEY, 41.0, 39.0, 3.0, autotuned=True)


def result(backend: str, seconds: float, verdict: Verdict = Verdict.RIGHT) -> CaseResult:
    """A case that was opened once."""
    return CaseResult(CaseKey("prefill", backend, "w"), "test.py::test", verdict, "", seconds=seconds)


def test_totals() -> None:
    """How many are ready, what is not, and seconds by backend, the most first and the rest together."""
    results = [result(f"b{number}", float(number)) for number in range(1, 11)]
    results += [result("bad", 1.0, Verdict.ERROR), result("no", 0.0, Verdict.UNSUPPORTED)]
    said = "warm: 10 of 12 cases are ready, in 3 min, 1 unsupported here, 1 could not be made ready"
    assert total_line(results, 180.0, 12) == said
    assert total_line(results[:2], 9.0, 12) == "warm: 2 of 12 cases are ready, in 9 s, 10 not opened"
    (line,) = backend_lines(results)
    assert line.startswith("first calls: b10 10 s, b9 9 s, ")
    assert line.endswith(", b3 3 s, 4 others 4 s")
    assert backend_lines([]) == []


def test_the_table_of_the_slowest() -> None:
    """First calls stand beside those of a fresh process and the proof alone, within 80 columns."""
    text = slowest_table([LOST], 80)
    assert "first call" in text
    assert [part for part in ("41 s", "39 s", "3 s") if part not in text] == []
    assert max(len(line) for line in text.splitlines()) <= 80
    assert slowest_table([], 80) == ""


def test_what_is_not_kept_is_named_with_what_would_keep_it() -> None:
    """An autotuner's choice is kept by a variable of Triton or a pinned configuration; else the folders are named."""
    (line,) = lost_lines([LOST, Reopened(KEY, 41.0, 3.0, 3.0)], {})
    assert line.startswith(f"not kept on disk: {KEY}: a fresh process pays 36 s of 38 s again; its autotuner keeps")
    assert "TRITON_CACHE_AUTOTUNING=1" in line
    assert "--attnperf-pin-config" in line
    (line,) = lost_lines([LOST], {"TRITON_CACHE_AUTOTUNING": "1"})
    assert "pre_hook" in line
    (line,) = lost_lines([Reopened(KEY, 41.0, 39.0, 3.0)], {})
    assert "check that the cache folders can be written" in line


@pytest.mark.parametrize(("distributed", "said"), [(False, "isolate=none"), (True, "-n0")])
def test_what_cannot_be_warmed(distributed: bool, said: str) -> None:
    """Warming needs processes of its own, one at a time."""
    with pytest.raises(UsageError, match=said):
        refuse_warm(RunConfig(isolate="none"), distributed=distributed)
    refuse_warm(RunConfig(), distributed=False)


def test_the_case_limit() -> None:
    """Hours, unless one was typed: an ini file's is for timed runs."""
    for typed, seconds in (({}, CASE_LIMIT_S), ({"case-limit": "20"}, 20.0)):
        asked = RunConfig(warm=True, case_limit="20", typed=typed)
        assert run_settings(asked, 0, distributed=False).case_limit_seconds == seconds


def test_variables_say_where(tmp_path: Path) -> None:
    """Each variable is heeded as its owner does; without them the folders lie in the home and the temporary folder."""
    names = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "AITER_JIT_DIR", "build")
    said = {name: str(tmp_path / name) for name in names} | {"AITER_ROOT_DIR": str(tmp_path)}
    found = cache_folders(said, tmp_path / "project", tmp_path / "home")
    assert [folder.path.name for folder in found] == [*names, "cache"]
    usual = cache_folders({}, tmp_path / "project", tmp_path / "home")
    by_name = {folder.name: folder.path for folder in usual}
    assert by_name["Triton"] == tmp_path / "home" / ".triton" / "cache"
    assert by_name["torch extensions"] == tmp_path / "home" / ".cache" / "torch_extensions"
    assert {folder.path for folder in usual if folder.name == "aiter"} >= {
        tmp_path / "home" / ".aiter" / "jit",
        tmp_path / "home" / ".aiter" / "build",
    }
    assert by_name["Inductor"].name.startswith("torchinductor_")
    assert by_name["attnperf"] == tmp_path / "project" / ".attnperf" / "cache"
    triton = cache_folders({"TRITON_HOME": str(tmp_path)}, tmp_path, tmp_path / "home")[0]
    assert triton.path == tmp_path / ".triton" / "cache"


def test_contents_and_growth(tmp_path: Path) -> None:
    """Files and bytes at any depth are counted; only what changed is said, and that nothing did where that is so."""
    folder, idle = CacheFolder("Triton", tmp_path / "new"), CacheFolder("Inductor", tmp_path / "absent")
    before = {one: read_contents(one.path) for one in (folder, idle)}
    assert before[folder] == Contents(0, 0)
    (tmp_path / "new" / "deep").mkdir(parents=True)
    (tmp_path / "new" / "deep" / "kernel.cubin").write_bytes(b"x" * 1_500_000)
    (tmp_path / "new" / "kernel.json").write_bytes(b"{}")
    after = {one: read_contents(one.path) for one in (folder, idle)}
    assert growth_lines(before, after) == [f"cache of Triton: +2 files, +1.5 MB in {tmp_path / 'new'}"]
    assert growth_lines(after, after) == ["no cache grew: Triton, Inductor had everything, or nothing was written"]
