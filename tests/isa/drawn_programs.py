"""Draws small programs for `face.h`: what a compiler makes of them covers instructions that nobody listed.

Pure: a seed gives the same program everywhere. A program computes nothing that the language leaves open, and with
floats only what both machines round alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.isa.drawn_expressions import VARIABLES
from tests.isa.drawn_statements import IN_WORDS, Statements

ALL = tuple(name for names in VARIABLES.values() for name in names)


@dataclass(frozen=True)
class DrawnProgram:
    """A program of independent steps, each of which may be left out.

    wave              lanes of one
    threads, groups   of a workgroup, and workgroups
    steps             source text of each
    """

    seed: int
    wave: int
    threads: int
    groups: int
    steps: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of its kernel."""
        return f"drawn_{self.seed}"

    @property
    def source(self) -> str:
        """The whole text behind `face.h`."""
        fields = " ".join(f"{kind} {', '.join(names)};" for kind, names in VARIABLES.items())
        body = "\n".join(self.steps)
        return f"""
namespace {self.name}_space {{
#undef THREADS
#define THREADS {self.threads}
struct State {{ {fields} }};
KERNEL({self.name}) {{
BEGIN
EACH
{_START}
END
{body}
EACH
{_end()}
END
END_OF_KERNEL
}}
}}
"""

    def without(self, step: int) -> DrawnProgram:
        """The program without that step."""
        return replace(self, steps=self.steps[:step] + self.steps[step + 1 :])


_START = f"""const u32* mine = in + thread * {IN_WORDS};
s.a = mine[0]; s.b = mine[1]; s.c = mine[2]; s.d = mine[3]; s.e = mine[4];
s.f = mine[5] | (u64)mine[6] << 32; s.g = mine[7]; s.h = (i64)(i32)mine[8];
s.i = mine[9]; s.j = mine[9] >> 16; s.k = mine[10]; s.l = mine[10] >> 16; s.m = mine[10] >> 24;
s.x = to_f32(mine[11]); s.y = to_f32(mine[12]); s.z = (f32)(i32)(mine[0] & 0xff) - 100.0f;
s.p = to_f64(mine[13] | (u64)mine[14] << 32); s.q = to_f16(mine[15]); s.r = (f16)(f32)(mine[1] & 63);
s.t = to_bf16(mine[15] >> 16);
if (tid < 16) totals[tid] = 5; if (tid < THREADS) lds[tid] = tid; lds[tid + THREADS] = mine[0];"""


def _end() -> str:
    wide = "\n".join(f"out[thread * {len(ALL)} + {place}] = bits_of(s.{name});" for place, name in enumerate(ALL))
    return f"{wide}\nnarrow[thread * 4] = s.l; narrow[thread * 4 + 1] = s.m; *(u16*)(narrow + thread * 4 + 2) = s.i;"


def draw_program(seed: int, wave: int) -> DrawnProgram:
    """The program of that seed, for waves of `wave` lanes."""
    drawing = Steps(Random(seed), wave)
    random = drawing.random
    # Waves of 64 lanes are half full at times.
    threads = random.choice((wave, wave, 2 * wave, 96))
    steps = tuple(drawing.draw_step() for _ in range(random.randint(3, 7)))
    return DrawnProgram(seed, wave, threads, random.choice((1, 1, 2)), steps)


class Steps(Statements):
    """Draws steps of all threads."""

    def draw_step(self) -> str:
        """One step."""
        choice = self.random.random()
        if choice < 0.55:
            return f"EACH\n{self.block(3)}\nEND"
        if choice < 0.75:
            return self.exchange()
        if choice < 0.88:
            return self.local()
        return self.sums()

    def local(self) -> str:
        """Values that move through LDS: words, halves and bytes, pairs, a sum of several, or atomic sums."""
        part, index = "(lds + THREADS)", f"(({self.expression('u32', 1)}) % THREADS)"
        operation = self.random.choice(("add", "and", "or", "xor", "min", "max"))
        given = self.expression("u32", 1)
        rounds = self.random.choice(
            (
                (f"lds[tid] = {given};", f"s.a = lds[{index}];"),
                (
                    f"((u8*)lds)[tid] = s.l; ((u16*){part})[tid] = s.i;",
                    f"s.m = ((i8*)lds)[{index}]; s.k = ((i16*){part})[{index}]; s.l = ((u8*)lds)[{index}];",
                ),
                ("((u64*)lds)[tid] = s.f;", f"s.g += ((u64*)lds)[{index}];"),
                (
                    f"lds[tid] = s.a; {part}[tid] = s.b;",
                    "s.c = 0; for (u32 at = 0; at < 7; ++at) "
                    f"s.c += lds[(tid + at * at) % THREADS] ^ {part}[(tid + at) % THREADS];",
                ),
                (
                    "if (tid < 16) totals[tid] = 3;",
                    f"local_{operation}(totals + (s.a & 15), {given});",
                    "s.b = totals[tid & 15];",
                ),
                ("lds[tid] = s.a;", "s.c = local_fetch_add(lds + tid, s.b); s.e ^= lds[tid];"),
            )
        )
        return "BARRIER\n" + "".join(f"EACH {one} END\nBARRIER\n" for one in rounds)

    def sums(self) -> str:
        """Atomics in global memory: one that no order changes into shared places, or any in a place of the thread."""
        operation, kind = self.random.choice(
            (("add", "u32"), ("sub", "u32"), ("and", "u32"), ("or", "u32"), ("xor", "u32"), ("min", "u32"),
             ("max", "u32"), ("min", "i32"), ("max", "i32"), ("add", "u64"), ("xor", "u64"), ("max", "u64"))
        )  # fmt: skip
        place = 2 * ["add", "sub", "and", "or", "xor", "min", "max"].index(operation)
        place += 32 * (kind == "i32") + 64 * (kind == "u64")
        # sub shares its place with nothing: sums of two operations depend on the order.
        shared = f"atomic_{operation}(({kind}*)(sums + {place}), ({kind}){self.expression(kind, 1)});"
        own = "sums + 128 + thread"
        single = self.random.choice(
            (f"s.a = fetch_add({own}, s.b);", f"s.c = exchange({own}, s.a);",
             f"s.c = compare_exchange({own}, s.a & 1, s.b);")
        )  # fmt: skip
        guarded = f"if ({self.condition(0)}) {{ {self.random.choice((shared, single))} }}"
        return f"EACH {guarded} END"

    def exchange(self) -> str:
        """A value that moves between lanes, in some of them.

        A permutation takes no value of a lane that does not compute: compilers leave open what that gives.
        """
        cond = "true" if self.random.random() < 0.6 else self.condition(0)
        value = f"(u32)({self.expression('u32', 1)})"
        index = f"(u32)({self.expression('u32', 1)})"
        old = self.random.choice(("s.b", "0", "s.c"))
        constant = self.random.randrange(32768)
        permuted = self.random.choice(
            (
                (
                    f"cpu_permute(all, lane, 0, {index} % LIVE)",
                    f"__builtin_amdgcn_ds_bpermute(4 * ({index} % LIVE), {value})",
                ),
                (f"cpu_swizzle(all, lane, 0, {constant})", f"__builtin_amdgcn_ds_swizzle({value}, {constant})"),
            )
        )
        if self.random.random() < 0.3:
            return f"EXCHANGE(true, a, {value}, ({permuted[0]}), ({permuted[1]}))"
        calls = [
            ("cpu_first(all, lane, 0, 0)", f"__builtin_amdgcn_readfirstlane({value})"),
            ("cpu_count(all, lane, 0, 0)", f"gpu_count({value})"),
            ("cpu_below(all, lane, 0, 0)", f"gpu_below({value})"),
            self.dpp(value, old),
            self.dpp(value, old),
        ]
        if self.wave == 32:
            low, high = self.random.getrandbits(32), self.random.getrandbits(32)
            other = self.random.randrange(2)
            name = "permlanex16" if other else "permlane16"
            calls.append(
                (f"cpu_row<{other}>(all, lane, {old}, {low}u, {high}u)",
                 f"__builtin_amdgcn_{name}({old}, {value}, {low}u, {high}u, false, false)")
            )  # fmt: skip
        cpu, gpu = self.random.choice(calls)
        return f"EXCHANGE({cond}, a, {value}, ({cpu}), ({gpu}))"

    def dpp(self, value: str, old: str) -> tuple[str, str]:
        """Both calls of a data-parallel primitive."""
        own = self.random.randrange
        controls = [own(256), 0x101 + own(15), 0x111 + own(15), 0x121 + own(15), 0x140, 0x141, 0x150 + own(16)]
        controls += [0x142, 0x143, 0x130, 0x138] if self.wave == 64 else [0x160 + own(16)]
        control = self.random.choice(controls)
        rows, banks = self.random.choice(((15, 15), (15, 15), (own(16), 15), (15, own(16))))
        zero = self.random.choice(("true", "false"))
        return (
            f"cpu_dpp<{control}, {rows}, {banks}, {zero}>(all, lane, {old}, 0)",
            f"__builtin_amdgcn_update_dpp({old}, {value}, {control}, {rows}, {banks}, {zero})",
        )
