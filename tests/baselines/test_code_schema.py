from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from pytest_attnperf.baselines.code_schema import (
    CodeFile,
    StoredKernel,
    as_stored,
    decode_code_file,
    encode_code_file,
    entry_of,
)
from pytest_attnperf.baselines.schema import content_id
from pytest_attnperf.baselines.writing import list_lost_fields
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.code import KernelCode, LoopEstimate, LoopInstruction, SourceLine
from tests.baselines.edits import replace_field

POLICY: dict[str, Any] = {"fail_on": ["occupancy"], "growth_percent": 1.0}
KEY = "triton.prefill_forward/d256-f16"
LOADS = SourceLine("prefill.py", 0, "k = tl.load(k_ptrs)", {"global_load_16B": 8})


def kernel() -> KernelCode:
    """A small gfx942 kernel with two source lines."""
    return KernelCode(
        "k", "gfx942", 96, 0, 96, 40, 0, 0, 0, 0, 8192, 56, 256, 256, 64, None, False, 9000, "a1b2",
        {"matrix": 64, "global_load_16B": 8, "global_store_4B": 4}, {"matrix": 64},
        lines=(LOADS, SourceLine("prefill.py", 0, "acc = tl.dot(p, v, acc)", {"matrix": 64})),
    )  # fmt: skip


def sample() -> CodeFile:
    """A file of one entry."""
    stored = StoredKernel(
        kernel(), {"BLOCK_M": "64", "BLOCK_N": "32"}, "triton 3.9.0", True, content_id(POLICY), "2026-01-02", "c1"
    )
    return CodeFile(1, "gfx942", {content_id(POLICY): POLICY}, {KEY: stored})


def edited(*path: str | int, value: Any) -> bytes:
    """The sample's text with one field replaced."""
    return replace_field(encode_code_file(sample()), *path, value=value)


def test_a_file_reads_back_as_written() -> None:
    """Decoding an encoded file gives an equal one, and encoding that the same bytes."""
    data = encode_code_file(sample())
    assert decode_code_file(data, "x.json") == sample()
    assert encode_code_file(decode_code_file(data, "x.json")) == data


def test_the_text_is_made_for_diffs() -> None:
    """A register, a size, a setting and a source line each have a line; counts by class share one, sorted."""
    text = encode_code_file(sample()).decode()
    lines = text.splitlines()
    assert text.endswith("}\n")
    assert '        "vgprs": 96,' in lines
    assert '        "BLOCK_M": "64",' in lines
    assert '        "instructions": {"global_load_16B":8,"global_store_4B":4,"matrix":64},' in lines
    line = '{"file":"prefill.py","line":0,"text":"k = tl.load(k_ptrs)","counts":{"global_load_16B":8}},'
    assert f"          {line}" in lines
    assert len(lines) < 60


def test_the_order_of_entries_does_not_depend_on_who_came_first() -> None:
    """Two files of the same content in another order have the same bytes."""
    one = {KEY: sample().entries[KEY], "hip.copy/small": sample().entries[KEY]}
    other = dict(reversed(one.items()))
    assert encode_code_file(dataclasses.replace(sample(), entries=one)) == encode_code_file(
        dataclasses.replace(sample(), entries=other)
    )


def test_line_numbers_are_not_stored() -> None:
    """Lines of one text in one file are one line without a number; another file's line stays apart."""
    found = [
        SourceLine("a.py", 7, "x = f()", {"matrix": 1, "barrier": 2}),
        SourceLine("b.py", 7, "x = f()", {"matrix": 5}),
        SourceLine("a.py", 9, "x = f()", {"matrix": 3}),
    ]
    stored = (
        SourceLine("a.py", 0, "x = f()", {"matrix": 4, "barrier": 2}),
        SourceLine("b.py", 0, "x = f()", {"matrix": 5}),
    )
    assert as_stored(dataclasses.replace(kernel(), lines=tuple(found))) == dataclasses.replace(kernel(), lines=stored)
    assert found[0].counts == {"matrix": 1, "barrier": 2}


def test_the_heaviest_lines_of_a_loop_are_not_stored() -> None:
    """Their numbers change with every edit; the other figures of the loop stay."""
    loop = LoopEstimate(2, 4000.0, 2048.0, 2048, 1800, 1312, 128, 314, 34, 68, 48, 8, 35, 2)
    heavy = dataclasses.replace(loop, heaviest=(LoopInstruction("s_barrier", 2, 40.0, "a.hip", 7, "barrier();"),))
    assert as_stored(dataclasses.replace(kernel(), key_loop=heavy)) == dataclasses.replace(kernel(), key_loop=loop)


def test_the_entry_leaves_out_the_architecture() -> None:
    """The architecture is the file's: kernel and configuration make the key."""
    assert entry_of(CaseKey("code_objects", "triton.prefill_forward", "d256-f16", "gfx942")) == KEY


ENTRY = ("entries", KEY)
CODE = (*ENTRY, "code")
NAMED = f"x.json: entry '{KEY}': "


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("schema",), 2, "x.json: field `schema` is 2; this version reads 1. Use the pytest-attnperf that wrote it"),
        (("schema",), None, "x.json: field `schema` is None, expected the integer 1"),
        (("arch",), 942, "x.json: Expected `str`, got `int` - at `$.arch`"),
        (("arch",), "gfx950", NAMED + "field `code.arch` is 'gfx942', but the file's `arch` is 'gfx950'"),
        (("entries",), [], "x.json: Expected `object`, got `array` - at `$.entries`"),
        (ENTRY, 7, NAMED + "Expected `object`, got `int`"),
        ((*ENTRY, "policy"), "zz", NAMED + "field `policy` names 'zz', which is not in `policies`"),
        ((*ENTRY, "matrix"), "yes", NAMED + "Expected `bool`, got `str` - at `$.matrix`"),
        ((*ENTRY, "config"), {"BLOCK_M": 64}, NAMED + "Expected `str`, got `int` - at `$.config[...]`"),
        ((*CODE, "vgprs"), "96", NAMED + "Expected `int`, got `str` - at `$.code.vgprs`"),
        ((*CODE, "vgprs"), None, NAMED + "Expected `int`, got `null` - at `$.code.vgprs`"),
        ((*CODE, "vgprs"), -1, NAMED + "field `code.vgprs` is -1, expected 0 or more"),
        ((*CODE, "vgpr_spills"), -1, NAMED + "field `code.vgpr_spills` is -1, expected 0 or more"),
        ((*CODE, "code_bytes"), 2**60, NAMED + "field `code.code_bytes` is about 2^61, expected 0 or more"),
        ((*CODE, "wave_size"), 0, NAMED + "field `code.wave_size` is 0, expected 32 or 64"),
        ((*CODE, "in_loops"), {"matrix": -2}, NAMED + "field `code.in_loops` counts -2 of 'matrix', expected 0"),
        ((*CODE, "lines", 0, "counts"), {"x": -3}, NAMED + "field `code.lines[0].counts` counts -3 of 'x', expected"),
    ],
)
def test_an_unsound_field_is_named(path: tuple[str | int, ...], value: object, text: str) -> None:
    """Every wrong type or impossible value is an error naming file, entry and field."""
    with pytest.raises(BaselineError) as caught:
        decode_code_file(edited(*path, value=value), "x.json")
    assert str(caught.value).startswith(text)


def test_spills_may_be_unknown() -> None:
    """An object that does not say how many registers it spills is stored so, and read back; so is a count of 0."""
    none = decode_code_file(edited(*CODE, "in_loops", value={"matrix": 0}), "x.json")
    assert none.entries[KEY].code.in_loops == {"matrix": 0}
    file = decode_code_file(edited(*CODE, "vgpr_spills", value=None), "x.json")
    assert file.entries[KEY].code.vgpr_spills is None


@pytest.mark.parametrize("key", ["prefill", "a/b/c", "/b", "a/"])
def test_a_key_names_kernel_and_configuration(key: str) -> None:
    """Anything but '<kernel>/<config>' is no key of a file."""
    data = edited("entries", value={key: msgspec.json.decode(encode_code_file(sample()))["entries"][KEY]})
    with pytest.raises(BaselineError, match="the key is not '<kernel>/<config>'"):
        decode_code_file(data, "x.json")


def test_an_edited_policy_is_found() -> None:
    """A policy that no longer hashes to its id was edited by hand, and is not trusted."""
    data = edited("policies", content_id(POLICY), "growth_percent", value=500.0)
    with pytest.raises(BaselineError, match=r"field `policies` has .*, whose content hashes to .* by hand"):
        decode_code_file(data, "x.json")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        encode_code_file(sample())[:-80],
        b"[" * 100_000,
        encode_code_file(sample()).replace(b"9000", b"NaN"),
    ],
    ids=["empty", "brace", "binary", "truncated", "nested", "NaN"],
)
def test_what_is_no_json_is_a_clean_error(data: bytes) -> None:
    """Empty, truncated, binary, absurdly nested and NaN-holding files are BaselineErrors naming the file."""
    with pytest.raises(BaselineError, match=r"^x\.json: "):
        decode_code_file(data, "x.json")


def test_a_count_of_thousands_of_digits_is_refused() -> None:
    """A number that arithmetic cannot take is named by its field, not printed."""
    data = encode_code_file(sample()).replace(b'"code_bytes": 9000', b'"code_bytes": ' + b"9" * 4000)
    with pytest.raises(BaselineError, match=r"^x\.json: ") as caught:
        decode_code_file(data, "x.json")
    assert len(str(caught.value)) < 300


def test_unknown_fields_are_counted_as_lost() -> None:
    """A field this version does not know is readable but named, so that a rewrite can refuse to drop it."""
    data = edited(*CODE, "cluster_size", value=4)
    assert list_lost_fields(data, decode_code_file(data, "x.json"), "x.json") == [f"$.entries.{KEY}.code.cluster_size"]
    assert list_lost_fields(encode_code_file(sample()), sample(), "x.json") == []
