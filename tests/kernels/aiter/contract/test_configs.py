from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.aiter.contract.source import Source

ARCHS = ("gfx942", "gfx950")
EARLIER_NAMES = {"gfx942": "MI300X", "gfx950": "MI350X"}
"""Until v0.1.7 the files are named after products."""

FORWARD = {"BLOCK_M", "BLOCK_N", "waves_per_eu", "num_warps", "num_ctas", "num_stages"}
BUCKETS = {"default", "dropout_or_fp32", "pe", "pe_dropout_or_fp32"}
LOADERS = ("aiter.ops.triton._triton_kernels.attention.mha", "aiter.ops.triton._triton_kernels.mha")
KNOWN = ("enable_dropout", "dtype", "has_pe", "head_dim_v")
"""Parameters of aiter's `_get_config`; v0.1.9 has the first three."""


def config_file(source: Source, arch: str) -> Path | None:
    """aiter's file of MHA configurations for an architecture: at its place of today, or where it has been before."""
    configs = source.root / "aiter" / "ops" / "triton" / "configs"
    places = (
        configs / arch / "triton" / "attention" / "mha" / "DEFAULT.json",
        configs / f"{arch}-MHA-DEFAULT.json",
        configs / f"{EARLIER_NAMES[arch]}-MHA-DEFAULT.json",
    )
    return next((path for path in places if path.is_file()), None)


def wrong_config(content: Any) -> list[str]:
    """What of a file's content is not as the tuner and the adapters expect it; empty where all is."""
    forward = content.get("fwd")
    if not isinstance(forward, dict):
        return ["no 'fwd'"]
    found = [f"fwd has no {name}" for name in sorted({"default", "dropout_or_fp32"} - forward.keys())]
    for bucket, values in sorted(forward.items()):
        found += [f"fwd.{bucket} has no {name}" for name in sorted(FORWARD - values.keys())]
        odd = [name for name, value in values.items() if not isinstance(value, int | bool)]
        found += [f"fwd.{bucket}.{name} is {values[name]!r}" for name in odd]
    return found + [f"no {name!r}" for name in ("bkwd_fused", "bkwd_onekernel") if name not in content]


@pytest.mark.parametrize("arch", ARCHS)
def test_the_configurations_are_where_and_as_expected(source: Source, arch: str) -> None:
    """The file exists at one of the known places, and its buckets have the values that a candidate replaces."""
    path = config_file(source, arch)
    if path is None and arch == "gfx950":
        pytest.skip("this tree has no MHA configurations for gfx950: aiter.triton is UNSUPPORTED there")
    assert path is not None
    assert wrong_config(json.loads(path.read_text(encoding="utf-8"))) == []


def test_only_known_buckets_serve(source: Source) -> None:
    """A bucket that nobody knows would be picked by a rule that nobody knows."""
    for arch in ARCHS:
        path = config_file(source, arch)
        if path is not None:
            buckets = json.loads(path.read_text(encoding="utf-8"))["fwd"].keys()
            assert buckets <= BUCKETS | {"small_head"}


def test_the_lookup_picks_by_what_is_known(source: Source) -> None:
    """`_get_config` chooses by dropout, dtype, position encoding and head dimension only: no length, no heads."""
    found = next((one for one in (source.function(module, "_get_config") for module in LOADERS) if one), None)
    if found is None:
        pytest.skip("this tree looks its configurations up elsewhere; a candidate is given as config= all the same")
    assert found.names == KNOWN[: len(found.names)]


GOOD = {"fwd": {"default": dict.fromkeys(FORWARD, 1), "dropout_or_fp32": dict.fromkeys(FORWARD, 1)}}


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (GOOD | {"bkwd_fused": {}, "bkwd_onekernel": {}}, []),
        (GOOD, ["no 'bkwd_fused'", "no 'bkwd_onekernel'"]),
        ({"forward": {}}, ["no 'fwd'"]),
        ({"fwd": {}, "bkwd_fused": {}, "bkwd_onekernel": {}}, ["fwd has no default", "fwd has no dropout_or_fp32"]),
        (
            {
                "fwd": GOOD["fwd"] | {"pe": dict.fromkeys(FORWARD - {"BLOCK_N"}, 1)},
                "bkwd_fused": {},
                "bkwd_onekernel": {},
            },
            ["fwd.pe has no BLOCK_N"],
        ),
        (
            {"fwd": GOOD["fwd"] | {"pe": dict.fromkeys(FORWARD, "a")}, "bkwd_fused": {}, "bkwd_onekernel": {}},
            sorted(f"fwd.pe.{name} is 'a'" for name in FORWARD),
        ),
    ],
)
def test_a_changed_layout_is_found(content: Any, wrong: list[str]) -> None:
    """Missing parts, buckets and values, and values that are no numbers, are told."""
    assert sorted(wrong_config(content)) == sorted(wrong)


def test_the_places_in_their_order(tmp_path: Path) -> None:
    """Today's place comes before the earlier ones; without any there is none."""
    configs = tmp_path / "aiter" / "ops" / "triton" / "configs"
    source = Source(tmp_path)
    assert config_file(source, "gfx942") is None
    for name in ("MI300X-MHA-DEFAULT.json", "gfx942-MHA-DEFAULT.json", "gfx942/triton/attention/mha/DEFAULT.json"):
        path = configs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}", encoding="utf-8")
        assert config_file(source, "gfx942") == path
