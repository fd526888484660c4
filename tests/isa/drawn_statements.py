"""Draws statements of one thread: branches, loops, tables, vectors, structures and reads."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.isa.drawn_expressions import VARIABLES, WIDTHS, Expressions

IN_WORDS = 16
"""Words of input that each thread has."""


class Statements(Expressions):
    """Draws statements, nested to a depth."""

    def __init__(self, random: Random, wave: int) -> None:
        super().__init__(random, wave)
        self.names = 0

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
        body = f"{self.assignment()} s.c += {name};"
        return f"{{ u32 {name} = 0; do {{ {body} }} while (++{name} < 9 && {self.condition(0)}); }}"

    def switch(self, depth: int) -> str:
        """Cases. None falls through: clang 22 then leaves an old value in lanes that enter behind the first case."""
        cases = " ".join(f"case {at}: {self.statement(depth - 1)} break;" for at in range(self.random.randint(3, 6)))
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
            )
        )
