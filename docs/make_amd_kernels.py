"""Writes kernels/AMD_CODE.md from the machine code of the AMD attention kernels: `python docs/make_amd_kernels.py`.

It compiles every kernel of BACKENDS that is registered, for each architecture, head dimension and element type, with
causal masks, and aiter's where AITER_SOURCE names its source. Takes minutes the first time; objects are cached under
.attnperf/cache. The page names the machine code that it shows, so that a test finds it out of date.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tabulate import tabulate  # noqa: E402

import kernels as registered  # noqa: E402
from kernels.aiter.mha_builds import KERNEL as AITER  # noqa: E402
from kernels.hip.sources import element_define  # noqa: E402
from pytest_attnperf.codeobject.amdgcn import PEAK_FLOPS_PER_CYCLE  # noqa: E402
from pytest_attnperf.codeobject.analysis import Analyser  # noqa: E402
from pytest_attnperf.codeobject.building import build_object  # noqa: E402
from pytest_attnperf.codeobject.decoding import read_assembly  # noqa: E402
from pytest_attnperf.codeobject.issue_model import estimate_loop, read_steps  # noqa: E402
from pytest_attnperf.codeobject.occupancy import occupancy_of  # noqa: E402
from pytest_attnperf.errors import CodeObjectError  # noqa: E402
from pytest_attnperf.kernel_builds import HipSource, Kernel, KernelBuild, KernelRegistry  # noqa: E402
from pytest_attnperf.records.code import KernelCode, LoopEstimate  # noqa: E402

PAGE = ROOT / "kernels" / "AMD_CODE.md"
CACHE = ROOT / ".attnperf" / "cache" / "amd-kernels"
LISTINGS = ROOT / "tests" / "data" / "assembly"

BACKENDS = ("hip.matrix", "hip.prefetch", "hip.best", "triton.flash", "gluon.flash")
ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
HEAD_DIMS = (64, 128, 256)
DTYPES = ("f16", "bf16")
CONFIG = re.compile(r"d(?P<head_dim>\d+)[-_](?P<dtype>f16|bf16)[-_](?:causal(?:[-_](?P<ragged>ragged|even))?|shipped)")
"""Plain causal configurations, and aiter's; of those with whole tiles and with ragged lengths the ones with whole tiles
are shown."""

TILE_KEYS, TILE_ROWS = 32, 32

COUNTS: Mapping[str, Callable[[LoopEstimate], tuple[float, ...]]] = {
    "MFMA": lambda loop: (loop.matrix_cycles,),
    "VALU": lambda loop: (loop.valu,),
    "exp": lambda loop: (loop.transcendental,),
    "SALU": lambda loop: (loop.salu,),
    "LDS_B": lambda loop: (loop.lds_read_bytes + loop.lds_write_bytes,),
    "waits+barriers": lambda loop: (loop.waits, loop.barriers),
    "cycles": lambda loop: (loop.cycles,),
}
"""Column -> figures of an iteration; the page has them of a tile."""


@dataclass(frozen=True)
class Compiled:
    """One kernel of the page.

    label           of its row: a backend's name
    problem         head dimension and element type
    rows            of queries that a wave computes
    """

    label: str
    problem: tuple[int, str]
    build: KernelBuild
    code: KernelCode
    rows: int

    @property
    def peak_share(self) -> float | None:
        """Estimated share of the MFMA peak."""
        return self.code.key_loop.peak_share if self.code.key_loop else None

    def of_a_tile(self, column: str) -> tuple[float, ...]:
        """Figures of COUNTS per 32 keys of 32 rows; () without an estimate."""
        loop = self.code.key_loop
        figures = COUNTS[column](loop) if loop else ()
        return tuple(figure * TILE_KEYS * TILE_ROWS / (loop.keys * self.rows) for figure in figures if loop)

    @property
    def spills(self) -> int:
        """Registers of both kinds that are spilled."""
        return (self.code.vgpr_spills or 0) + (self.code.sgpr_spills or 0)

    @property
    def waves(self) -> str:
        """Waves per SIMD, in whole workgroups."""
        occupancy = occupancy_of(self.code)
        return "-" if occupancy is None else f"{occupancy.whole_waves_per_simd:g}"


def main() -> int:
    """Renew the page; 1 where baselines hold other machine code than was compiled."""
    compiled = compile_all(ARCHS)
    PAGE.write_text(page(compiled, AITER.unsupported_reasons("gfx942")))
    sys.stdout.write(f"{PAGE}\n")
    if (digest := digest_of((one.build, one.code.isa_hash) for one in compiled)) != stored_digest():
        sys.stderr.write(
            f"baselines hold other machine code than {digest}: record the code objects, then run this again\n"
        )
        return 1
    return 0


def kernels_of(backends: Sequence[str]) -> Iterator[tuple[str, Kernel]]:
    """(backend, kernel) of those that are registered; and aiter's."""
    registry = KernelRegistry()
    registered.register_kernels(registry)
    for backend in backends:
        # The first kernel of a backend is the one that plain attention launches.
        yield from [(backend, kernel) for kernel in registry if backend in kernel.backends][:1]
    yield "aiter.triton", AITER


def builds_of(kernel: Kernel, arch: str) -> dict[tuple[int, str], KernelBuild]:
    """(head dimension, element type) -> causal build. A HIP kernel that is gated in one type is built in both."""
    found: dict[tuple[int, str], KernelBuild] = {}
    builds = [] if kernel.unsupported_reasons(arch) else kernel.builds(arch)
    named = [(match, build) for build in builds if (match := CONFIG.fullmatch(build.config))]
    for match, build in sorted(named, key=lambda one: one[0]["ragged"] != "ragged"):
        if int(match["head_dim"]) in HEAD_DIMS:
            found[int(match["head_dim"]), match["dtype"]] = build
    for (head_dim, dtype), build in list(found.items()):
        other = DTYPES[1 - DTYPES.index(dtype)]
        if isinstance(build.source, HipSource) and (head_dim, other) not in found:
            source = replace(build.source, defines={**build.source.defines, **element_define(other)})
            config = build.config.replace(dtype, other)
            found[head_dim, other] = replace(build, config=config, source=source)
    return dict(sorted(found.items(), key=lambda item: (item[0][0], DTYPES.index(item[0][1]))))


def compile_all(archs: Sequence[str]) -> list[Compiled]:
    """Every kernel of the page, compiled, by architecture."""
    wanted = [
        (label, problem, build)
        for arch in archs
        for label, kernel in kernels_of(BACKENDS)
        for problem, build in builds_of(kernel, arch).items()
    ]
    with ProcessPoolExecutor() as pool:
        return list(pool.map(compile_one, *zip(*wanted, strict=True)))


def compile_one(label: str, problem: tuple[int, str], build: KernelBuild) -> Compiled:
    """One kernel with its figures. Raises CodeObjectError where it cannot be compiled or is not what is assumed."""
    code = Analyser(CACHE / "code")(build_object(build, CACHE / "objects"), build)
    if build.tile is None:
        raise CodeObjectError(f"{build.id} does not declare what a tile of its key loop needs")
    rows, _ = build.tile.read_sizes(build.source)
    return Compiled(label, problem, build, code, rows * code.wave_size // code.workgroup)


def page(compiled: Sequence[Compiled], told: Sequence[str]) -> str:
    """The whole page. `told` says why aiter's kernel is not on it."""
    parts = [HEAD.format(digest=digest_of((one.build, one.code.isa_hash) for one in compiled))]
    parts += [f"aiter's Triton kernel is not here: {reason.partition(':')[0]}.\n" for reason in told]
    for arch in dict.fromkeys(one.code.arch for one in compiled):
        parts.append(section(arch, [one for one in compiled if one.code.arch == arch]))
    return "\n".join(parts)


HEAD = """# AMD kernels by their machine code
<!-- written by docs/make_amd_kernels.py; machine code: {digest} -->

**Cycles are estimated (+-30 %) by the [issue model](../docs/occupancy.md#the-cycles-of-a-key-loop); no AMD GPU ran
these kernels.** Causal attention, per 32 keys of 32 rows of a wave: cycles of the matrix unit (MFMA), VALU, exponential
and SALU instructions, bytes of LDS read and written, waits and barriers, cycles of a SIMD. Then waves per SIMD, and the
share of the MFMA peak, for which a product counts once: a kernel that computes it in several waves has more MFMA
cycles. `a/b` are f16 and bf16. [Tested](../tests/kernels/hip/test_bank_conflicts.py): `hip.best` has no LDS bank
conflicts on gfx942 and gfx950.
"""


def section(arch: str, rows: Sequence[Compiled]) -> str:
    """One architecture: its table, what spills, and what has no estimate."""
    modelled = arch in PEAK_FLOPS_PER_CYCLE
    columns = [*COUNTS, "waves", "peak_%"] if modelled else ["VGPRs", "waves"]
    shown = [one for one in rows if one.code.key_loop or not modelled]
    lines = [
        [name, *(join(cell(one, column) for one in own) for column in columns)] for name, own in by_name(shown).items()
    ]
    table = tabulate(lines, headers=["kernel-D", *columns], colalign=("left", *["right"] * len(columns)),
                     disable_numparse=True, tablefmt="plain")  # fmt: skip
    spilling = [f"{name} ({join(str(one.spills) for one in own)})" for name, own in by_name(rows).items()
                if any(one.spills for one in own)]  # fmt: skip
    without = [f"{name} ({join(one.waves for one in own)})" for name, own in by_name(rows).items()
               if modelled and not all(one.code.key_loop for one in own)]  # fmt: skip
    notes = [f"spilled registers: {', '.join(spilling) or 'none'}."]
    notes += [f"Another loop inside, no estimate (waves per SIMD): {', '.join(without)}."] if without else []
    notes += [] if modelled else ["RDNA's WMMA is not modelled."]
    told = " ".join(notes)
    return f"## {arch}\n\n```text\n{table}\n```\n\n{told[0].upper()}{told[1:]}\n"


def by_name(rows: Sequence[Compiled]) -> dict[str, list[Compiled]]:
    """Backend and head dimension -> its builds, one for each element type."""
    found: dict[str, list[Compiled]] = {}
    for one in rows:
        found.setdefault(f"{one.label}-{one.problem[0]}", []).append(one)
    return found


def join(cells: Iterable[str]) -> str:
    """Equal cells once."""
    return "/".join(dict.fromkeys(cells))


def cell(one: Compiled, column: str) -> str:
    """One column of a kernel."""
    if column in COUNTS and one.code.key_loop:
        return "+".join(f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in one.of_a_tile(column))
    share = f"{100 * one.peak_share:.1f}" if one.peak_share is not None else "-"
    return {
        "waves": one.waves,
        "peak_%": share,
        "VGPRs": str(one.code.vgprs),
    }[column]


def digest_of(codes: Iterable[tuple[KernelBuild, str]]) -> str:
    """One hash over the machine code of those kernels of the page that baselines hold, and over what the model says of
    stored loops."""
    held = gated()
    known = {f"{one.arch}/{key(one)}": isa for one, isa in codes if (one.arch, key(one)) in held}
    return digest({**known, **model_answers()})


def model_answers() -> dict[str, str]:
    """Listing of a compiled key loop -> its estimate: another answer makes the page out of date."""
    found = {}
    for path in sorted(LISTINGS.glob("prefill-*-gfx9*.s")):
        arch = path.stem.rpartition("-")[2]
        steps = read_steps(read_assembly(path.read_text(), "key_loop").instructions, arch)
        found[path.stem] = str(estimate_loop(steps, arch, 2))
    return found


def stored_digest() -> str:
    """The same hash of what baselines hold: what the page must name to be up to date."""
    wanted = [
        build for arch in ARCHS for _, kernel in kernels_of(BACKENDS) for build in builds_of(kernel, arch).values()
    ]
    held = gated()
    return digest_of((one, held[one.arch, key(one)]) for one in wanted if (one.arch, key(one)) in held)


def gated() -> dict[tuple[str, str], str]:
    """(architecture, key of an entry) -> hash of the machine code in baselines/."""
    return {
        (arch, name): entry["code"]["isa_hash"]
        for arch in ARCHS
        for name, entry in json.loads((ROOT / "baselines" / arch / "code_objects.json").read_text())["entries"].items()
    }


def key(build: KernelBuild) -> str:
    """As entries are named."""
    return f"{build.kernel}/{build.config}"


def digest(codes: Mapping[str, str]) -> str:
    """Short hash of names and hashes, in any order."""
    return hashlib.sha256(json.dumps(sorted(codes.items())).encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
