from __future__ import annotations

import ast
import dataclasses
import json
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.dispatch.function_source import render_module
from pytest_attnperf.tools.dispatch.measured_points import BackendTime, make_points
from pytest_attnperf.tools.dispatch.regions import DispatchTable, make_dispatch_table
from pytest_attnperf.workloads.families import parse_workload

Make = Callable[..., BackendTime]
Decide = Callable[..., DispatchTable]

HOSTILE = '"; import os; """ \\ {__import__("os")}\n# \x1b[2J \u202e é \ud800'
FUNCTIONS = {"isinstance", "ValueError", "_complete", "_found"}
METHODS = {"get", "items"}


def loaded(source: str) -> dict[str, Any]:
    """The module's names."""
    names: dict[str, Any] = {}
    exec(compile(source, "choose", "exec"), names)
    return names


def calls(source: str) -> set[str]:
    """Everything that the module calls, with its imports and its accesses to attributes."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            found.add(ast.unparse(node.func).rpartition(".")[2])
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.add("import")
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def asked(workload: str) -> dict[str, Any]:
    """Every field of a workload as a caller gives it, by the names of the workload's class."""
    return dataclasses.asdict(parse_workload(workload))  # type: ignore[call-overload,no-any-return]


def seed_rule(timed: Make, table: Decide) -> str:
    """The source of a table in which triton wins at 512 and ck from 1024 on."""
    times = [timed("ck", 2.0), timed("triton", 1.0)]
    times += [timed("ck", 1.0, seq=seq) for seq in (1024, 4096)] + [
        timed("triton", 2.0, seq=seq) for seq in (1024, 4096)
    ]
    return render_module(table(times), ["MI300X"])


def test_measured_sizes_and_what_lies_around_them(timed: Make, table: Decide) -> None:
    """Triton to 512, ck from 1024 to 4096; between and beyond them, unmeasured and the incumbent's."""
    names = loaded(seed_rule(timed, table))
    shape: dict[str, Any] = {"batch": 4, "heads": 8, "head_dim": 256, "dtype": "f16", "causal": True}
    answers = {
        seq: (names["choose_backend"]("prefill", seq_q=seq, **shape), names["measured"]("prefill", seq_q=seq, **shape))
        for seq in (511, 512, 513, 1023, 1024, 2000, 4096, 4097)
    }
    assert answers == {
        511: ("ck", False),
        512: ("triton", True),
        513: ("ck", False),
        1023: ("ck", False),
        1024: ("ck", True),
        2000: ("ck", True),
        4096: ("ck", True),
        4097: ("ck", False),
    }


@pytest.mark.parametrize(
    "other", [{"alibi": True}, {"window": 128}, {"head_dim": 128}, {"seq_kv": 1024}, {"kv_heads": 2}, {"dtype": None}]
)
def test_another_feature_is_another_shape(timed: Make, table: Decide, other: dict[str, Any]) -> None:
    """One field that differs from what was measured, or a dtype that is not given, gets the incumbent."""
    names = loaded(seed_rule(timed, table))
    shape = {"seq_q": 512, "batch": 4, "heads": 8, "head_dim": 256, "dtype": "f16", "causal": True}
    assert names["choose_backend"]("prefill", **shape) == "triton"
    assert names["choose_backend"]("prefill", **shape, kv_heads=8, seq_kv=512, head_dim_v=256, lse=False) == "triton"
    assert names["choose_backend"]("prefill", **{**shape, **other}) == "ck"
    assert not names["measured"]("prefill", **{**shape, **other})


def test_a_family_that_was_not_measured_is_an_error(timed: Make, table: Decide) -> None:
    """There is no incumbent of it; `measured` says no."""
    names = loaded(seed_rule(timed, table))
    with pytest.raises(ValueError, match=r"nothing was measured of the family 'gemm', only of \['prefill'\]"):
        names["choose_backend"]("gemm")
    assert names["measured"]("gemm") is False


def test_nothing_in_a_file_becomes_code(timed: Make, table: Decide) -> None:
    """A hostile backend, family, text and device come out as literals: no import, and no call of what is not ours."""
    definition = {"family": HOSTILE, "seq_q": 8, "mode": HOSTILE, "blocks": [1, 2]}
    times = [timed(HOSTILE, 1.0), timed("b", 2.0), timed(HOSTILE, 1.0, workload="x-1", definition=definition)]
    source = render_module(table(times), [HOSTILE, 'ends in a quote"', "ends in a backslash\\"])
    assert source.isascii()
    assert calls(source) == FUNCTIONS | METHODS
    names = loaded(source)
    shape = {"seq_q": 512, "batch": 4, "heads": 8, "head_dim": 256, "dtype": "f16", "causal": True}
    assert names["choose_backend"]("prefill", **shape) == HOSTILE
    assert names["choose_backend"](HOSTILE, seq_q=8, blocks=(1, 2)) == HOSTILE
    assert 'ends in a quote"' in names["__doc__"]
    assert "ends in a backslash\\" in names["__doc__"]


def test_shapes_that_differ_in_a_text_stay_apart(timed: Make, table: Decide) -> None:
    """Of a family that is not built in: a text that shapes do not share has no default, one that some lack neither."""
    fields = {"family": "sparse", "dtype": "f16", "scale": "1"}
    shapes: list[dict[str, Any]] = [{"mode": "x"}, {"mode": "y"}, {}]
    times = []
    for place, (shape, best) in enumerate(zip(shapes, "abc", strict=True)):
        for size in (64, 4096):
            definition = {**fields, **shape, "seq_q": size}
            workload = f"sparse-{'long' if size > 64 else 'short'}{place}"
            times += [
                timed(name, 1.0 if name == best else 2.0, workload=workload, definition=definition) for name in "abc"
            ]
    found = table(times)
    names = loaded(render_module(found, []))
    for shape, best in zip(shapes, "abc", strict=True):
        for size in (64, 1000, 4096):
            assert names["choose_backend"]("sparse", seq_q=size, dtype="f16", **shape) == best
            assert names["measured"]("sparse", seq_q=size, dtype="f16", **shape)
    assert [group.shape.label for group in found.groups] == [
        "dtype=f16 mode=x scale=1",
        "dtype=f16 mode=y scale=1",
        "dtype=f16 scale=1",
    ]


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60), told=st.text(alphabet=string.printable + "é\u2028", max_size=80))
def test_any_text_stays_text(text: str, told: str) -> None:
    """Whatever a backend and a source are called, the module holds them as strings and calls nothing else."""
    backend = text or "a"
    points, _ = make_points([BackendTime(backend, "softmax-r8-c64-f16", 1.0)])
    source = render_module(make_dispatch_table(points, margin=0.02), [told])
    assert calls(source) == FUNCTIONS | METHODS
    assert loaded(source)["choose_backend"]("softmax", rows=8, columns=64, dtype="f16") == backend


@pytest.mark.parametrize("name", ["given", "isinstance", "ValueError", "größe"])
def test_a_field_that_cannot_be_a_parameter_is_refused(timed: Make, table: Decide, name: str) -> None:
    """Of a family that is not built in, whose fields come from a file."""
    with pytest.raises(UsageError, match=f"has the field '{name}', which no function can have"):
        render_module(table([timed("a", 1.0, workload="x-1", definition={name: 1})]), [])


_SIZES = st.sampled_from([64, 128, 512, 1000, 1024, 4096])
_CASES = st.tuples(
    st.sampled_from(["a", "b", "c"]), _SIZES, st.sampled_from([1, 4]), st.sampled_from([64, 256]), st.integers(1, 4)
)


@settings(max_examples=40, deadline=None)
@given(cases=st.lists(_CASES, min_size=1, max_size=40))
def test_the_function_says_what_the_regions_say(cases: list[tuple[str, int, int, int, int]]) -> None:
    """At every measured point its choice; in every gap and beyond the ends, unmeasured and the incumbent."""
    timed = [BackendTime(name, f"prefill-b{b}-s{seq}-h8-d{d}-f16", float(us)) for name, seq, b, d, us in cases]
    points, left_out = make_points(timed)
    found = make_dispatch_table(points, left_out, margin=0.02)
    names = loaded(render_module(found, []))
    for group in found.groups:
        for region in group.regions:
            for choice in region.choices:
                workload = asked(choice.point.workload)
                assert names["choose_backend"]("prefill", **workload) == choice.backend == region.backend
                assert names["measured"]("prefill", **workload)
        first, last = group.regions[0].first, group.regions[-1].last
        for size in (first - 1, last + 1, *(end for gap in group.gaps for end in gap)):
            workload = {**dict(group.shape.fields), "seq_q": size}
            assert not names["measured"]("prefill", **workload)
            assert names["choose_backend"]("prefill", **workload) == found.incumbents["prefill"]


def test_it_runs_where_nothing_is_installed(timed: Make, table: Decide, tmp_path: Path) -> None:
    """In an isolated interpreter without site packages, for shapes of several families."""
    ids = ("prefill-b1-s128-kv512-h4-d64-f16-causal", "decode-b4-kv200-h4-hk2-d64-f16", "gemm-m16-n64-k64-i8-nt",
           "varlen-q5_63_130-h4-hk2-d64-f16-causal-lse", "mixed-64q1s4k-h32-hk8-d128-page16-bf16")  # fmt: skip
    times = [timed(f"best of {workload}", 1.0, workload=workload) for workload in ids]
    (tmp_path / "choose.py").write_text(render_module(table(times), ["H200"]))
    asks = [[workload.split("-")[0], asked(workload)] for workload in ids]
    script = (
        "import json, runpy, sys; names = runpy.run_path(sys.argv[1]); tuples = lambda fields: "
        "{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}; "
        "print(json.dumps([names['choose_backend'](family, **tuples(fields)) for family, fields in "
        "json.loads(sys.argv[2])]))"
    )
    command = [sys.executable, "-I", "-S", "-c", script, str(tmp_path / "choose.py"), json.dumps(asks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [f"best of {workload}" for workload in ids]
