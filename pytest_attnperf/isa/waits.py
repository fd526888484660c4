"""Waits of gfx11 and gfx12 that name one counter, their barriers in two parts, and hints.

Sources: AMD, "RDNA3 Instruction Set Architecture" and "RDNA4 Instruction Set Architecture", sections on SOPP and on
data dependency resolution; LLVM, "User Guide for AMDGPU Backend", memory models of GFX11 and GFX12.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.operands import DecodedInstruction
from pytest_attnperf.isa.wave import Step, Wave

WAITS: Mapping[str, tuple[Callable[[Wave, int], None], ...]] = {
    "s_waitcnt_vscnt": (Wave.wait_stores,),
    "s_wait_loadcnt": (Wave.wait_vm,),
    "s_wait_storecnt": (Wave.wait_stores,),
    "s_wait_dscnt": (Wave.wait_lds,),
    "s_wait_kmcnt": (Wave.wait_scalar,),
    "s_wait_loadcnt_dscnt": (Wave.wait_vm, Wave.wait_lds),
    "s_wait_storecnt_dscnt": (Wave.wait_stores, Wave.wait_lds),
}
"""Name -> counters. Two share 16 bits: the first has bits 8 to 13, the second bits 0 to 5."""

HINTS = frozenset(
    {
        *("s_delay_alu", "s_clause", "s_set_inst_prefetch_distance", "s_waitcnt_depctr", "s_wait_alu", "s_code_end"),
        *("buffer_gl0_inv", "buffer_gl1_inv", "global_inv", "global_wb", "global_wbinv", "s_sendmsg"),
    }
)
"""Instructions that change neither values nor order: hints to the scheduler, hazards of the pipeline, caches, messages
that give registers back."""

_DEALLOCATE = "sendmsg(MSG_DEALLOC_VGPRS)"


def make_counter_wait(decoded: DecodedInstruction) -> Step:
    """Returns the step of a wait for one or two counters."""
    decoded.allow()
    waits, limit = WAITS[decoded.name], decoded.operands[-1]
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


def make_hint(decoded: DecodedInstruction) -> Step:
    """Returns the step of a hint, which does nothing. Raises UnknownInstructionError for a message that is none."""
    operands = decoded.instruction.operands
    if decoded.name == "s_sendmsg" and operands != _DEALLOCATE:
        raise decoded.refuse(f"the message {operands!r}")
    return lambda _wave: None


def make_split_barrier(decoded: DecodedInstruction) -> Step | None:
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
