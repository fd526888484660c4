from __future__ import annotations

import pytest

from pytest_attnperf.codeobject.targets import (
    arch_of_flags,
    has_unified_vgprs,
    has_workgroup_processors,
    plain_arch,
)
from pytest_attnperf.errors import CodeObjectError


@pytest.mark.parametrize(
    ("flags", "arch"),
    [
        (0x52F, "gfx906"),
        (0x530, "gfx908"),
        (0x53F, "gfx90a"),
        (0x54C, "gfx942"),
        (0x54F, "gfx950"),
        (0x36, "gfx1030"),
        (0x41, "gfx1100"),
        (0x4A, "gfx1151"),
        (0x4E, "gfx1201"),
        (0x549, "gfx1250"),
        (0x100055F, "gfx9-4-generic"),
    ],
)
def test_the_lowest_byte_is_the_architecture(flags: int, arch: str) -> None:
    """Features (XNACK, SRAM-ECC) and a generic target's version in the other bits change nothing."""
    assert arch_of_flags(flags, "k.co") == arch


@pytest.mark.parametrize("flags", [0, 0x27, 0x540, 0x5FF])
def test_an_unknown_machine_is_an_error(flags: int) -> None:
    """A reserved number is refused, and what is known is listed."""
    with pytest.raises(
        CodeObjectError, match=r"k.co: was compiled for AMD machine number 0x.*known: gfx10-1-generic.*942"
    ):
        arch_of_flags(flags, "k.co")


@pytest.mark.parametrize(
    ("target", "arch"),
    [
        ("amdgcn-amd-amdhsa--gfx942", "gfx942"),
        ("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", "gfx90a"),
        ("amdgpu9.42-amd-amdhsa-unknown-gfx942", "gfx942"),
        ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", "gfx90a"),
        ("hip-amdgcn-amd-amdhsa-unknown-gfx1100", "gfx1100"),
        ("openmp-amdgcn-amd-amdhsa--gfx9-4-generic", "gfx9-4-generic"),
        ("gfx12-generic", "gfx12-generic"),
        ("gfx950:sramecc+:xnack-", "gfx950"),
        ("gfx1201", "gfx1201"),
        ("sm_90", "sm_90"),
        ("sm_90a", "sm_90"),
        ("sm_120f", "sm_120"),
        ("hip-spirv64-amd-amdhsa--amdgcnspirv", ""),
        ("host-x86_64-unknown-linux-gnu-", ""),
        ("gfx", ""),
        ("gfx942-and-more", ""),
        ("", ""),
    ],
)
def test_targets_of_all_producers(target: str, arch: str) -> None:
    """The architecture is found in the targets of clang, Triton, bundles and PyTorch, or is not there."""
    assert plain_arch(target) == arch


def test_families() -> None:
    """CDNA 2 and later unite their registers; RDNA 1 to 4 have workgroup processors; no architecture has both."""
    archs = [arch_of_flags(number, "") for number in (0x2F, 0x30, 0x3F, 0x4C, 0x4F, 0x36, 0x41, 0x4A, 0x4E, 0x49)]
    assert [arch for arch in archs if has_unified_vgprs(arch)] == ["gfx90a", "gfx942", "gfx950"]
    assert [arch for arch in archs if has_workgroup_processors(arch)] == ["gfx1030", "gfx1100", "gfx1151", "gfx1201"]
