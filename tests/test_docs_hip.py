"""The pages on the hardware and the HIP kernels say what the tables of this project and their own formulas give."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kernels.hip.faces import face_of
from pytest_attnperf.codeobject.arch import limits_of
from pytest_attnperf.environment.device_specs import DeviceSpec, all_specs
from pytest_attnperf.workloads.decode import Decode
from pytest_attnperf.workloads.prefill import Prefill

ROOT = Path(__file__).parents[1]
MEMORY, COMPARISON, NOTES = (ROOT / "kernels/hip" / name for name in ("HARDWARE.md", "BUILD.md", "NOTES.md"))
KIB = 1024
TIMED = ("MI210", "MI300X", "MI355X", "RX 7900 XTX", "H200 SXM")
"""Devices of the table of problems, in its columns' order."""

Row = dict[str, str]


def table(page: Path, name: str) -> list[Row]:
    """The rows between the markers of `name`, each by its column's header."""
    text = page.read_text(encoding="utf-8").partition(f"<!-- {name}: begin -->\n")[2]
    lines = [line for line in text.partition(f"<!-- {name}: end -->")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def number(text: str) -> float:
    """The number that a cell begins with, commas left out."""
    return float(text.split()[0].replace(",", ""))


def spec(name: str) -> DeviceSpec:
    """The device of this name."""
    return {one.name: one for one in all_specs()}[name]


def published_flops(device: DeviceSpec) -> float:
    """The f16 peak of the table, in FLOP/s."""
    assert device.f16_tflops is not None
    return device.f16_tflops * 1e12


def test_peaks_are_those_of_device_specs() -> None:
    """Compute units, peaks and caches on the page equal device_specs.json, and the ridge is their quotient."""
    rows = table(MEMORY, "peaks")
    assert len(rows) == 9
    for row in rows:
        device = spec(row["product"])
        said = [number(row[key]) for key in list(row)[1:]]
        ridge = round(published_flops(device) / device.peak_bytes_per_s, 1)
        peaks = [device.compute_units, device.f16_tflops, device.mem_gb_s, device.l2_mb, device.llc_mb, ridge]
        assert said == peaks, row["product"]


@pytest.mark.parametrize(
    ("arch", "registers_kib", "lds_kib"),
    [("gfx90a", 512, 64), ("gfx942", 512, 64), ("gfx950", 512, 160), ("gfx1100", 768, 128), ("gfx1201", 768, 128)],
)
def test_capacities_are_those_that_occupancy_counts_with(arch: str, registers_kib: int, lds_kib: int) -> None:
    """AMD's sizes of register files and LDS on the page equal LLVM's, which occupancy is computed from."""
    limits = limits_of(arch)
    registers = limits.simds * limits.vgprs_per_simd * limits.wave_sizes[0] * 4
    assert (registers, limits.lds_bytes) == (registers_kib * KIB, lds_kib * KIB)
    capacities = [
        line for line in MEMORY.read_text().splitlines() if line.startswith(("| vector reg", "| LDS, shared"))
    ]
    assert f"{registers_kib} KiB a" in capacities[0]
    assert f"{lds_kib} KiB a" in capacities[1]


def test_latencies_agree_with_their_clock() -> None:
    """Nanoseconds are the cycles beside them at the clock beside them."""
    rows = table(MEMORY, "latency")
    assert len(rows) == 15
    for row in rows:
        assert number(row["ns"]) == round(number(row["cycles"]) / number(row["MHz"]) * 1e3), row


def test_problems_have_the_figures_of_their_workloads() -> None:
    """Work, bytes and floors of the example problems follow from the workloads and the published peaks."""
    rows = table(MEMORY, "problems")
    assert len(rows) == 4
    for row in rows:
        name = row["problem"].strip("`")
        workload = Prefill.parse(name) if name.startswith("prefill") else Decode.parse(name)
        flops, read = workload.flops, workload.bytes_min
        assert number(row["GFLOP"]) == pytest.approx(flops / 1e9, abs=0.05)
        assert number(row["compulsory MB"]) == pytest.approx(read / 1e6, abs=0.05)
        assert number(row["FLOP/byte"]) == round(flops / read)
        for column, device in zip(list(row)[4:], map(spec, TIMED), strict=True):
            bounds = {"compute": flops / published_flops(device) * 1e6, "memory": read / device.peak_bytes_per_s * 1e6}
            larger = max(bounds, key=bounds.__getitem__)
            assert row[column].split()[1] == larger, (name, column)
            assert number(row[column]) == pytest.approx(bounds[larger], rel=5e-4, abs=0.05), (name, column)


def test_the_ladder_follows_its_formula() -> None:
    """Each step's intensity is D / (D / R + c), and each file is there."""
    rows = table(NOTES, "ladder")
    assert len(rows) == 9
    for row in rows:
        for dim in (64, 128):
            crossings = eval(row["c"], {"D": dim})
            assert number(row[f"D = {dim}"]) == round(dim / (dim / number(row["R"]) + crossings), 1), row


def test_the_ladder_has_the_rows_of_its_files() -> None:
    """How many rows share a reading is what the files define where nobody else does."""
    rows = {row["file"].strip("`"): number(row["R"]) for row in table(NOTES, "ladder")[2:]}
    assert len(rows) == 7
    for file, shared in rows.items():
        source = (ROOT / file).read_text(encoding="utf-8")
        defined = {
            name: int(value) for name, value in reversed(re.findall(r"^#define (\w+) (\d+)$", source, re.MULTILINE))
        }
        waves = defined.get("WAVES", 4 * defined.get("WARPGROUPS", 0))
        assert shared == (waves * 16 * defined.get("ROW_TILES", 1) if waves else defined["BLOCK_M"]), file


@pytest.mark.parametrize("page", [MEMORY, COMPARISON, NOTES], ids=lambda page: page.stem)
def test_what_a_page_names_is_there(page: Path) -> None:
    """Files of this repository, and pages and headings that a page links to, exist."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:kernels|tests|suites|docs|pytest_attnperf)/[\w./]+\.\w+)`", text)
    steps = [f"kernels/hip/{name}.hip" for name in re.findall(r"`(0\d_\w+)`", text)]
    assert named
    assert [one for one in [*named, *steps] if not (ROOT / one).is_file()] == []
    for target, _, heading in (link.partition("#") for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text)):
        aim = page.parent / target if target else page
        headings = re.findall(r"^#+ (.+)$", aim.read_text(encoding="utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}
        assert not heading or heading in anchors, f"{page.name}: {target} has no heading #{heading}"


Place = Callable[[int, int], int]


def lanes() -> Mapping[str, dict[str, Place]]:
    """Of each instruction: where element i of lane l is, and how many lanes and elements there are."""
    layouts = {}
    for row in table(NOTES, "lanes"):
        name = re.search(r"\((\w+)\)", row["instruction"])
        assert name
        layouts[name[1]] = {key: eval(f"lambda l, i: {cell.strip('`')}") for key, cell in list(row.items())[1:]}
    return layouts


def held(layout: Mapping[str, Place], what: str) -> list[list[tuple[int, int]]]:
    """Per lane the places it holds, in order: (row, k) of A or (row, column) of C."""
    count = layout["A: elements" if what == "A" else "C: values"](0, 0)
    second = layout["A: k" if what == "A" else "C: column"]
    first = layout[f"{what}: row"]
    return [[(first(lane, i), second(lane, i)) for i in range(count)] for lane in range(layout["lanes"](0, 0))]


@pytest.mark.parametrize("name", ["CDNA", "RDNA3", "RDNA4", "NVIDIA"])
def test_layouts_hold_everything(name: str) -> None:
    """The lanes together hold each element of A and C once, of A on RDNA3 twice."""
    layout = lanes()[name]
    columns = 8 if name == "NVIDIA" else 16
    everything = [(row, k) for row in range(16) for k in range(16)]
    a = sorted(place for lane in held(layout, "A") for place in lane)
    c = sorted(place for lane in held(layout, "C") for place in lane)
    assert a == sorted(everything * (2 if name == "RDNA3" else 1))
    assert c == [place for place in everything if place[1] < columns]


def test_transposed_scores_are_operands() -> None:
    """C of S^T lies as the next product's operand: exactly on CDNA, up to the order of k on RDNA4, not on RDNA3."""
    for name in ("CDNA", "RDNA4"):
        layout = lanes()[name]
        operand, scores = held(layout, "A"), held(layout, "C")
        order: dict[tuple[int, int], tuple[int, int]] = {}
        for lane, (slots, values) in enumerate(zip(operand, scores, strict=True)):
            assert len(slots) == len(values)
            for i, ((query, k), (key, column)) in enumerate(zip(slots, values, strict=True)):
                assert query == column
                assert order.setdefault((lane // 16, i), (k, key)) == (k, key), "one order for all queries"
        assert len({key for _, key in order.values()}) == 16
        assert all(k == key for k, key in order.values()) == (name == "CDNA")
    for lane, values in enumerate(held(lanes()["RDNA3"], "C")):
        assert [key for key, _ in values] == list(range(lane // 16, 16, 2)), "every other key"


def test_nvidias_scores_are_operands_as_they_are() -> None:
    """C of two m16n8k16 side by side is A of the next one, element by element."""
    layout = lanes()["NVIDIA"]
    for slots, values in zip(held(layout, "A"), held(layout, "C"), strict=True):
        assert slots == [(row, column + 8 * half) for half in (0, 1) for row, column in values]


def test_two_buffers_leave_no_second_workgroup_on_cdna() -> None:
    """The page's bytes of K and V tiles are those that step 7 asks for, and twice as many are all LDS of a CU."""
    _, tiles = face_of("gfx942").tiles_bytes(head_dim=128, block_m=128, block_n=64)
    text = NOTES.read_text(encoding="utf-8")
    assert tiles == 2 * 16_384
    assert 2 * tiles == limits_of("gfx942").lds_bytes
    assert all(figure in text for figure in ("16,384 bytes each", f"both twice {2 * tiles:,}"))
