"""Compiles drawn programs for an AMD GPU and for this machine, runs both, and compares them bit for bit."""

from __future__ import annotations

import ctypes
import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from pytest_attnperf.codeobject.hip_toolchain import DEVICE_ONLY, find_toolchain, run_tool
from pytest_attnperf.isa.launch import execute
from pytest_attnperf.isa.memory import Array
from tests.isa.attention import Edit
from tests.isa.drawn_programs import ALL, IN_WORDS, DrawnProgram

FACE = Path(__file__).parent / "face.h"

_SAME = ("-fwrapv", "-ffp-contract=off", "-std=c++20", "-w")
_HOST = ("-x", "c++", "-O0", "-shared", "-fPIC", "-DCPU", "-march=native", "-Xclang", "-ffloat16-excess-precision=none")
_LIMIT_S = 300.0

SUMS = 128 + 512
"""Words of the buffer of sums: shared places, and one of each thread."""

_WORDS = (
    0, 1, 2, 31, 32, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3F800000, 0xBF800000,
    0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x00800000, 0x807FFFFF, 0x7FF00000, 0x3C00BC00, 0x7C000001,
)  # fmt: skip


@dataclass(frozen=True)
class Results:
    """What a program leaves: 64 bits per variable and thread, narrow stores, and sums."""

    out: Array
    narrow: Array
    sums: Array

    def differences(self, other: Results) -> list[str]:
        """Where the two differ, at most five."""
        found = [
            f"thread {thread}: {ALL[place]} is {self.out[thread, place]:#x}, not {other.out[thread, place]:#x}"
            for thread, place in np.argwhere(self.out != other.out)[:5]
        ]
        found += [f"narrow store {at}" for at in np.flatnonzero(self.narrow != other.narrow)[:5]]
        return found + [
            f"sum {at} is {self.sums[at]:#x}, not {other.sums[at]:#x}"
            for at in np.flatnonzero(self.sums != other.sums)[:5]
        ]


@dataclass(frozen=True)
class Inputs:
    """A program's arguments but its outputs."""

    words: Array
    sums: Array
    k0: int
    k1: int
    k2: float


def draw_inputs(program: DrawnProgram) -> Inputs:
    """Edges, small numbers, floats of like exponents and bits at random."""
    random = Random(program.seed)

    def word() -> int:
        kind = random.random()
        if kind < 0.25:
            return random.choice(_WORDS)
        if kind < 0.5:
            return random.randrange(64)
        if kind < 0.7:
            return int(np.float32(random.uniform(-4, 4)).view(np.uint32))
        return random.getrandbits(32)

    threads = program.threads * program.groups
    words = np.array([word() for _ in range(threads * IN_WORDS)], np.uint32)
    sums = np.array([random.getrandbits(32) for _ in range(SUMS)], np.uint32)
    return Inputs(words, sums, word(), word() | word() << 32, float(np.float32(random.uniform(-9, 9))))


def make_text(programs: Sequence[DrawnProgram]) -> str:
    """The source of several programs behind the face."""
    wave = programs[0].wave
    return f"#define WAVE {wave}\n{FACE.read_text()}\n" + "\n".join(program.source for program in programs)


def compile_for_gpu(programs: Sequence[DrawnProgram], arch: str, level: str) -> bytes:
    """The code object. AssertionError with the compiler's messages."""
    options = (*DEVICE_ONLY, f"--offload-arch={arch}", level, "--no-gpu-bundle-output", "-gline-tables-only")
    return _compile(make_text(programs), arch, (*options, *_SAME), "programs.hip").read_bytes()


def compile_for_host(programs: Sequence[DrawnProgram], arch: str) -> ctypes.CDLL:
    """The programs as functions of this machine, by the clang that compiles for `arch`."""
    return ctypes.CDLL(str(_compile(make_text(programs), arch, (*_HOST, *_SAME), "programs.cpp", ("-lm",))))


_folder = tempfile.TemporaryDirectory(prefix="attnperf-drawn-")
_numbers = itertools.count()


def _compile(text: str, arch: str, options: tuple[str, ...], name: str, last: tuple[str, ...] = ()) -> Path:
    place = Path(_folder.name, f"{next(_numbers)}")
    place.mkdir()
    (place / name).write_text(text)
    command = (*find_toolchain(arch).clang, *options, str(place / name), "-o", str(place / "made"), *last)
    done = run_tool(command, _LIMIT_S)
    assert done.returncode == 0, done.stderr
    return place / "made"


def run_on_host(library: ctypes.CDLL, program: DrawnProgram) -> Results:
    """What the compiler for this machine makes of the program."""
    given, threads = draw_inputs(program), program.threads * program.groups
    results = Results(np.zeros((threads, len(ALL)), np.uint64), np.zeros(4 * threads, np.uint8), given.sums.copy())
    buffers = (given.words, results.out, results.narrow, results.sums)
    library[program.name](
        *(ctypes.c_void_p(one.ctypes.data) for one in buffers), ctypes.c_uint32(given.k0), ctypes.c_uint64(given.k1),
        ctypes.c_float(given.k2), ctypes.c_uint32(program.groups),
    )  # fmt: skip
    return results


def host_reasons() -> list[str]:
    """Why programs cannot be compiled and linked for this machine."""
    try:
        compile_for_host([DrawnProgram(0, 64, 64, 1, ())], "gfx942")
    except (AssertionError, OSError) as error:
        return [f"no program for this machine: {error}"]
    return []


def run_interpreted(code_object: bytes, program: DrawnProgram, *, seed: int = 0, edit: Edit | None = None) -> Results:
    """What the interpreter makes of the code object's kernel."""
    given, threads = draw_inputs(program), program.threads * program.groups
    out, narrow = np.zeros((threads, len(ALL)), np.uint64), np.zeros(4 * threads, np.uint8)
    arguments = [given.words, out, narrow, given.sums.copy(), given.k0, given.k1, given.k2]
    executed = execute(
        code_object, program.name, (program.groups, 1, 1), (program.threads, 1, 1), arguments, seed=seed,
        instructions_most=300_000, aligned=False, edit=edit,
    )  # fmt: skip
    found = executed.arrays
    assert found[1] is not None
    assert found[2] is not None
    assert found[3] is not None
    return Results(found[1], found[2], found[3])
