from __future__ import annotations

import pytest

from pytest_attnperf.codeobject.arch import ARCHS, AgprRule, ArchLimits, lds_limit_bytes, limits_of
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import ALL_ARCHS


def test_every_architecture_that_is_built_for_is_known() -> None:
    """Limits exist for every architecture that `--attnperf-arch=all` means."""
    assert [limits_of(arch).arch for arch in ALL_ARCHS] == list(ALL_ARCHS)


def test_features_of_a_target_are_not_looked_at() -> None:
    """The name that a device reports, with its features, means the same architecture."""
    assert limits_of("gfx942:sramecc+:xnack-") == limits_of("gfx942")


@pytest.mark.parametrize("arch", ["gfx941", "sm_90", "", "gfx94", "GFX942", "mi300x"])
def test_an_unknown_architecture(arch: str) -> None:
    """A name that is not in the table is refused, with every one that is, and where to add one."""
    with pytest.raises(CodeObjectError, match=rf"{arch!r} are not known.*; known: gfx906, gfx908, gfx90a") as seen:
        limits_of(arch)
    assert "codeobject/arch.py" in str(seen.value)
    assert all(known in str(seen.value) for known in ARCHS)


@pytest.mark.parametrize(
    ("arch", "expected"),
    [("gfx906", 65536), ("gfx90a", 65536), ("gfx942", 65536), ("gfx950", 163840), ("gfx1100", 65536)],
)
def test_lds_of_a_workgroup(arch: str, expected: int) -> None:
    """A workgroup has at most 64 KiB of LDS, also where a WGP holds twice that, and 160 KiB on gfx950."""
    assert lds_limit_bytes(arch) == expected


def test_lds_of_an_unknown_architecture() -> None:
    """The LDS limit of an architecture that is not known is an error, not a guess."""
    with pytest.raises(CodeObjectError, match="'gfx1250' are not known"):
        lds_limit_bytes("gfx1250")


@pytest.mark.parametrize("limits", ARCHS.values(), ids=lambda limits: limits.arch)
def test_register_files_are_those_of_the_family(limits: ArchLimits) -> None:
    """VGPRs per lane, granule, wave slots and the AGPR rule are those that AMD documents for the family."""
    families = {
        (256, 4, 10, AgprRule.NONE): {"gfx906"},
        (256, 4, 10, AgprRule.SEPARATE): {"gfx908"},
        (512, 8, 8, AgprRule.UNIFIED): {"gfx90a", "gfx942", "gfx950"},
        (1024, 16, 16, AgprRule.NONE): {"gfx1030", "gfx1102", "gfx1150", "gfx1152", "gfx1153"},
        (1536, 24, 16, AgprRule.NONE): {"gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"},
    }
    key = (limits.vgprs_per_simd, limits.vgpr_granule, limits.max_waves_per_simd, limits.agpr_rule)
    assert limits.arch in families[key]


def test_shared_memory_of_nvidia_is_a_limit_only() -> None:
    """What one thread block can have is known of common NVIDIA architectures, with or without their 'a'."""
    assert lds_limit_bytes("sm_90a") == lds_limit_bytes("sm_90") == 232_448
    with pytest.raises(CodeObjectError):
        limits_of("sm_90")
