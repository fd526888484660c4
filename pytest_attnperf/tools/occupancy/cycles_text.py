"""The static issue model's estimate of a kernel's key loop as text: instructions, cycles, what is busy, what is slow.

Also as one JSON object with units in the keys:

name, arch          of the kernel
estimated           how the figures were made
not_estimated       why there are none; '' where there are
keys_per_iteration  as given by the user, else as the kernel declares, else null
waves_per_simd      whole workgroups; null where it is not known
registers           vgprs_per_lane, agprs_per_lane, sgprs_per_wave, vgpr_spills, sgpr_spills, scratch_bytes_per_lane
lds_bytes_per_workgroup
iteration           of one wave, null without an estimate: cycles of its SIMD, and `LoopEstimate`'s instructions, cycles
                    of units and bytes
cycles_per_key      null where keys are not given
matrix_peak_share   operations over what the matrix units could do in that time; repeated ones included where the
                    kernel does not declare what it needs
products_computed   times that each product is; null where the kernel does not declare what it needs
busy_share          unit -> share of the cycles
heaviest            instruction, count, wave_cycles_per_iteration, file, line, text
lds_bank_conflicts  null: an object does not show them
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from pytest_attnperf.codeobject.amdgcn import PEAK_FLOPS_PER_CYCLE
from pytest_attnperf.codeobject.issue_model import ESTIMATED
from pytest_attnperf.codeobject.occupancy import occupancy_of
from pytest_attnperf.codeobject.simd import ISSUE_CYCLES
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import KernelCode, LoopEstimate, Occupancy
from pytest_attnperf.reports.text.figures import one_line, printable_json
from pytest_attnperf.reports.text.wide_tables import plain_table
from pytest_attnperf.tools.occupancy.occupancy_text import describe_occupancy, format_count

TABLE_KEYS = 32
"""Keys to which figures are scaled where the keys of an iteration are known."""

FULL = 0.9
"""Share of the cycles from which on a unit is said to limit a loop."""

CONFLICTS = "LDS bank conflicts: not visible in an object, none are assumed"
_WITHOUT_SIZES = frozenset({"waves", "heaviest", "cycles", "keys", "repeated"})
TEXT_COLUMNS = 40


def explain_missing(code: KernelCode) -> str:
    """Returns why a kernel's key loop has no estimate; '' if it has one."""
    if code.key_loop is not None:
        return ""
    known = ", ".join(PEAK_FLOPS_PER_CYCLE)
    if code.arch not in PEAK_FLOPS_PER_CYCLE:
        rdna = "; RDNA's WMMA instructions run on the VALU, which the model has beside the matrix unit"
        return f"the issue model knows {known}, not {code.arch}{rdna if code.arch.startswith('gfx1') else ''}"
    if code.undecoded or not code.instructions:
        return f"its instructions or loops are not known: {code.undecoded or 'it was not disassembled'}"
    if not code.instructions.get("matrix"):
        return "it has no matrix instructions, and the model judges loops by these"
    if not code.in_loops.get("matrix"):
        return "its matrix instructions stand in no loop: what repeats is not known"
    return _explain_launch(code) or (
        "the loop with its matrix instructions has another loop inside, whose number of rounds no object tells, or "
        "matrix instructions that the model does not know (sparse ones)"
    )


def _explain_launch(code: KernelCode) -> str:
    try:
        found = occupancy_of(code)
    except CodeObjectError as error:
        return f"no launch succeeds: {error}"
    if found is None:
        return "its workgroup size is not known; give --threads"
    return "" if found.fits else "not one workgroup fits"


def render_estimates(codes: Sequence[KernelCode], keys: int = 0, *, as_json: bool = False) -> str:
    """Returns the text, or the JSON, on the kernels' key loops: an object, of several kernels a list of them. `keys`
    are those of an iteration, 0 if that is not known. Raises CodeObjectError if no kernel has an estimate."""
    if all(code.key_loop is None for code in codes):
        told = "; ".join(f"{one_line(code.name)} for {code.arch}: {explain_missing(code)}" for code in codes)
        raise CodeObjectError(f"nothing can be estimated: {told}")
    if not as_json:
        return "\n\n\n".join(render_cycles(code, keys) for code in codes)
    found = [cycles_json(code, keys) for code in codes]
    return printable_json(json.dumps(found[0] if len(found) == 1 else found, indent=2))


def render_cycles(code: KernelCode, keys: int = 0) -> str:
    """Returns the text on one kernel. `keys` are those of an iteration of the key loop, 0 for those it declares."""
    loop, occupancy = code.key_loop, _find_occupancy(code)
    keys = keys or (loop.keys if loop else 0)
    name = one_line(code.name)
    waves = describe_occupancy(code.arch, occupancy) if occupancy else f"{code.arch}: waves per SIMD not known"
    head = [name, waves, _describe_resources(code)]
    if loop is None:
        return "\n".join([*head, f"no estimate: {explain_missing(code)}"])
    head += [describe_loop(code, loop, keys)[-1], f"({ESTIMATED})"]
    return "\n\n".join(["\n".join(head), _render_counts(loop, keys), _render_limit(loop), _render_heaviest(loop)])


def describe_loop(code: KernelCode, loop: LoopEstimate, keys: int) -> list[str]:
    """Returns lines on a key loop: the kernel's resources, then cycles of an iteration and the share of MFMA peak."""
    per_key = f", {loop.cycles / keys:,.1f} a key" if keys else ""
    cycles = (
        f"{loop.cycles:,.0f} cycles of a SIMD for a wave's iteration of the key loop{per_key}; "
        f"{100 * loop.peak_share:.0f} % of MFMA peak{_describe_repeats(loop)}"
    )
    return [_describe_resources(code), cycles]


def _describe_repeats(loop: LoopEstimate) -> str:
    if not loop.keys:
        return ", repeated products included"
    return f"; each product is computed {loop.repeated:g} times" if loop.repeated > 1 else ""


def _find_occupancy(code: KernelCode) -> Occupancy | None:
    try:
        return occupancy_of(code)
    except CodeObjectError:
        return None


def _describe_resources(code: KernelCode) -> str:
    counts = (("VGPR", code.vgpr_spills), ("SGPR", code.sgpr_spills))
    spilled = " and ".join(format_count(count, name) for name, count in counts if count)
    threads = f"{code.workgroup:,} threads" + ("" if code.threads else " (the most it was compiled for)")
    return (
        f"{threads}, {code.vgprs} VGPRs, {code.agprs} AGPRs, {code.sgprs} SGPRs, {code.lds_bytes:,} bytes of LDS, "
        f"{spilled or 'nothing'} spilled, {code.scratch_bytes:,} bytes of scratch"
    )


def _render_counts(loop: LoopEstimate, keys: int) -> str:
    heads, cells = list_counts(loop, keys)
    note = "" if keys else "\nkeys of an iteration: not visible in an object; --keys-per-iteration N tells"
    return plain_table(heads, cells, ("left", "right", "right", "right")) + note


def list_counts(loop: LoopEstimate, keys: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns headings and a row per kind of instruction: number, cycles and bytes of a wave, for TABLE_KEYS keys if
    those of an iteration are known (`keys`), else per iteration."""
    scale = TABLE_KEYS / keys if keys else 1.0
    rows = [
        ("MFMA", loop.matrix, loop.matrix_cycles, None),
        ("VALU", loop.valu, loop.vector_cycles - _exp_cycles(loop), None),
        ("exp and others", loop.transcendental, _exp_cycles(loop), None),
        ("SALU", loop.salu, None, None),
        ("LDS reads", loop.lds_reads, None, loop.lds_read_bytes),
        ("LDS writes", loop.lds_writes, None, loop.lds_write_bytes),
        ("LDS, all", loop.lds, loop.lds_cycles, None),
        ("memory", loop.loads, loop.load_cycles, loop.load_bytes),
        ("waits", loop.waits, None, None),
        ("barriers", loop.barriers, None, None),
    ]
    cells = [(name, *(_format_scaled(value, scale) for value in values)) for name, *values in rows]
    what = f"a wave, per {TABLE_KEYS} keys" if keys else "a wave, per iteration"
    return (what, "instructions", "cycles", "bytes"), cells


def _exp_cycles(loop: LoopEstimate) -> int:
    return loop.vector_cycles - ISSUE_CYCLES * loop.valu


def _format_scaled(value: int | None, scale: float) -> str:
    return "" if value is None else f"{round(value * scale, 1):,g}"


def busy_shares(loop: LoopEstimate) -> dict[str, float]:
    """Returns unit -> share of the loop's cycles that it works. An MFMA is issued through the VALU."""
    return {
        "MFMA": loop.matrix_cycles / loop.cycles,
        "VALU": (loop.vector_cycles + ISSUE_CYCLES * loop.matrix) / loop.cycles,
        "LDS": loop.lds_cycles / loop.cycles,
        "memory": loop.load_cycles / loop.cycles,
    }


def find_limit(loop: LoopEstimate) -> str:
    """Returns what limits a loop: 'VALU', a unit that works nearly all the time, else 'latency'."""
    shares = busy_shares(loop)
    unit = max(shares, key=shares.__getitem__)
    return unit if shares[unit] >= FULL else "latency"


def _render_limit(loop: LoopEstimate) -> str:
    listed = ", ".join(f"{unit} {100 * share:.0f} %" for unit, share in busy_shares(loop).items())
    return f"busy: {listed}\n{describe_limit(loop)}\n{CONFLICTS}"


def describe_limit(loop: LoopEstimate) -> str:
    """Returns what limits a loop, as text: 'limited by VALU', or by latency and why."""
    limit = find_limit(loop)
    if limit != "latency":
        return f"limited by {limit}"
    waves = format_count(loop.waves, "wave")
    return f"limited by latency: no unit works all the time, and {waves} per SIMD do not fill the gaps"


def _render_heaviest(loop: LoopEstimate) -> str:
    cells = [
        (
            f"{one.cycles:,.0f}",
            f"{100 * one.cycles / (loop.cycles * loop.waves):.0f} %",
            str(one.count),
            one.mnemonic,
            *(format_place(one.file, one.line), one_line(one.text, TEXT_COLUMNS)),
        )
        for one in loop.heaviest
    ]
    headers = ("wave's cycles", "share", "count", "instruction, with the wait before it", "line", "")
    kept = len(headers) if any(one.line for one in loop.heaviest) else 4
    aligns = ("right", "right", "right", "left", "left", "left")
    note = "" if kept > 4 else "\nsource lines: the object has no line table (compile with -g)"
    return plain_table(headers[:kept], [line[:kept] for line in cells], aligns[:kept]) + note


def format_place(file: str, line: int) -> str:
    """Returns 'FILE:LINE' of a source line; '' if it is not known."""
    return f"{one_line(file)}:{line}" if line else ""


def cycles_json(code: KernelCode, keys: int = 0) -> dict[str, object]:
    """Returns the JSON object of one kernel, as this module describes it. `keys` as in `render_cycles`."""
    loop, occupancy = code.key_loop, _find_occupancy(code)
    keys = keys or (loop.keys if loop else 0)
    sizes = {} if loop is None else dict(_list_sizes(loop))
    return {
        "name": code.name,
        "arch": code.arch,
        "estimated": ESTIMATED,
        "not_estimated": explain_missing(code),
        "keys_per_iteration": keys or None,
        "waves_per_simd": occupancy.whole_waves_per_simd if occupancy else None,
        "registers": {
            "vgprs_per_lane": code.vgprs,
            "agprs_per_lane": code.agprs,
            "sgprs_per_wave": code.sgprs,
            "vgpr_spills": code.vgpr_spills,
            "sgpr_spills": code.sgpr_spills,
            "scratch_bytes_per_lane": code.scratch_bytes,
        },
        "lds_bytes_per_workgroup": code.lds_bytes,
        "iteration": {"simd_cycles": loop.cycles, **sizes} if loop else None,
        "cycles_per_key": round(loop.cycles / keys, 2) if loop and keys else None,
        "matrix_peak_share": round(loop.peak_share, 4) if loop else None,
        "products_computed": loop.repeated if loop and loop.keys else None,
        "busy_share": {unit: round(share, 4) for unit, share in busy_shares(loop).items()} if loop else None,
        "limited_by": find_limit(loop) if loop else None,
        "lds_bank_conflicts": None,
        "heaviest": [
            {
                "instruction": one.mnemonic,
                "count": one.count,
                "wave_cycles_per_iteration": one.cycles,
                "file": one.file,
                "line": one.line,
                "text": one.text,
            }
            for one in (loop.heaviest if loop else ())
        ],
    }


def _list_sizes(loop: LoopEstimate) -> Iterator[tuple[str, int | float]]:
    """Yields name and value of the estimate's counts: instructions by kind, cycles of units, bytes."""
    for name, value in asdict(loop).items():
        if name not in _WITHOUT_SIZES:
            counts = not name.endswith(("_cycles", "_bytes", "flops"))
            yield f"{name}_instructions" if counts else name, value
