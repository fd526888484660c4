"""The configuration spaces of the latent attention kernels, and the architectures that they exclude."""

from __future__ import annotations

from kernels.configs import Space

PREFILL = Space(
    "mla",
    {"BLOCK_M": int, "BLOCK_N": int, "BLOCK_D": int, "RELOAD": bool},
    ("latent_dim", "element_bits"),
)
"""One kernel, for more than 8 queries per sequence; its blocks of rows are tokens of one head."""

DECODE = Space(
    "mla_decode",
    {"BLOCK_M": int, "BLOCK_N": int, "BLOCK_T": int, "BLOCK_K": int, "BLOCK_V": int, "PROGRAMS": int},
    ("latent_dim", "element_bits", "rows"),
)
"""Three kernels, for up to 8 queries per sequence; rows are the (token, head) pairs of a sequence."""


def too_few_registers(arch: str) -> list[str]:
    """Returns why the kernels are not offered on RDNA; empty for every other architecture.

    Compiled by Triton 3.9 in the smallest tiles, the attention kernels with a latent dimension of 512 spilled 120 to
    250 registers on gfx1201 and 820 to 1,400 on gfx1100.
    """
    if not arch.startswith(("gfx11", "gfx12")):
        return []
    return [
        f"{arch} has only 256 vector registers per wave; every wave holds a whole operand of 512 latent dimensions, "
        "which spills hundreds of registers"
    ]
