from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from pytest_attnperf.codeobject.headroom import staircase
from pytest_attnperf.codeobject.occupancy import Resources
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.tools.occupancy import json_form as module
from pytest_attnperf.tools.occupancy.json_form import occupancy_json

ASKED = Resources(96, 0, 40, 8192, 256)


def test_figures_of_a_kernel() -> None:
    """What is asked for, handed out, held, allowed and saved stands under keys that carry the unit."""
    found = occupancy_json("gfx942", ASKED, "prefill")
    assert (found["name"], found["arch"]) == ("prefill", "gfx942")
    assert found["resources"] == {
        "vgprs_per_lane": 96,
        "agprs_per_lane": 0,
        "sgprs_per_wave": 40,
        "lds_bytes_per_workgroup": 8192,
        "threads_per_workgroup": 256,
        "wave_size_lanes": 64,
        "reserved_vgprs_per_lane": 0,
        "reserved_sgprs_per_wave": 0,
        "wgp_mode": None,
    }
    assert found["allocated"] == {"vgprs_per_lane": 96, "sgprs_per_wave": 64, "lds_bytes_per_workgroup": 8192}
    assert found["occupancy"] == {
        "waves_per_simd": 5,
        "whole_waves_per_simd": 5.0,
        "max_waves_per_simd": 8,
        "workgroups_per_block": 5,
        "waves_per_workgroup": 4,
        "limiters": ["vgprs"],
        "fits": True,
    }
    assert found["limits_waves_per_simd"] == {"vgprs": 5, "lds": 8, "sgprs": 8, "workgroups": 8, "slots": 8}
    one_more = {
        "ways": [[{"resource": "vgprs", "fewer": 16, "value": 80}]],
        "threads_per_workgroup": [],
        "waves_per_simd_after": 6,
        "whole_waves_per_simd_after": 6.0,
    }
    assert found["raise"] == {"one_wave_per_simd": one_more, "one_workgroup_per_block": one_more}


def test_what_a_block_holds() -> None:
    """The figures are those of the block, mode and wave size that the kernel runs in."""
    wave64_on_a_cu = Resources(96, 0, 40, 8192, 256, 64, wgp_mode=False)
    assert occupancy_json("gfx1100", wave64_on_a_cu)["holds"] == {
        "block": "CU",
        "simds": 2,
        "vgprs_per_simd_lane": 768,
        "vgpr_granule": 12,
        "sgprs_per_simd": None,
        "lds_bytes": 65536,
        "lds_bytes_per_workgroup_most": 65536,
        "lds_granule_bytes": 1024,
        "workgroups_most": 16,
    }


def test_stairs_are_those_of_the_plots() -> None:
    """Breakpoints over VGPRs and over LDS are written out."""
    assert occupancy_json("gfx942", ASKED)["staircases"] == {
        "vgprs_per_lane": [asdict(stair) for stair in staircase("gfx942", ASKED, "vgprs")],
        "lds_bytes_per_workgroup": [asdict(stair) for stair in staircase("gfx942", ASKED, "lds_bytes")],
    }


def test_nothing_to_gain_and_nothing_that_helps() -> None:
    """Null where occupancy is full; no way, no size and no figures where nothing helps."""
    full = occupancy_json("gfx1151", Resources(8, 0, 128, 1536, 256))
    assert full["raise"] == {"one_wave_per_simd": None, "one_workgroup_per_block": None}
    stuck = occupancy_json("gfx942", Resources(72, 0, 40, 0, 896))
    nothing = {
        "ways": [],
        "threads_per_workgroup": [],
        "waves_per_simd_after": None,
        "whole_waves_per_simd_after": None,
    }
    assert stuck["raise"] == {"one_wave_per_simd": nothing, "one_workgroup_per_block": nothing}


def test_every_key_is_documented() -> None:
    """The object is plain JSON, and the module's text names every key in it."""
    found = json.loads(json.dumps(occupancy_json("gfx950", ASKED)))
    keys = {key for part in [found, *found.values()] if isinstance(part, dict) for key in part}
    keys |= set(found["raise"]["one_wave_per_simd"]) | set(found["staircases"]["vgprs_per_lane"][0])
    assert module.__doc__ is not None
    assert sorted(key for key in keys if key not in module.__doc__) == []


def test_an_impossible_kernel() -> None:
    """A kernel that cannot be has no object."""
    with pytest.raises(CodeObjectError, match="vgprs 300"):
        occupancy_json("gfx942", Resources(300, 0, 40, 0, 256))
