"""What the emulator is trusted with: it finds kernels that lack a barrier or go one too far; order changes no bit."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernels.hip import decode, emulator, prefill, staged
from kernels.hip.emulator import EmulatedKernel, EmulationError
from kernels.hip.sources import FOLDER, HipKernel

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend

FACES = ("gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1030", "sm_90")
WAVES = ("gfx942", "gfx1100")
"""Enough for a file without matrix instructions and copies."""

STEPS = {backend.step.file: backend for backend in prefill.BACKENDS}
DECODE = replace(decode.BACKENDS[0], split_keys_min=32)
PREFILL = "prefill-b1-s37-kv101-h2-hk1-d40-f16-causal-lse"
"""Ragged in rows, keys and dimensions, and several tiles of keys."""

FURTHER = ("prefill-b1-s37-kv20-h2-d40-bf16-causal-lse", "prefill-b1-s19-kv70-h2-d64-f16")
"""Rows that see no key, and no mask, which leaves bounds to themselves."""


@dataclass(frozen=True)
class Subject:
    """A file, a kernel's or a header of kernels, and what runs all of it.

    backends    each of them runs every problem; together they execute every line
    faces       to imitate
    problems    the first reaches every barrier
    """

    file: str
    backends: tuple[Backend, ...]
    faces: tuple[str, ...] = WAVES
    problems: tuple[str, ...] = (PREFILL, *FURTHER)


def _pinned(file: str, **constants: int) -> Backend:
    """A step under a configuration in which a small problem has several workgroups and tiles."""
    recorded = {name: str(value) for name, value in constants.items()}
    return STEPS[file].replay_config({**recorded, "config_arch": "none", "config_source": "small"})


PREFETCH = _pinned("06_prefetch.hip", WAVES=2, BLOCK_N=32)
BEST = tuple(_pinned("07_best.hip", WAVES=2, ROW_TILES=1, BLOCK_N=32, Q_IN_REGISTERS=held) for held in (0, 1))
WGMMA = tuple(_pinned("08_wgmma.hip", WARPGROUPS=2, BLOCK_N=64, Q_IN_REGISTERS=held) for held in (0, 1))
LONG = "prefill-b1-s37-kv290-h2-hk1-d40-f16-causal-lse"
"""Two tiles of keys of each of both buffers, and one more."""
SUBJECTS = {
    subject.file: subject
    for subject in (
        *(Subject(file, (STEPS[file],)) for file in ("02_lds_tiles.hip", "03_flash.hip", "04_vectorised.hip")),
        Subject("05_matrix.hip", (_pinned("05_matrix.hip", WAVES=2, BLOCK_N=32),), FACES),
        Subject("06_prefetch.hip", (PREFETCH,), FACES),
        Subject("07_best.hip", BEST, FACES),
        Subject("08_wgmma.hip", WGMMA, ("sm_90",), (LONG, *FURTHER)),
        Subject("tile_walk.h", BEST, FACES),
        Subject("tile_movers.h", (*BEST, PREFETCH), FACES),
        *(Subject(f"decode_{name}.hip", (DECODE,), WAVES, ("decode-b2-kv150-h8-hk2-d64-f16-ragged-lse",))
          for name in ("split", "reduce")),
        Subject("decode_split_mma.hip", (DECODE,), ("sm_90",), ("decode-b2-kv150-h8-hk2-d64-f16-ragged-lse",)),
        *(Subject(f"{name}.hip", staged.BACKENDS) for name in ("qk_scores", "weighted_values", "row_softmax")),
    )
}  # fmt: skip

SYNCHRONISES = re.compile(r"\b(?:barrier|copies_done)\(\)(?=;)")
NOTHING = "void(0)"
TRAP = "void(*reinterpret_cast<volatile int*>(0x40) = 0)"
"""An access that the emulator rejects: shows that a line is executed."""

BOUNDS = (
    (re.compile(r" < (?=(?:rows|seq_q|seq_kv|visible|row_limit|written)\b|end\))"), " <= "),
    (re.compile(r"<= (?=limit;)"), "<= 1 + "),
    (re.compile(r"\bkey <= (?=last_seen)"), "key <= 1 + "),
)
HARMLESS: Mapping[tuple[str, str], str] = {
    ("03_flash.hip", "own[i] = "): "the weight is bounded as well, and any maximum that is as large as a score will do",
    ("04_vectorised.hip", "_parts[load] = "): "the last key once more, which no row sees",
    ("weighted_values.hip", "first += STEP"): "a step more, of zeros",
    ("weighted_values.hip", "const bool inside = "): "rows are not stored, and the value of that key is zero",
    ("weighted_values.hip", "values[key][word] = "): "the weight of that key is zero",
}
"""(file, part of a line) -> why going one too far there changes nothing."""

Mutate = Callable[[str, int, int, str], None]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For objects that nobody needs again."""
    return tmp_path_factory.mktemp("mutated")


@pytest.fixture
def mutate(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Mutate:
    """`mutate(file, begin, end, text)`: from now on backends run the file with `text` at these positions of it."""

    def run_instead(file: str, begin: int, end: int, text: str) -> None:
        source, changed = (FOLDER / file).read_text(), tmp_path / file
        changed.write_text(source[:begin] + text + source[end:])

        def load(kernel: HipKernel, device: Any) -> EmulatedKernel:
            step = tmp_path / kernel.file
            if f'#include "{file}"' in kernel.path.read_text():
                # Objects are cached by the kernel's own file, and by headers of the folder only.
                step.write_text(f"{kernel.path.read_text()}// {begin} {end} {text}\n")
            elif step != changed:
                return emulator.load(kernel)
            return emulator.load(replace(kernel, file=str(step)), cache=cache)

        for module in (prefill, decode, staged):
            monkeypatch.setattr(module, "load", load)

    return run_instead


def _found(judged: Callable[..., tuple[str, ...]], backend: Backend, problem: str) -> str:
    """What is wrong with a backend: the emulator's error, or what the judge says; '' where nothing is."""
    try:
        return "; ".join(judged(backend, problem))
    except EmulationError as error:
        return str(error)


def _line(file: str, position: int) -> int:
    return (FOLDER / file).read_text().count("\n", 0, position) + 1


def _rejected(found: str) -> bool:
    named = any(f"/{file}:" in found for file in SUBJECTS)
    return named and re.search(r": (race|copy not done|read of unwritten LDS): ", found) is not None


@pytest.mark.parametrize(
    ("file", "index", "arch"),
    [("02_lds_tiles.hip", 0, "gfx942"), ("05_matrix.hip", 1, "gfx1201"), ("06_prefetch.hip", 2, "sm_90"),
     ("07_best.hip", 2, "gfx942"), ("tile_walk.h", 0, "gfx950"), ("tile_walk.h", 2, "gfx950"),
     ("tile_walk.h", 4, "gfx942"), ("tile_movers.h", 0, "sm_90"), ("tile_movers.h", 1, "gfx950")],
)  # fmt: skip
def test_a_missing_barrier_is_found(
    file: str, index: int, arch: str, mutate: Mutate, emulate: Callable[[str], None], judged: Callable[..., Any]
) -> None:
    """A step without one of its barriers is an error at a line of it, or of a header that moves its tiles."""
    emulate(arch)
    begin, end = list(SYNCHRONISES.finditer((FOLDER / file).read_text()))[index].span()
    mutate(file, begin, end, NOTHING)
    assert _rejected(_found(judged, SUBJECTS[file].backends[0], PREFILL))


@pytest.mark.soak
@pytest.mark.parametrize("file", SUBJECTS)
def test_no_barrier_can_be_left_out(
    file: str, mutate: Mutate, emulate: Callable[[str], None], judged: Callable[..., Any]
) -> None:
    """Without any one of its barriers and waits for copies, a kernel is rejected on each face that executes it."""
    subject, missed = SUBJECTS[file], []
    for match in SYNCHRONISES.finditer((FOLDER / file).read_text()):
        executed = 0
        for arch in subject.faces:
            emulate(arch)
            for backend in subject.backends:
                mutate(file, *match.span(), TRAP)
                if "at 0x40" not in _found(judged, backend, subject.problems[0]):
                    continue
                executed += 1
                mutate(file, *match.span(), NOTHING)
                found = _found(judged, backend, subject.problems[0])
                if not _rejected(found):
                    missed.append((_line(file, match.start()), arch, found))
                break
        if not executed:
            missed.append((_line(file, match.start()), "executed nowhere", ""))
    assert missed == []


def _bounds(file: str) -> Iterator[tuple[int, int, str]]:
    """Begin, end and what stands there one too far, of each comparison with a bound."""
    source = (FOLDER / file).read_text()
    for pattern, text in BOUNDS:
        for match in pattern.finditer(source):
            line = source[source.rfind("\n", 0, match.start()) + 1 : source.find("\n", match.end())]
            if not any(name == file and part in line for name, part in HARMLESS):
                yield *match.span(), text


@pytest.mark.soak
@pytest.mark.parametrize("file", SUBJECTS)
def test_no_bound_can_be_one_too_far(
    file: str, mutate: Mutate, emulate: Callable[[str], None], judged: Callable[..., Any]
) -> None:
    """A comparison that takes one row or key too many is an error of the emulator, or gives a wrong result."""
    subject, mutations, missed = SUBJECTS[file], list(_bounds(file)), []
    for begin, end, text in mutations:
        mutate(file, begin, end, text)
        for arch, backend, problem in itertools.product(subject.faces, subject.backends, subject.problems):
            emulate(arch)
            if _found(judged, backend, problem):
                break
        else:
            missed.append(_line(file, begin))
    assert mutations
    assert missed == []


@pytest.mark.soak
@pytest.mark.parametrize(
    ("backend", "arch"),
    [
        pytest.param(backend, arch, id=f"{backend.name}-{arch}")
        for backend in (*prefill.BACKENDS, *staged.BACKENDS, DECODE)
        for arch in (isinstance(backend, prefill.HipStep) and backend.step.archs) or FACES
    ],
)
def test_the_order_of_threads_changes_no_bit(
    backend: Backend, arch: str, emulate: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks, waves and lanes in whatever order give the same bits: sums are over fixed lanes in a fixed order."""
    import torch

    from pytest_attnperf.workloads.families import parse_workload

    emulate(arch)
    ragged = "decode-b3-kv130-h8-hk2-d96-bf16-ragged-lse" if backend is DECODE else PREFILL
    workload = parse_workload(ragged)
    inputs, outputs = workload.make_inputs(1, "cpu", planted=True), []
    for order in ("forward", "reverse", "shuffled-1", "shuffled-2", "shuffled-3"):
        for module in (prefill, decode, staged):
            monkeypatch.setattr(module, "load", lambda kernel, device, order=order: emulator.load(kernel, order=order))
        prepared = backend.prepare(workload, inputs)
        outputs.append(prepared.outputs(prepared.run()))
    assert all(torch.equal(each[name], outputs[0][name]) for each in outputs[1:] for name in outputs[0])
