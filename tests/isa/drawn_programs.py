"""Draws small programs for `face.h`: what a compiler makes of them covers instructions that nobody listed.

Pure: a seed gives the same program everywhere. A program computes nothing that the language leaves open, and with floats
only what both machines round alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

IN_WORDS = 16
"""Words of input that each thread has."""

INTEGERS = ("u32", "i32", "u64", "i64", "u16", "i16", "u8", "i8")
FLOATS = ("f32", "f64", "f16", "bf16")
WIDTHS = {"u32": 32, "i32": 32, "u64": 64, "i64": 64, "u16": 16, "i16": 16, "u8": 8, "i8": 8}

VARIABLES = {
    "u32": ("a", "b", "c"), "i32": ("d", "e"), "u64": ("f", "g"), "i64": ("h",), "u16": ("i", "j"), "i16": ("k",),
    "u8": ("l",), "i8": ("m",), "f32": ("x", "y", "z"), "f64": ("p",), "f16": ("q", "r"), "bf16": ("t",),
}  # fmt: skip
"""Type -> variables of a thread."""

ALL = tuple(name for names in VARIABLES.values() for name in names)

_WORD_EDGES = ("0", "1", "31", "0x7fffffff", "0x80000000", "0xffffffff", "0x8000", "0xffff", "0x3f800000", "255")
_FLOAT_EDGES = ("0.0", "1.0", "-0.5", "2.0", "4.0", "1e-40", "3.0e38", "0.1", "-7.0", "65504.0", "0.15915494")


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
    drawing = _Drawing(Random(seed), wave)
    random = drawing.random
    # Waves of 64 lanes are half full at times.
    threads = random.choice((wave, wave, 2 * wave, 96))
    steps = tuple(drawing.draw_step() for _ in range(random.randint(3, 7)))
    return DrawnProgram(seed, wave, threads, random.choice((1, 1, 2)), steps)


class _Drawing:
    """One program being drawn."""

    def __init__(self, random: Random, wave: int) -> None:
        self.random = random
        self.wave = wave
        self.names = 0

    # Expressions.

    def leaf(self, kind: str) -> str:
        """A variable, constant, id or argument of the kernel as `kind`."""
        choice = self.random.random()
        if choice < 0.6:
            other = self.random.choice(INTEGERS) if kind in INTEGERS and choice < 0.2 else kind
            name = f"s.{self.random.choice(VARIABLES[other])}"
            return name if other == kind else f"(({kind}){name})"
        if kind in FLOATS:
            if choice < 0.8:
                return f"(({kind}){self.random.choice(_FLOAT_EDGES)}f)"
            return f"(({kind})k2)"
        if choice < 0.75:
            drawn = str(self.random.getrandbits(WIDTHS[kind] - 1))
            return f"(({kind}){self.random.choice((*_WORD_EDGES, drawn, drawn, drawn))})"
        return f"(({kind})({self.random.choice(('k0', 'k1', 'lane', 'tid', 'group', 'k0 * 3', 'k1 >> 7'))}))"

    def expression(self, kind: str, depth: int = 3) -> str:
        """An expression of that type."""
        if depth == 0 or self.random.random() < 0.1:
            return self.leaf(kind)
        if self.random.random() < 0.1:
            return f"({self.condition(depth - 1)} ? {self.expression(kind, depth - 1)} : {self.leaf(kind)})"
        return self.integer(kind, depth) if kind in INTEGERS else self.number(kind, depth)

    def condition(self, depth: int = 1) -> str:
        """A truth."""
        kind = self.random.choice(("u32", "i32", "u32", "i32", "f32", "u64", "i64", "u16", "i16", "f64", "f16", "u8"))
        relation = self.random.choice(("<", "<=", ">", ">=", "==", "!="))
        found = f"({self.expression(kind, depth)} {relation} {self.expression(kind, depth)})"
        if self.random.random() < 0.2:
            found = f"({found} {self.random.choice(('&&', '||', '!='))} {self.condition(0)})"
        return f"(!{found})" if self.random.random() < 0.15 else found

    def integer(self, kind: str, depth: int) -> str:
        """An operation of integers."""
        a, b = (self.expression(kind, depth - 1) for _ in range(2))
        choice, width = self.random.random(), WIDTHS[kind]
        if choice < 0.42:
            operator = self.random.choice(("+", "-", "*", "&", "|", "^", "+", "-", "&"))
            return f"({kind})({a} {operator} {b})"
        if choice < 0.54:
            amount = self.expression("u32", 0) if self.random.random() < 0.5 else str(self.random.randrange(width))
            return f"({kind})({a} {self.random.choice(('<<', '>>'))} ({amount} & {width - 1}))"
        if choice < 0.6:
            return f"{self.random.choice(('quotient', 'remainder'))}<{kind}>({a}, {b})"
        if choice < 0.66:
            return f"({kind}){self.random.choice(('~', '-'))}{a}"
        if choice < 0.72:
            return f"__builtin_elementwise_{self.random.choice(('min', 'max'))}(({kind})({a}), ({kind})({b}))"
        if choice < 0.84:
            return f"({kind}){self.bits(depth)}"
        if choice < 0.93:
            other = self.random.choice(INTEGERS)
            return f"({kind}){self.expression(other, depth - 1)}"
        if choice < 0.96:
            return f"({kind}){self.condition(depth - 1)}"
        function = self.random.choice(("to_i32", "to_u32", "to_i64"))
        source = self.random.choice(("f32", "f64"))
        return f"({kind}){function}(({source})({self.expression(source, depth - 1)}))"

    def bits(self, depth: int) -> str:
        """An operation of bits of 32 or 64."""
        a, b, c = (self.expression("u32", depth - 1) for _ in range(3))
        wide = self.expression("u64", depth - 1)
        return self.random.choice(
            (
                f"__builtin_popcount({a})",
                f"__builtin_popcountll({wide})",
                f"leading({a})",
                f"trailing({a})",
                f"leading64({wide})",
                f"trailing64({wide})",
                f"__builtin_bswap32({a})",
                f"__builtin_bswap64({wide})",
                f"__builtin_bitreverse32({a})",
                f"__builtin_rotateleft32({a}, {b})",
                f"field({a}, {b}, {c})",
                f"__builtin_rotateright32({a}, {b} & 31)",
                f"__builtin_rotateleft64({wide}, {b})",
                f"signed_field((i32)({a}), {b}, {c})",
                f"high_product({a}, {b})",
                f"high_product((i32)({a}), (i32)({b}))",
                f"bits_of({self.expression('f32', depth - 1)})",
                f"__builtin_bitreverse64({wide})",
                f"__builtin_bswap16((u16)({a}))",
                f"({a} & {b} | ~({a}) & {c})",
                f"(({a} & 0xffffff) * ({b} & 0xffffff) + {c})",
                f"(({a} << 3) + {b})",
                f"({a} | {b} | {c})",
                f"((u64)({a}) * ({b}) + {wide})",
                f"((i64)(i32)({a}) * (i32)({b}))",
                f"({a} ^ {b} ^ {c})",
                f"({a} < {b} ? {b} - {a} : {a} - {b})",
                f"__builtin_elementwise_add_sat({a}, {b})",
                f"__builtin_elementwise_sub_sat((i32)({a}), (i32)({b}))",
            )  # fmt: skip
        )

    def number(self, kind: str, depth: int) -> str:
        """An operation of floats that is rounded once, or exact."""
        a, b, c = (self.expression(kind, depth - 1) for _ in range(3))
        choice = self.random.random()
        if choice < 0.45:
            return f"({kind})({a} {self.random.choice('+-*')} {b})"
        if choice < 0.5:
            return f"({kind})-{a}"
        if choice < 0.7 or kind == "bf16":
            return self.converted(kind, depth)
        if kind == "f16":
            return f"(f16)__builtin_elementwise_{self.random.choice(('abs', 'floor', 'trunc', 'rint'))}({a})"
        suffix = "f" if kind == "f32" else ""
        if choice < 0.78:
            return f"__builtin_fma{suffix}({a}, {b}, {c})"
        if choice < 0.82:
            return f"(tame(({kind})({a})) / tame(({kind})({b})))"
        if choice < 0.84:
            return f"__builtin_sqrt{suffix}(__builtin_fabs{suffix}(tame(({kind})({a}))))"
        if choice < 0.9:
            return f"{self.random.choice(('larger', 'smaller'))}(({kind})({a}), ({kind})({b}))"
        if choice < 0.94:
            return f"with_sign(({kind})({a}), ({kind})({b}))"
        function = self.random.choice(("fabs", "floor", "ceil", "trunc", "rint"))
        return f"__builtin_{function}{suffix}({a})"

    def converted(self, kind: str, depth: int) -> str:
        """A value of another type. Only conversions that both machines round once."""
        sources = {
            "f32": ("u32", "i32", "u64", "i64", "f64", "f16", "bf16", "u8", "i16", "bits"),
            "f64": ("u32", "i32", "u64", "i64", "f32", "f16", "bits"), "f16": ("f32", "i16", "u8", "bits"),
            "bf16": ("f32", "bits"),
        }  # fmt: skip
        source = self.random.choice(sources[kind])
        if source == "bits":
            width = {"f32": "u32", "f64": "u64"}.get(kind, "u16")
            return f"to_{kind}({self.expression(width, depth - 1)})"
        return f"({kind}){self.expression(source, depth - 1)}"

    # Statements of one thread.

    def target(self) -> tuple[str, str]:
        """(type, variable) to be assigned."""
        kind = self.random.choice(tuple(VARIABLES))
        return kind, f"s.{self.random.choice(VARIABLES[kind])}"

    def assignment(self) -> str:
        """s.a = expression."""
        kind, name = self.target()
        return f"{name} = {self.expression(kind)};"

    def fresh(self) -> str:
        """The name of a variable."""
        self.names += 1
        return f"n{self.names}"

    def statement(self, depth: int = 2) -> str:
        """A statement of one thread."""
        if depth == 0 or self.random.random() < 0.3:
            return self.assignment()
        drawn: Callable[[int], str] = self.random.choice(
            (
                self.branch,
                self.loop,
                self.search,
                self.switch,
                self.table,
                self.bytes,
                self.vector,
                self.records,
                self.read,
            )
        )
        return drawn(depth)

    def block(self, depth: int) -> str:
        """A few statements."""
        return " ".join(self.statement(depth - 1) for _ in range(self.random.randint(1, 3)))

    def branch(self, depth: int) -> str:
        """if and else."""
        rest = f" else {{ {self.block(depth)} }}" if self.random.random() < 0.6 else ""
        return f"if ({self.condition()}) {{ {self.block(depth)} }}{rest}"

    def loop(self, depth: int) -> str:
        """A loop whose trips depend on the thread, with break and continue."""
        name = self.fresh()
        leave = f"if ({self.condition(0)}) {self.random.choice(('break', 'continue'))};" if depth > 1 else ""
        return (
            f"for (u32 {name} = 0; {name} < ({self.expression('u32', 1)} & 7); ++{name}) "
            f"{{ {self.assignment()} {leave} {self.block(depth)} }}"
        )

    def search(self, _depth: int) -> str:
        """A loop that ends where a condition of the thread holds."""
        name = self.fresh()
        return f"{{ u32 {name} = 0; do {{ {self.assignment()} s.c += {name}; }} while (++{name} < 9 && {self.condition(0)}); }}"

    def switch(self, depth: int) -> str:
        """Cases. None falls through: clang 22 then leaves an old value in lanes that enter behind the first case."""
        cases = " ".join(
            f"case {at}: {self.statement(depth - 1)} break;"
            for at in range(self.random.randint(3, 6))
        )
        return f"switch ({self.expression('u32', 1)} & 7) {{ {cases} default: {self.assignment()} }}"

    def table(self, _depth: int) -> str:
        """A private array with indices of the thread."""
        name, index, kind = self.fresh(), self.fresh(), self.random.choice(("u32", "u32", "u16", "u8", "u64", "f32"))
        variable = VARIABLES[kind][0]
        return (
            f"{{ {kind} {name}[8]; for (u32 {index} = 0; {index} < 8; ++{index}) {name}[{index}] = s.{variable} + "
            f"({kind}){index}; {name}[{self.expression('u32', 1)} & 7] = {self.expression(kind, 1)}; "
            f"s.{variable} = {name}[{self.expression('u32', 1)} & 7]; }}"
        )

    def bytes(self, _depth: int) -> str:
        """Bytes of a private array that are read as other types."""
        name, at = self.fresh(), self.random.randrange(13)
        return (
            f"{{ u8 {name}[16]; __builtin_memset({name}, s.l, 16); __builtin_memcpy({name} + 4, &s.f, 8); "
            f"{name}[s.a & 15] = s.b; __builtin_memcpy(&s.c, {name} + {at}, 4); "
            f"s.j = *({name} + (s.d & 15)); __builtin_memcpy(&s.k, {name} + {at + 1}, 2); }}"
        )

    def vector(self, _depth: int) -> str:
        """Vectors of two and four."""
        kind, element = self.random.choice(
            (("u32x4", "u32"), ("i16x2", "i16"), ("u16x2", "u16"), ("f16x2", "f16"), ("f32x2", "f32"))
        )
        if element == "f16" and self.wave == 32:
            # clang 22 loses an element of such a product on gfx11 with 16-bit registers.
            kind, element = "f32x2", "f32"
        names = [self.fresh() for _ in range(3)]
        size = 4 if kind == "u32x4" else 2
        made = [
            f"{kind} {name} = {{{', '.join(f'({element})({self.expression(element, 1)})' for _ in range(size))}}};"
            for name in names
        ]
        a, b, c = names
        operators = "+-*" if element[0] == "f" else "+-*&|^"
        first, second = (self.random.choice(operators) for _ in range(2))
        more = ""
        if element[0] != "f":
            more = f"{a} = {a} {self.random.choice(('<<', '>>'))} ({b} & ({element}){WIDTHS[element] - 1});"
            more += f"{c} = __builtin_elementwise_{self.random.choice(('min', 'max'))}({a}, {c});"
        swizzle = "wzyx" if size == 4 else "yx"
        variable = VARIABLES[element]
        return (
            f"{{ {' '.join(made)} {more} {a} = {a} {first} {b}.{swizzle} {second} {c}; "
            f"s.{variable[0]} = {a}[0]; s.{variable[-1]} = {a}.{'w' if size == 4 else 'y'}; }}"
        )

    def records(self, _depth: int) -> str:
        """Structures of mixed members, copied and indexed."""
        name = self.fresh()
        return (
            f"{{ Record {name}[3] = {{{{s.i, s.l, 9, s.a, s.x}}, {{s.j, 7, s.l, s.b, s.y}}, {{1, 3, 5, 2, 4.0f}}}}; "
            f"{name}[{self.expression('u32', 1)} % 3].word = {self.expression('u32', 1)}; {name}[1] = {name}[s.c % 3]; "
            f"s.a = {name}[1].word; s.i = {name}[s.b % 3].small; s.z = {name}[1].number; s.l ^= {name}[2].byte; }}"
        )

    def read(self, _depth: int) -> str:
        """A read of the input at an index of the thread: word, half or byte."""
        words = f"(thread * {IN_WORDS} + ({self.expression('u32', 1)} & {IN_WORDS - 1}))"
        return self.random.choice(
            (
                f"s.a = in[{words}];",
                f"s.l = ((const u8*)in)[{words}];",
                f"s.m = ((const i8*)in)[{words} * 2 + 1];",
                f"s.i = ((const u16*)in)[{words}];",
                f"s.k = ((const i16*)in)[{words} + 1];",
                f"s.f = ((const u64*)in)[{words} >> 1];",
                f"s.x = to_f32(in[{words}]);",
                f"s.e = ((const i8*)in)[{words}];",
                f"{{ u32x4 four = *(const u32x4*)(in + ({words} & ~3u)); s.a = four.x; s.b ^= four.w; }}",
                f"s.q = to_f16(((const u16*)in)[{words} * 2 + 1]);",
                f"s.d = ((const i16*)in)[{words}];",
            )  # fmt: skip
        )

    # Steps of all threads.

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
        """Values that move through LDS: words, a reduction, bytes, or atomic sums."""
        part = "(lds + THREADS)"
        index = f"(({self.expression('u32', 1)}) % THREADS)"
        return self.random.choice(
            (
                f"BARRIER\nEACH lds[tid] = {self.expression('u32', 1)}; END\nBARRIER\nEACH s.a = lds[{index}]; END\nBARRIER",
                f"BARRIER\nEACH ((u8*)lds)[tid] = s.l; ((u16*){part})[tid] = s.i; END\nBARRIER\n"
                f"EACH s.m = ((i8*)lds)[{index}]; s.k = ((i16*){part})[{index}]; s.l = ((u8*)lds)[{index}]; END\nBARRIER",
                f"BARRIER\nEACH ((u64*)lds)[tid] = s.f; END\nBARRIER\nEACH s.g += ((u64*)lds)[{index}]; END\nBARRIER",
                f"BARRIER\nEACH lds[tid] = s.a; {part}[tid] = s.b; END\nBARRIER\nEACH s.c = 0; for (u32 at = 0; at < 7; ++at) "
                f"s.c += lds[(tid + at * at) % THREADS] ^ {part}[(tid + at) % THREADS]; END\nBARRIER",
                f"BARRIER\nEACH if (tid < 16) totals[tid] = 3; END\nBARRIER\nEACH local_{self.random.choice(('add', 'and', 'or', 'xor', 'min', 'max'))}"
                f"(totals + (s.a & 15), {self.expression('u32', 1)}); END\nBARRIER\nEACH s.b = totals[tid & 15]; END\nBARRIER",
                "BARRIER\nEACH lds[tid] = s.a; END\nBARRIER\nEACH s.c = local_fetch_add(lds + tid, s.b); s.e ^= lds[tid]; END\nBARRIER",
            )  # fmt: skip
        )

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
                (f"cpu_permute(all, lane, 0, {index} % LIVE)", f"__builtin_amdgcn_ds_bpermute(4 * ({index} % LIVE), {value})"),
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
