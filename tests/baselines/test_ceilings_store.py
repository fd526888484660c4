from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import pytest

from pytest_attnperf.baselines import writing
from pytest_attnperf.baselines.ceilings_store import (
    CeilingsStore,
    StoredCeilings,
    ceilings_for,
    ceilings_path,
    compute_median_ceilings,
    drop_figures,
    figures_of,
)
from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.measure.ceiling_walk import BYTES, FLOPS, US, CeilingFigure
from pytest_attnperf.measure.ceilings import ProcessCeilings
from pytest_attnperf.records import DeviceInfo, Fingerprint

DEVICE = DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200", compute_units=132)


def process(f16: float = 7e14, device: DeviceInfo = DEVICE, **others: CeilingFigure | str) -> ProcessCeilings:
    """One process's figures; a text in place of one is the reason why it is left out."""
    figures: dict[str, Any] = {
        "f16": CeilingFigure(f16, FLOPS, f"size of {f16:.3g}", 1500.0),
        "f16 oblong": CeilingFigure(6e14, FLOPS, "8192 x 2048 x 8192"),
        "copy": CeilingFigure(4.2e12, BYTES, "2048 MiB, Tensor.copy_", note="a note"),
        "launch": CeilingFigure(1.5, US, "torch.add of 1 element, graph of 400"),
        **others,
    }
    reasons = {name: figure for name, figure in figures.items() if isinstance(figure, str)}
    measured = {name: figure for name, figure in figures.items() if name not in reasons}
    return ProcessCeilings(device, Fingerprint({"power_cap_w": "700"}, {"torch": "2.11"}), measured, reasons)


def stored(**changes: Any) -> StoredCeilings:
    """What three processes found, its ceilings changed as given."""
    found = compute_median_ceilings([process(7e14), process(7.2e14), process(6.9e14)], "2026-01-02")
    return replace(found, ceilings=replace(found.ceilings, **changes))


def test_medians_over_processes() -> None:
    """Each figure is the median of its processes, with its spread, the size of the nearest, and all values."""
    found = stored()
    ceilings = found.ceilings
    assert ceilings.flops_per_s == {"f16": 7e14}, "a product that is not square is no ceiling of the type"
    assert found.oblong == {"f16 oblong": 6e14}
    assert (ceilings.copy_bytes_per_s, ceilings.launch_us, ceilings.read_bytes_per_s) == (4.2e12, 1.5, None)
    assert (ceilings.sizes["f16"], ceilings.spread["f16"], ceilings.spread["copy"]) == ("size of 7e+14", 0.0435, 0.0)
    assert found.values["f16"] == (7e14, 7.2e14, 6.9e14)
    assert (ceilings.processes, ceilings.measured, ceilings.software) == (3, "2026-01-02", {"torch": "2.11"})
    assert (found.clock_mhz, found.environment) == ({"f16": 1500.0}, {"power_cap_w": "700"})
    assert found.notes == ("copy: a note",)
    assert compute_median_ceilings([process()], "2026-01-02").ceilings.spread == {}, (
        "one process says nothing of the next"
    )


def test_a_figure_that_one_process_lacks_is_left_out() -> None:
    """Every figure has the same number of processes behind it; the reason of the one that lacks it is kept."""
    found = compute_median_ceilings([process(), process(launch="no graph"), process()], "2026-01-02")
    assert found.ceilings.launch_us is None
    assert "launch" not in found.values
    assert found.left_out == {"launch": "no graph"}


def test_processes_of_two_devices_are_no_calibration() -> None:
    """Figures of two products are never averaged."""
    with pytest.raises(
        BaselineError, match=r"ran on sm_90 h200 with 132 .* and on sm_90 h100 with 132 .* make one GPU"
    ):
        compute_median_ceilings([process(), process(device=replace(DEVICE, product="h100"))], "2026-01-02")


def test_what_is_refused_is_gone_everywhere() -> None:
    """A refused figure leaves values, sizes, spreads, clocks and notes, and its reason stays."""
    found = drop_figures(stored(), {"copy": "impossible", "f16": "impossible, too"})
    assert figures_of(found) == {"f16 oblong": 6e14, "launch": 1.5}
    assert (
        found.values.keys() == found.ceilings.sizes.keys() == found.ceilings.spread.keys() == figures_of(found).keys()
    )
    assert (found.clock_mhz, found.notes) == ({}, ())
    assert found.left_out == {"copy": "impossible", "f16": "impossible, too"}


def test_what_was_written_is_found(tmp_path: Path) -> None:
    """Ceilings come back whole for the device they are of, and the same text is written for the same ceilings."""
    store = CeilingsStore(tmp_path)
    path = store.write(tmp_path, stored())
    assert path == tmp_path / "sm_90" / "h200" / "ceilings" / "132.json"
    assert ceilings_for(tmp_path, DEVICE) == stored().ceilings
    assert store.find(DEVICE) == stored()
    before = path.read_bytes()
    store.write(tmp_path, stored())
    assert path.read_bytes() == before
    assert b'      "f16": 700000000000000.0\n' in before, "a line for each figure"


@pytest.mark.parametrize("change", [{"compute_units": 66}, {"product": "h100"}, {"arch": "sm_100"}])
def test_another_device_has_no_ceilings(tmp_path: Path, change: dict[str, Any]) -> None:
    """A partition of the card, another product and another architecture get None, never the nearest."""
    CeilingsStore(tmp_path).write(tmp_path, stored())
    assert ceilings_for(tmp_path, replace(DEVICE, **change)) is None


def test_partitions_stand_beside_each_other(tmp_path: Path) -> None:
    """A partitioned card's ceilings leave those of the whole card as they are."""
    CeilingsStore(tmp_path).write(tmp_path, stored())
    CeilingsStore(tmp_path).write(tmp_path, stored(compute_units=66, copy_bytes_per_s=2e12))
    whole, half = ceilings_for(tmp_path, DEVICE), ceilings_for(tmp_path, replace(DEVICE, compute_units=66))
    assert whole is not None
    assert half is not None
    assert (whole.copy_bytes_per_s, half.copy_bytes_per_s) == (4.2e12, 2e12)


def test_earlier_roots_come_first(tmp_path: Path) -> None:
    """The first root that has the device answers; one without it is passed over."""
    empty, first, second = (tmp_path / name for name in ("empty", "first", "second"))
    CeilingsStore(first).write(first, stored(copy_bytes_per_s=1e12))
    CeilingsStore(second).write(second, stored(copy_bytes_per_s=2e12))
    found = CeilingsStore(empty, first, second).find(DEVICE)
    assert found is not None
    assert found.ceilings.copy_bytes_per_s == 1e12
    with pytest.raises(ValueError, match="at least one root"):
        CeilingsStore()


def test_no_suite_is_seen_in_it(tmp_path: Path) -> None:
    """The store of timings finds neither a product nor a file in it, whatever a suite is called."""
    CeilingsStore(tmp_path).write(tmp_path, stored())
    timings = BaselineStore(tmp_path)
    for suite in ("ceilings", "132"):
        assert timings.list_products("sm_90", suite) == []
        assert timings.load("sm_90", "h200", suite) == {}


DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "newer": (lambda file: file.update(schema=2), "field `schema` is 2; this version reads 1"),
    "other device": (lambda file: file["ceilings"].update(product="h100"), "its path says sm_90 / h200 / 132: restore"),
    "unknown field": (lambda file: file["ceilings"].update(more=1), "does not know `ceilings.more`. Use the pytest-"),
    "wrong type": (lambda file: file["ceilings"].update(launch_us="fast"), "Expected `float | null`, got `str`"),
    "no rate": (lambda file: file["ceilings"]["flops_per_s"].update(f16=0.0), "`f16` is 0.0, expected a finite number"),
    "bad value": (lambda file: file["values"].update(copy=[-1.0]), "`copy of process 1` is -1.0, expected a finite"),
    "bad spread": (lambda file: file["ceilings"]["spread"].update(f16=-0.1), "field `ceilings.spread.f16` is -0.1"),
    "no process": (lambda file: file["ceilings"].update(processes=0), "0 processes on 132 compute units"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_and_kept(tmp_path: Path, damage: str) -> None:
    """Reading and writing refuse a file that is not understood, name it and what is wrong, and leave every byte."""
    spoil, expected = DAMAGES[damage]
    path = CeilingsStore(tmp_path).write(tmp_path, stored())
    file = json.loads(path.read_bytes())
    spoil(file)
    path.write_text(json.dumps(file))
    for act in (lambda: ceilings_for(tmp_path, DEVICE), lambda: CeilingsStore(tmp_path).write(tmp_path, stored())):
        with pytest.raises(BaselineError) as caught:
            act()
        assert expected in str(caught.value)
        assert str(path) in str(caught.value)
    assert json.loads(path.read_bytes()) == file


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    """Half a file is no ceilings."""
    path = CeilingsStore(tmp_path).write(tmp_path, stored())
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(BaselineError, match="is not readable as JSON"):
        ceilings_for(tmp_path, DEVICE)


def test_unsound_ceilings_are_never_written(tmp_path: Path) -> None:
    """A figure that cannot be one is refused before a byte is written."""
    with pytest.raises(BaselineError, match="the figure `copy` is inf"):
        CeilingsStore(tmp_path).write(tmp_path, stored(copy_bytes_per_s=float("inf")))
    assert list(tmp_path.iterdir()) == []


def test_data_never_chooses_a_path(tmp_path: Path) -> None:
    """A product that is no plain name is refused."""
    with pytest.raises(BaselineError, match=r"product '\.\./x' cannot be part of a baseline's path"):
        ceilings_path(tmp_path, "sm_90", "../x", 132)


def test_writers_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process holds the file's lock nothing is written, and the reason is said."""
    monkeypatch.setattr(writing, "LOCK_TIMEOUT_S", 0.05)
    path = CeilingsStore(tmp_path).write(tmp_path, stored())
    with filelock.FileLock(path.with_name(f".{path.name}.lock")), pytest.raises(BaselineError, match="has held"):
        CeilingsStore(tmp_path).write(tmp_path, stored(copy_bytes_per_s=1.0))
    assert ceilings_for(tmp_path, DEVICE) == stored().ceilings
