"""Everything known of a kernel's occupancy as one JSON object, with units in the keys.

name, arch          '' where the kernel is given by numbers
resources           vgprs_per_lane, agprs_per_lane, sgprs_per_wave, lds_bytes_per_workgroup,
                    threads_per_workgroup, wave_size_lanes, wgp_mode (null where there are no WGPs);
                    reserved_vgprs_per_lane and reserved_sgprs_per_wave of a compiled kernel's descriptor, else 0.
                    `raise` and `staircases` leave these out: a compiler told otherwise would not reserve them
allocated           in the hardware's granules: vgprs_per_lane (with the AGPRs where both share a file),
                    sgprs_per_wave (with the trap handler's), lds_bytes_per_workgroup
holds               what shares LDS, and how much it has: block ('CU' or 'WGP'), simds, vgprs_per_simd_lane,
                    vgpr_granule, sgprs_per_simd (null where they limit nothing), lds_bytes,
                    lds_bytes_per_workgroup_most, lds_granule_bytes, workgroups_most (of more than one wave)
occupancy           waves_per_simd (the compiler's form), whole_waves_per_simd (whole workgroups, what the hardware
                    runs), max_waves_per_simd, workgroups_per_block, waves_per_workgroup, limiters, fits
limits_waves_per_simd   what each resource alone would allow: vgprs, lds, sgprs, workgroups (barriers), slots
raise               one_wave_per_simd and one_workgroup_per_block, each null where nothing is left to gain. ways: a
                    list of ways, each a list of savings that are needed together (resource, fewer, value);
                    threads_per_workgroup: other sizes, where no saving suffices; waves_per_simd_after and
                    whole_waves_per_simd_after: null where nothing helps
staircases          vgprs_per_lane and lds_bytes_per_workgroup: steps of first, last, waves_per_simd,
                    whole_waves_per_simd, with the other resources as they are
"""

from __future__ import annotations

from dataclasses import asdict

from pytest_attnperf.codeobject.arch import limits_of
from pytest_attnperf.codeobject.headroom import Raise, headroom, staircase
from pytest_attnperf.codeobject.occupancy import Resources, allocation, block_of, occupancy_with
from pytest_attnperf.records.code import Occupancy


def occupancy_json(arch: str, asked: Resources, name: str = "") -> dict[str, object]:
    """The object that the module's docstring describes. Raises CodeObjectError as `occupancy` does."""
    found, room = occupancy_with(arch, asked), headroom(arch, asked.unreserved)
    given = allocation(limits_of(arch), asked)
    return {
        "name": name,
        "arch": arch,
        "resources": _resources(arch, asked),
        "allocated": {
            "vgprs_per_lane": given.vgprs,
            "sgprs_per_wave": given.sgprs,
            "lds_bytes_per_workgroup": given.lds_bytes,
        },
        "holds": _holds(arch, asked),
        "occupancy": _occupancy(found),
        "limits_waves_per_simd": dict(found.limits),
        "raise": {
            "one_wave_per_simd": _raise(room.wave),
            "one_workgroup_per_block": _raise(room.workgroup),
        },
        "staircases": {
            "vgprs_per_lane": [asdict(stair) for stair in staircase(arch, asked.unreserved, "vgprs")],
            "lds_bytes_per_workgroup": [asdict(stair) for stair in staircase(arch, asked.unreserved, "lds_bytes")],
        },
    }


def _resources(arch: str, asked: Resources) -> dict[str, object]:
    limits = limits_of(arch)
    return {
        "vgprs_per_lane": asked.vgprs,
        "agprs_per_lane": asked.agprs,
        "sgprs_per_wave": asked.sgprs,
        "lds_bytes_per_workgroup": asked.lds_bytes,
        "threads_per_workgroup": asked.threads,
        "wave_size_lanes": block_of(limits, asked).wave_size,
        "reserved_vgprs_per_lane": asked.reserved_vgprs,
        "reserved_sgprs_per_wave": asked.reserved_sgprs,
        "wgp_mode": asked.wgp_mode if limits.wgp else None,
    }


def _holds(arch: str, asked: Resources) -> dict[str, object]:
    limits = limits_of(arch)
    block = block_of(limits, asked)
    return {
        "block": block.name,
        "simds": block.simds,
        "vgprs_per_simd_lane": block.vgprs_per_simd,
        "vgpr_granule": block.vgpr_granule,
        "sgprs_per_simd": limits.sgprs_per_simd or None,
        "lds_bytes": block.lds_bytes,
        "lds_bytes_per_workgroup_most": limits.lds_per_workgroup_bytes,
        "lds_granule_bytes": limits.lds_hardware_granule_bytes,
        "workgroups_most": block.max_workgroups,
    }


def _occupancy(found: Occupancy) -> dict[str, object]:
    return {
        "waves_per_simd": found.waves_per_simd,
        "whole_waves_per_simd": found.whole_waves_per_simd,
        "max_waves_per_simd": found.max_waves_per_simd,
        "workgroups_per_block": found.workgroups,
        "waves_per_workgroup": found.waves_per_workgroup,
        "limiters": list(found.limiters),
        "fits": found.fits,
    }


def _raise(needed: Raise | None) -> dict[str, object] | None:
    if needed is None:
        return None
    return {
        "ways": [[asdict(saving) for saving in way] for way in needed.ways],
        "threads_per_workgroup": list(needed.threads),
        "waves_per_simd_after": needed.after.waves_per_simd if needed.after else None,
        "whole_waves_per_simd_after": needed.after.whole_waves_per_simd if needed.after else None,
    }
