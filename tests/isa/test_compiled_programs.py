from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pytest_attnperf.codeobject.hip_toolchain import find_toolchain, hip_reasons
from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.isa.program import ARCHS
from tests.isa.compiled_programs import compile_for_gpu, compile_for_host, host_reasons, run_interpreted, run_on_host
from tests.isa.drawn_programs import DrawnProgram, draw_program

LEVELS = ("-O1", "-O0", "-O2", "-O3")
FEW, BATCH, CAMPAIGN = 2, 10, 500
"""Programs of an architecture by default, of one compilation in the soak, and of the soak."""

REFUSED_HALVES = re.compile(r"^s_\w*f16\w* .*the opcode is not implemented")
"""Scalar instructions of gfx11.5 and gfx12 with results of 16 bits: sources disagree on the upper half."""

FIRST = {"gfx90a": 0, "gfx942": 2, "gfx950": 4, "gfx1100": 6, "gfx1151": 17, "gfx1201": 17}
"""Seed of the first program by default."""

REASONS = [reason for arch in ARCHS for reason in hip_reasons(arch)] or host_reasons()
pytestmark = pytest.mark.skipif(bool(REASONS), reason="; ".join(REASONS))


def wave_of(arch: str) -> int:
    """Lanes of a wave, as the compiler chooses them."""
    return 64 if arch.startswith("gfx9") else 32


def level_of(arch: str, number: int) -> str:
    """One of the levels in turn. Without optimisation compilers for gfx11 and gfx12 spill halves of registers that
    nothing wrote, which counts as a fault of the program."""
    level = LEVELS[number % len(LEVELS)]
    return "-O1" if level == "-O0" and wave_of(arch) == 32 else level


def list_failures(arch: str, first: int, count: int, level: str) -> list[str]:
    """Runs programs on both machines: seed, level and what differs or is a fault, of those that are not equal. Left out
    are programs with instructions that REFUSED_HALVES names."""
    programs = [draw_program(seed, wave_of(arch)) for seed in range(first, first + count)]
    code_object, library = compile_for_gpu(programs, arch, level), compile_for_host(programs, arch)
    failures = []
    for program in programs:
        try:
            found = run_interpreted(code_object, program)
        except AttnperfError as error:
            if REFUSED_HALVES.search(str(error)):
                continue
            failures.append(f"seed {program.seed} {level}: {error}")
            continue
        different = found.differences(run_on_host(library, program))
        failures += [f"seed {program.seed} {level}: {one}" for one in different]
    return failures


@pytest.mark.parametrize("arch", ARCHS)
def test_a_few_drawn_programs_compute_what_the_host_does(arch: str) -> None:
    """Programs of integers, floats, branches, tables, LDS, atomics and lanes, compiled for the architecture and for
    this machine, leave equal bits."""
    assert not list_failures(arch, FIRST[arch], FEW, level_of(arch, ARCHS.index(arch)))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, CAMPAIGN, BATCH))
@pytest.mark.parametrize("arch", ARCHS)
def test_campaign_of_drawn_programs(arch: str, first: int) -> None:
    """500 programs for each architecture, at four levels of optimisation: none differs, none is a fault, and none
    meets an instruction that is not implemented."""
    assert not list_failures(arch, 1000 + first, BATCH, level_of(arch, first // BATCH))


def test_a_wrong_instruction_is_found() -> None:
    """The honest twin: where an exclusive or is executed as an or, a program that needs it differs."""
    program = replace(draw_program(0, 64), steps=("EACH\ns.a = s.b ^ s.c;\nEND",))
    code_object = compile_for_gpu([program], "gfx942", "-O2")
    expected = run_on_host(compile_for_host([program], "gfx942"), program)

    def weaken(instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        return tuple(replace(one, mnemonic=one.mnemonic.replace("v_xor_b32", "v_or_b32")) for one in instructions)

    assert not run_interpreted(code_object, program).differences(expected)
    assert any(": a is" in one for one in run_interpreted(code_object, program, edit=weaken).differences(expected))


def test_a_seed_is_a_program() -> None:
    """The same seed gives the same text, another one another text, and a step can be left out."""
    program = draw_program(7, 64)
    assert program == draw_program(7, 64)
    assert program.source != draw_program(8, 64).source
    shorter: DrawnProgram = program.without(1)
    assert len(shorter.steps) == len(program.steps) - 1
    compile_for_host([shorter], "gfx942")


def test_compilers_are_named() -> None:
    """One clang makes both."""
    assert "clang" in find_toolchain("gfx942").name
