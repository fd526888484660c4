"""aiter's own Triton forward kernel beside ours, as machine code. From a set-up environment, without a GPU:

    .venv/bin/python benchmarks/aiter_beside_ours.py --source PATH [--arch gfx942,gfx950] [--dtype f16]

PATH is the root of a checkout of ROCm/aiter. Both are compiled by the Triton of this environment for the same causal
problem (4 sequences of 4,096, 8 heads): aiter's in the configuration that it ships, and in 64 x 32 tiles with V loaded
early; ours as it is shipped. Nothing is timed: registers, spills and LDS are no estimate of a time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.aiter.mha_builds import HEAD_DIMS, build_with, read_shipped_values
from kernels.aiter.mha_source import SOURCE_VARIABLE, config_file, kernel_arguments, kernel_file
from kernels.triton.prefill.builds import PrefillVariant, build_variant
from kernels.triton.prefill.space import SPACE
from pytest_attnperf.codeobject.analysis import Analyser
from pytest_attnperf.codeobject.building import build_object
from pytest_attnperf.codeobject.occupancy import occupancy_of
from pytest_attnperf.codeobject.triton_installation import load_triton
from pytest_attnperf.errors import AttnperfError, CodeObjectError
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.workloads.prefill import Prefill

TUNED = {"BLOCK_M": 64, "BLOCK_N": 32, "PRELOAD_V": True}
"""What beat the shipped tiles at a head dimension of 256 on an MI300X in December 2025, by a report."""

HEADERS = (
    *("arch", "D", "kernel", "configuration", "VGPRs", "VGPR spills", "scratch B", "LDS B", "waves/SIMD"),
    *("matrix in loops", "code B"),
)


def main() -> int:
    """Print the table; 1 where something does not compile, 2 where the command is off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, metavar="PATH", help="root of a checkout of ROCm/aiter")
    parser.add_argument("--arch", default="gfx942,gfx950", metavar="ARCH,...")
    parser.add_argument("--dtype", default="f16", choices=("f16", "bf16"))
    options = parser.parse_args()
    root = options.source.absolute()
    if kernel_file(root) is None:
        parser.error(f"--source={options.source} holds no aiter/ops/triton with an attention kernel")
    os.environ[SOURCE_VARIABLE] = str(root)
    with tempfile.TemporaryDirectory(prefix="attnperf-aiter-") as cache:
        found = [
            compiled(label, declared, Path(cache))
            for label, declared in builds(root, options.arch.split(","), options.dtype)
        ]
    rows, failed = [one for one in found if not isinstance(one, str)], [one for one in found if isinstance(one, str)]
    print(f"causal {options.dtype}, 4 x 4096, 8 heads; triton {load_triton().__version__}; nothing was timed")
    print(tabulate(rows, headers=HEADERS, disable_numparse=True))
    print("\n".join(failed))
    return 1 if failed else 0


def compiled(label: str, declared: KernelBuild, cache: Path) -> tuple[str, ...] | str:
    """A line of the table, or why it does not compile."""
    try:
        return row(label, declared, Analyser()(build_object(declared, cache), declared))
    except AttnperfError as error:
        return f"{declared.id}: {error}"


def builds(root: Path, archs: list[str], dtype: str) -> Iterator[tuple[str, KernelBuild]]:
    """(kernel, build): aiter's with each configuration, then ours, per architecture and head dimension."""
    for arch in archs:
        if config_file(root, arch) is None:
            raise SystemExit(f"--arch={arch}: this aiter ships no Triton attention configuration for it")
        for head_dim in HEAD_DIMS:
            workload = Prefill(batch=4, seq_q=4096, heads=8, head_dim=head_dim, dtype=dtype, causal=True)
            own = read_shipped_values(root, arch, workload)
            for label, values in (("shipped", own), ("64x32", {**own, **TUNED})):
                yield f"aiter {label}", build_with(taken(values, root), workload, arch, root=root, label=label)
            element = {"f16": "*fp16", "bf16": "*bf16"}[dtype]
            variant = PrefillVariant(f"d{head_dim}", element, element, (head_dim, head_dim), even=True)
            yield "ours", build_variant("triton.prefill_forward", arch, SPACE, variant)


def taken(values: Mapping[str, object], root: Path) -> dict[str, object]:
    """Without what an older kernel does not have."""
    path = kernel_file(root)
    if path is None:
        raise CodeObjectError(f"{root} holds no kernel")
    known = kernel_arguments(path)
    return {name: value for name, value in values.items() if not name[0].isupper() or name in known}


def row(label: str, declared: KernelBuild, code: KernelCode) -> tuple[str, ...]:
    """One line of the table."""
    settings = declared.settings
    told = f"{settings['BLOCK_M']}x{settings['BLOCK_N']} w{settings['num_warps']} s{settings['num_stages']}"
    told += " V early" if settings.get("PRELOAD_V") == "True" else ""
    waves = occupancy_of(code)
    return (
        *(declared.arch, declared.config.partition("-")[0][1:], label, told),
        *(str(code.vgprs), str(code.vgpr_spills), str(code.scratch_bytes)),
        str(code.lds_bytes),
        f"{waves.whole_waves_per_simd:g}" if waves is not None else "-",
        *(str(code.in_loops.get("matrix", 0) if code.in_loops else "-"), str(code.code_bytes)),
    )


if __name__ == "__main__":
    sys.exit(main())
