"""Draws expressions of the types of `face.h`.

Nothing that the language leaves open, and with floats only what both machines round alike.
"""

from __future__ import annotations

from random import Random

INTEGERS = ("u32", "i32", "u64", "i64", "u16", "i16", "u8", "i8")
FLOATS = ("f32", "f64", "f16", "bf16")
WIDTHS = {"u32": 32, "i32": 32, "u64": 64, "i64": 64, "u16": 16, "i16": 16, "u8": 8, "i8": 8}

VARIABLES = {
    "u32": ("a", "b", "c"), "i32": ("d", "e"), "u64": ("f", "g"), "i64": ("h",), "u16": ("i", "j"), "i16": ("k",),
    "u8": ("l",), "i8": ("m",), "f32": ("x", "y", "z"), "f64": ("p",), "f16": ("q", "r"), "bf16": ("t",),
}  # fmt: skip
"""Type -> variables of a thread."""

_WORD_EDGES = ("0", "1", "31", "0x7fffffff", "0x80000000", "0xffffffff", "0x8000", "0xffff", "0x3f800000", "255")
_FLOAT_EDGES = ("0.0", "1.0", "-0.5", "2.0", "4.0", "1e-40", "3.0e38", "0.1", "-7.0", "65504.0", "0.15915494")


class Expressions:
    """Draws expressions of one thread for waves of `wave` lanes."""

    def __init__(self, random: Random, wave: int) -> None:
        self.random = random
        self.wave = wave

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
            )
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
