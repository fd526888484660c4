from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import filelock
import pytest

from pytest_attnperf.baselines import store as store_module
from pytest_attnperf.baselines import writing
from pytest_attnperf.baselines.schema import Anchor, content_id, decode_baseline
from pytest_attnperf.baselines.store import BaselineStore, read_content
from pytest_attnperf.baselines.writing import NewEntry, merge_entries
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import CheckReport, ErrorFigures, Fingerprint, Measurement, ProcessSummary
from pytest_attnperf.stats.noise import NoiseModel

HERE = Fingerprint({"product": "h200"}, {"torch": "2.11"})
PLACE = ("sm_90", "h200", "prefill")


def new_entry(median_us: float = 100.0, processes: int = 7, **changes: Any) -> NewEntry:
    """A right case of this median, ready to be stored."""
    process = ProcessSummary(median_us, median_us, median_us, (median_us,), 20, "graph")
    proof = tuple(
        CheckReport(figures=(ErrorFigures("fresh", "out", share * 0.02, 0.02, 0.001, 0.01),))
        for share in (0.5, *(0.25,) * (processes - 1))
    )
    measurement = Measurement((process,) * processes, proof, 4096)
    plain = NewEntry(measurement, {"shape": (1, 2)}, HERE, {"threshold_percent": 2.0}, "2026-01-02", "0.1.0")
    return dataclasses.replace(plain, **changes)


def test_what_was_merged_is_found(tmp_path: Path) -> None:
    """A merged case comes back with its processes, worst check, environment, policy and path."""
    store = BaselineStore(tmp_path)
    path = merge_entries(
        store, tmp_path, *PLACE, {"ck/w": new_entry(config={"BLOCK_M": "64"}, commit="abc", note="first")}
    )
    found = store.find(*PLACE, "ck/w")
    assert path == tmp_path / "sm_90" / "h200" / "prefill.json"
    assert found is not None
    assert (found.fingerprint, found.policy, found.path) == (HERE, {"threshold_percent": 2.0}, path)
    assert found.entry.to_measurement().medians_us == (100.0,) * 7
    assert (found.entry.check.max_error_over_budget, found.entry.check.rms_error_over_budget) == (0.5, 0.1)
    assert (found.entry.workload, found.entry.config) == ({"shape": [1, 2]}, {"BLOCK_M": "64"})
    assert (found.entry.commit, found.entry.note, found.entry.peak_memory_bytes) == ("abc", "first", 4096)


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    """No file and no entry are both None: the gate's NO_BASELINE, not an error."""
    store = BaselineStore(tmp_path)
    assert store.find(*PLACE, "ck/w") is None
    merge_entries(store, tmp_path, *PLACE, {"ck/w": new_entry()})
    assert store.find(*PLACE, "ck/other") is None
    assert store.find("sm_90", "h100", "prefill", "ck/w") is None


def test_a_merge_never_drops_others(tmp_path: Path) -> None:
    """A partial run replaces its own entries; the others keep their processes, environment and policy."""
    store = BaselineStore(tmp_path)
    merge_entries(store, tmp_path, *PLACE, {"a": new_entry(1.0), "b": new_entry(2.0)})
    later = Fingerprint(HERE.must_match, {"torch": "2.12"})
    merge_entries(store, tmp_path, *PLACE, {"b": new_entry(3.0, fingerprint=later, policy={"threshold_percent": 5.0})})
    found = store.load(*PLACE)
    assert {key: entry.entry.processes[0].median_us for key, entry in found.items()} == {"a": 1.0, "b": 3.0}
    assert (found["a"].fingerprint, found["b"].fingerprint) == (HERE, later)
    assert (found["a"].policy, found["b"].policy) == ({"threshold_percent": 2.0}, {"threshold_percent": 5.0})


def test_environments_nobody_uses_are_left_out(tmp_path: Path) -> None:
    """When the last entry of an environment is replaced, the environment goes with it."""
    store = BaselineStore(tmp_path)
    merge_entries(store, tmp_path, *PLACE, {"a": new_entry()})
    path = merge_entries(store, tmp_path, *PLACE, {"a": new_entry(fingerprint=Fingerprint({}, {"torch": "2.12"}))})
    assert '"2.11"' not in path.read_text()


def test_merging_the_same_again_changes_no_byte(tmp_path: Path) -> None:
    """The file is deterministic: the same records give the same text, with nothing left beside it but the lock."""
    store = BaselineStore(tmp_path)
    path = merge_entries(store, tmp_path, *PLACE, {"a": new_entry(), "b": new_entry(2.0)})
    before = path.read_bytes()
    merge_entries(store, tmp_path, *PLACE, {"b": new_entry(2.0)})
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir() if p.suffix != ".lock") == ["prefill.json"]


def canary(median_us: float) -> dict[str, tuple[ProcessSummary, ...]]:
    """A GEMM measured in three processes."""
    return {"gemm": (ProcessSummary(median_us, median_us, median_us, (), 6, "graph"),) * 3}


def test_a_canary_is_stored_once(tmp_path: Path) -> None:
    """Cases of one recording share its canary by the id of its content, and each finds it again."""
    store = BaselineStore(tmp_path)
    records = {key: new_entry(canary=canary(200.0)) for key in "abc"} | {"d": new_entry()}
    path = merge_entries(store, tmp_path, *PLACE, records)
    assert list(decode_baseline(path.read_bytes(), "x").canaries) == [content_id(canary(200.0))]
    found = store.load(*PLACE)
    assert [found[key].canary for key in "abc"] == [canary(200.0)] * 3
    assert found["d"].canary == {}


def test_a_canary_nobody_uses_is_dropped(tmp_path: Path) -> None:
    """A canary stays while one entry was recorded beside it, and goes with the last."""
    store = BaselineStore(tmp_path)
    merge_entries(store, tmp_path, *PLACE, {key: new_entry(canary=canary(200.0)) for key in "ab"})
    path = merge_entries(store, tmp_path, *PLACE, {"b": new_entry(canary=canary(210.0))})
    assert set(decode_baseline(path.read_bytes(), "x").canaries) == {content_id(canary(us)) for us in (200.0, 210.0)}
    merge_entries(store, tmp_path, *PLACE, {"a": new_entry()})
    assert list(decode_baseline(path.read_bytes(), "x").canaries) == [content_id(canary(210.0))]


def test_the_anchors_environment_is_kept(tmp_path: Path) -> None:
    """An anchor made under an older driver keeps that environment in the file until the anchor itself moves."""
    store = BaselineStore(tmp_path)
    merge_entries(store, tmp_path, *PLACE, {"a": new_entry(100.0)})
    later = Fingerprint(HERE.must_match, {"torch": "2.12"})
    path = merge_entries(store, tmp_path, *PLACE, {"a": new_entry(103.0, fingerprint=later)})
    file = decode_baseline(path.read_bytes(), "x")
    assert set(file.environments) == {content_id(HERE), content_id(later)}
    assert file.entries["a"].anchor == Anchor(100.0, "2026-01-02", content_id(HERE))
    merge_entries(store, tmp_path, *PLACE, {"b": new_entry(1.0, fingerprint=later)})
    assert content_id(HERE) in decode_baseline(path.read_bytes(), "x").environments
    merge_entries(store, tmp_path, *PLACE, {"a": new_entry(99.0, fingerprint=later)})
    assert set(decode_baseline(path.read_bytes(), "x").environments) == {content_id(later)}


def test_an_acknowledged_slowdown_is_stored_with_its_reason(tmp_path: Path) -> None:
    """What was said to be wanted stands beside the new anchor."""
    store = BaselineStore(tmp_path)
    merge_entries(store, tmp_path, *PLACE, {"a": new_entry(100.0)})
    merge_entries(store, tmp_path, *PLACE, {"a": new_entry(120.0, acknowledged="exact softmax")})
    found = store.find(*PLACE, "a")
    assert found is not None
    assert found.entry.anchor == Anchor(120.0, "2026-01-02", content_id(HERE), acknowledged="exact softmax")


def test_earlier_roots_come_first(tmp_path: Path) -> None:
    """An entry of the first root hides that of the second; what only the second has is still found."""
    first, second = tmp_path / "first", tmp_path / "second"
    store = BaselineStore(first, second)
    merge_entries(store, second, *PLACE, {"a": new_entry(1.0), "b": new_entry(2.0)})
    merge_entries(store, first, *PLACE, {"a": new_entry(9.0)})
    found = store.find(*PLACE, "a")
    assert found is not None
    assert found.entry.processes[0].median_us == 9.0
    assert {key: entry.path.parents[2] for key, entry in store.load(*PLACE).items()} == {"a": first, "b": second}
    assert BaselineStore(first).load("sm_90", "h100", "prefill") == {}


def test_products_of_an_arch_are_listed(tmp_path: Path) -> None:
    """The products that have a file for the suite are known, for the text of INCOMPARABLE."""
    store = BaselineStore(tmp_path)
    for product, suite in (("h200", "prefill"), ("h100", "prefill"), ("h100_pcie", "decode")):
        merge_entries(store, tmp_path, "sm_90", product, suite, {"a": new_entry()})
    assert store.list_products("sm_90", "prefill") == ["h100", "h200"]
    assert store.list_products("gfx942", "prefill") == []
    merge_entries(store, tmp_path, "sm_90", "h200", "prefill", {"b": new_entry()})
    assert store.list_products("sm_90", "prefill", "b") == ["h200"]  # another case of the suite is no baseline


def test_a_file_is_opened_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding reads the file once; a new version on disk is seen."""
    writer, reader = BaselineStore(tmp_path), BaselineStore(tmp_path)
    path = merge_entries(writer, tmp_path, *PLACE, {"a": new_entry(1.0)})
    reads: list[str] = []

    def counted(path: Path) -> bytes:
        reads.append(path.name)
        return read_content(path)

    monkeypatch.setattr(store_module, "read_content", counted)
    for _ in range(3):
        assert reader.find(*PLACE, "a") is not None
    assert reads == ["prefill.json"]
    longer = path.read_bytes().replace(b'"median_us":1.0', b'"median_us":1.25').replace(b"1.000 us", b"1.250 us")
    path.write_bytes(longer)
    found = reader.find(*PLACE, "a")
    assert found is not None
    assert found.entry.processes[0].median_us == 1.25


@pytest.mark.parametrize("damage", ["truncated", "newer", "other suite", "unknown field", "directory"])
def test_nothing_is_written_over_a_file_that_is_not_understood(tmp_path: Path, damage: str) -> None:
    """A merge refuses an unsound, newer, misplaced or richer file, names it, and leaves every byte."""
    store = BaselineStore(tmp_path)
    path = merge_entries(store, tmp_path, *PLACE, {"a": new_entry()})
    text = path.read_text()
    damaged, expected = {
        "truncated": (text[:-40], "is not readable as JSON"),
        "newer": (text.replace('"schema": 1', '"schema": 2'), "field `schema` is 2; this version reads 1"),
        "other suite": (text.replace('"suite": "prefill"', '"suite": "x"'), "field `suite` is 'x', but its path says"),
        "unknown field": (text.replace('"note"', '"nota"'), r"does not know \$\.entries\.a\.nota, and rewriting"),
        "directory": ("", "is a folder; give a regular file"),
    }[damage]
    path.write_text(damaged)
    if damage == "directory":
        path.unlink()
        path.mkdir()
    with pytest.raises(BaselineError, match=expected) as caught:
        merge_entries(store, tmp_path, *PLACE, {"b": new_entry()})
    assert str(path) in str(caught.value)
    assert path.is_dir() or path.read_text() == damaged


@pytest.mark.parametrize("part", ["..", ".", "", "a/b", "a\\b", "/etc", "a\0", ".hidden", "a b", "-x"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_data_never_chooses_a_path(tmp_path: Path, part: str, place: int) -> None:
    """An arch, product or suite that is no plain name is refused before any path is made of it."""
    names = [*PLACE]
    names[place] = part
    store = BaselineStore(tmp_path / "root")
    with pytest.raises(BaselineError, match="cannot be part of a baseline's path: use letters, digits"):
        store.find(names[0], names[1], names[2], "a")
    with pytest.raises(BaselineError, match="cannot be part of a baseline's path"):
        merge_entries(store, tmp_path / "root", names[0], names[1], names[2], {"a": new_entry()})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full the old file is whole and no temporary one is left."""
    store = BaselineStore(tmp_path)
    path = merge_entries(store, tmp_path, *PLACE, {"a": new_entry()})
    before = path.read_bytes()

    def disk_full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        merge_entries(store, tmp_path, *PLACE, {"b": new_entry()})
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.tmp"))


def test_a_time_that_cannot_be_read_back_is_not_written(tmp_path: Path) -> None:
    """The new text is read before it replaces the old one, so a NaN never reaches the store."""
    with pytest.raises(BaselineError, match=r"the new text of .*prefill.json: entry 'a': .*median_us"):
        merge_entries(BaselineStore(tmp_path), tmp_path, *PLACE, {"a": new_entry(float("nan"))})
    assert not (tmp_path / "sm_90" / "h200" / "prefill.json").exists()


def test_a_lock_held_elsewhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that waits too long says which lock it waited for and that nothing was written."""
    monkeypatch.setattr(writing, "LOCK_TIMEOUT_S", 0.01)
    folder = tmp_path / "sm_90" / "h200"
    folder.mkdir(parents=True)
    expected = r"\.prefill\.json\.lock for 0\.01 s; nothing was written"
    with filelock.FileLock(folder / ".prefill.json.lock"), pytest.raises(BaselineError, match=expected):
        merge_entries(BaselineStore(tmp_path), tmp_path, *PLACE, {"a": new_entry()})
    assert not (folder / "prefill.json").exists()


def test_the_file_is_readable_by_others(tmp_path: Path) -> None:
    """The file has the permissions the user's umask gives, not a temporary file's private ones."""
    previous = os.umask(0o022)
    try:
        path = merge_entries(BaselineStore(tmp_path), tmp_path, *PLACE, {"a": new_entry()})
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


WRITER = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_store import PLACE, BaselineStore, merge_entries, new_entry
root, name = Path(sys.argv[1]), sys.argv[2]
for index in range(10):
    merge_entries(BaselineStore(root), root, *PLACE, {{f"{{name}}/{{index}}": new_entry(index + 1.0)}})
"""


def test_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    """Three processes that each merge ten entries into one file leave all thirty."""
    script = WRITER.format(tests=str(Path(__file__).parent))
    root = Path(__file__).parents[2]
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), name], cwd=root, stderr=subprocess.PIPE)
        for name in "abc"
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors.decode()
    assert sorted(BaselineStore(tmp_path).load(*PLACE)) == sorted(
        f"{name}/{index}" for name in "abc" for index in range(10)
    )


def test_a_store_needs_a_root() -> None:
    """A store without a folder is a mistake of the caller."""
    with pytest.raises(ValueError, match="at least one root"):
        BaselineStore()


def test_noise_is_pooled_once_per_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite's noise model is that of all its entries, built once for all cases, and anew for a changed file."""
    store, built = BaselineStore(tmp_path / "own", tmp_path), []
    merge_entries(store, tmp_path, *PLACE, {"a": new_entry(1.0), "b": new_entry(2.0, bound="memory")})
    whole = NoiseModel.from_processes
    monkeypatch.setattr(NoiseModel, "from_processes", lambda *a, **k: built.append(1) or whole(*a, **k))
    first = [store.noise_model(*PLACE).estimate_noise("a", 1.0, "graph") for _ in range(3)][-1]
    assert first is not None
    assert (first.how, len(built)) == (
        "pooled over 2 cases of less than 15 us, timer graph, moved by its own 7 processes",
        1,
    )
    merge_entries(store, tmp_path / "own", *PLACE, {"c": new_entry(3.0)})
    again = store.noise_model(*PLACE).estimate_noise("a", 1.0, "graph")
    assert again is not None
    assert (again.how[:19], len(built)) == ("pooled over 3 cases", 2)


def test_other_suites_say_how_far_cards_lie_apart(tmp_path: Path) -> None:
    """Where no case of a suite is stored from several cards, those of the product's other suites count; a damaged file
    among them says nothing, and another product's neither."""
    one = new_entry()
    cards = tuple(
        dataclasses.replace(process, device_id="aaaabbb"[number], median_us=100.0 + number)
        for number, process in enumerate(one.measurement.processes)
    )
    wide = dataclasses.replace(one, measurement=dataclasses.replace(one.measurement, processes=cards))
    merge_entries(BaselineStore(tmp_path), tmp_path, *PLACE, {"a": one})
    merge_entries(BaselineStore(tmp_path), tmp_path, "sm_90", "h100", "decode", {"a": wide})
    assert not BaselineStore(tmp_path).noise_model(*PLACE).has_cards
    merge_entries(BaselineStore(tmp_path), tmp_path, "sm_90", "h200", "decode", {"a": wide})
    (tmp_path / "sm_90/h200/damaged.json").write_text("{")
    estimate = BaselineStore(tmp_path).noise_model(*PLACE).estimate_noise("a", 100.0, "graph")
    assert estimate is not None
    assert estimate.card_sd > 0
    assert "between 2 cards in 1 case" in estimate.card_how


def test_an_unsound_entry_stops_only_who_reads_it(tmp_path: Path) -> None:
    """Its neighbour is found; itself, all entries, the noise model, and a writing are refused with its name."""
    store = BaselineStore(tmp_path)
    path = merge_entries(store, tmp_path, *PLACE, {"a": new_entry(), "b": new_entry(note="here")})
    path.write_text(path.read_text().replace('"note": "here"', '"note": 3'))
    assert store.find(*PLACE, "a") is not None
    for read in (
        lambda: store.find(*PLACE, "b"),
        lambda: store.load(*PLACE),
        lambda: store.noise_model(*PLACE),
        lambda: merge_entries(store, tmp_path, *PLACE, {"a": new_entry()}),
    ):
        with pytest.raises(BaselineError, match=r"prefill.json: entry 'b': Expected `str`, got `int` - at `\$.note`"):
            read()


def test_who_waits_gets_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that comes again at once lets those that poll for the lock in; one that waits does so as long as the
    file changes, also beyond the limit."""
    monkeypatch.setattr(writing, "LOCK_TIMEOUT_S", 0.08)
    path, turns = tmp_path / "prefill.json", []

    def busy() -> None:
        for count in range(6):
            with writing.lock_file(path):
                turns.append("busy")
                time.sleep(0.04)
                path.write_bytes(b" " * count)

    first = threading.Thread(target=busy)
    first.start()
    while not turns:
        time.sleep(0.001)
    with writing.lock_file(path):
        turns.append("waited")
    first.join()
    assert turns.index("waited") < 6, turns
    assert len(turns) == 7
