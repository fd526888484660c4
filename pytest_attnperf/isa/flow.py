"""Branches, waits, barriers, hints and the end of a wave.

gfx11 and gfx12 have waits that name one counter, and gfx12 a barrier in two parts. Source: LLVM, "User Guide for AMDGPU
Backend", memory models of GFX11 and GFX12; for the rest see `rdna`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.operands import VCC, DecodedInstruction
from pytest_attnperf.isa.spellings import WITHOUT_OPERANDS
from pytest_attnperf.isa.wave import Step, Wave

_MESSAGE = "s_sendmsg"

_NO_EFFECT = (WITHOUT_OPERANDS - {_MESSAGE}) | {
    *("s_nop", "s_setprio", "s_icache_inv", "s_sethalt", "s_dcache_inv", "s_dcache_wb"),
    *("buffer_inv", "buffer_wbl2", "buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_gl0_inv", "buffer_gl1_inv"),
    *("global_inv", "global_wb", "global_wbinv"),
}
"""Neither values nor order change by these: there is one wave at a time, and no cache; hints to the scheduler, and
hazards of the pipeline."""

_WAITS: Mapping[str, tuple[Callable[[Wave, int], None], ...]] = {
    "s_waitcnt_vscnt": (Wave.wait_stores,),
    "s_wait_loadcnt": (Wave.wait_vm,),
    "s_wait_storecnt": (Wave.wait_stores,),
    "s_wait_dscnt": (Wave.wait_lds,),
    "s_wait_kmcnt": (Wave.wait_scalar,),
    "s_wait_loadcnt_dscnt": (Wave.wait_vm, Wave.wait_lds),
    "s_wait_storecnt_dscnt": (Wave.wait_stores, Wave.wait_lds),
}
"""Name -> counters. Two share 16 bits: the first has bits 8 to 13, the second bits 0 to 5."""


def _read_vcc(wave: Wave) -> int:
    return wave.read_scalar(VCC) if wave.size == 32 else wave.read_scalar_pair(VCC)


_CONDITIONS: Mapping[str, Callable[[Wave], bool]] = {
    "s_branch": lambda _wave: True,
    "s_cbranch_scc0": lambda wave: not wave.read_scc(),
    "s_cbranch_scc1": lambda wave: bool(wave.read_scc()),
    "s_cbranch_vccz": lambda wave: not _read_vcc(wave),
    "s_cbranch_vccnz": lambda wave: bool(_read_vcc(wave)),
    "s_cbranch_execz": lambda wave: not wave.exec_mask,
    "s_cbranch_execnz": lambda wave: bool(wave.exec_mask),
}


def make_flow_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a branch, wait, barrier, hint or end; None for another instruction."""
    name = decoded.name
    if name in _NO_EFFECT:
        return _do_nothing
    if name in _CONDITIONS:
        return _make_branch(decoded)
    if name == "s_waitcnt":
        return _make_wait(decoded)
    if name in _WAITS:
        return _make_counter_wait(decoded)
    if name == _MESSAGE:
        return _make_message(decoded)
    if name.startswith("s_barrier_"):
        return _make_split_barrier(decoded)
    return {"s_barrier": _stop_at_barrier, "s_endpgm": _end, "s_sleep": _sleep}.get(name)


def _do_nothing(_wave: Wave) -> None:
    return None


def _stop_at_barrier(_wave: Wave) -> bool:
    return True


def _sleep(wave: Wave) -> bool:
    """Lets other waves run: who sleeps waits for what another one writes."""
    wave.yielded = True
    return True


def _end(wave: Wave) -> bool:
    wave.drain()
    wave.ended = True
    return True


def _make_branch(decoded: DecodedInstruction) -> Step:
    target, taken = decoded.instruction.target, _CONDITIONS[decoded.name]
    if target is None:
        raise decoded.refuse("a branch out of the kernel")

    def run(wave: Wave) -> None:
        if taken(wave):
            wave.jump(target)

    return run


def _make_wait(decoded: DecodedInstruction) -> Step:
    vm, lgkm = decoded.modifiers.get("vmcnt"), decoded.modifiers.get("lgkmcnt")

    def run(wave: Wave) -> None:
        if isinstance(vm, int):
            wave.wait_vm(vm)
        if isinstance(lgkm, int):
            wave.wait_lgkm(lgkm)

    return run


def _make_counter_wait(decoded: DecodedInstruction) -> Step:
    """Returns the step of a wait for one or two counters."""
    decoded.allow()
    waits, limit = _WAITS[decoded.name], decoded.operands[-1]
    for operand in decoded.operands[:-1]:
        # s_waitcnt_vscnt adds a register, which compilers leave out.
        if not operand.null:
            raise decoded.refuse(f"the operand {operand.text!r}")
    if limit.kind not in ("bits", "integer") or limit.null:
        raise decoded.refuse(f"the operand {limit.text!r}")
    if len(waits) == 1:
        (only,), left = waits, limit.first
        return lambda wave: only(wave, left)
    (first, second), left, right = waits, limit.first >> 8 & 0x3F, limit.first & 0x3F

    def run(wave: Wave) -> None:
        first(wave, left)
        second(wave, right)

    return run


def _make_message(decoded: DecodedInstruction) -> Step:
    """S_SENDMSG that gives registers back, before the end of the wave: there is nothing to do."""
    if decoded.instruction.operands != "sendmsg(MSG_DEALLOC_VGPRS)":
        raise decoded.refuse(f"the message {decoded.instruction.operands!r}")
    return _do_nothing


def _make_split_barrier(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of S_BARRIER_SIGNAL or S_BARRIER_WAIT of the workgroup's barrier, number -1."""
    steps: Mapping[str, Step] = {"s_barrier_signal": _signal, "s_barrier_wait": _wait}
    if decoded.name not in steps:
        return None
    decoded.allow()
    (barrier,) = decoded.operands
    if barrier.kind not in ("integer", "bits") or barrier.first & 0xFFFF != 0xFFFF:
        raise decoded.refuse(f"the barrier {barrier.text!r}")
    return steps[decoded.name]


def _signal(wave: Wave) -> None:
    if wave.signalled:
        raise ExecutionFault("signals at the barrier a second time without waiting at it")
    wave.signalled = True


def _wait(wave: Wave) -> bool:
    """Stops as S_BARRIER does. What lies between signal and wait counts to the time before the barrier."""
    if not wave.signalled:
        raise ExecutionFault("waits at the barrier without having signalled: it would wait forever")
    wave.signalled = False
    return True
