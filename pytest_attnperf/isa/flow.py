"""Branches, waits, barriers and the end of a wave."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_attnperf.isa.operands import VCC, DecodedInstruction
from pytest_attnperf.isa.waits import HINTS, WAITS, make_counter_wait, make_hint, make_split_barrier
from pytest_attnperf.isa.wave import Step, Wave

_NO_EFFECT = frozenset(
    {
        "s_nop",
        "s_setprio",
        "s_icache_inv",
        "s_sethalt",
        "buffer_inv",
        "buffer_wbl2",
        "buffer_wbinvl1",
        "buffer_wbinvl1_vol",
        "s_dcache_inv",
        "s_dcache_wb",
    }
)
"""Neither values nor order change by these: there is one wave at a time, and no cache."""


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
    if name in WAITS:
        return make_counter_wait(decoded)
    if name in HINTS:
        return make_hint(decoded)
    if name.startswith("s_barrier_"):
        return make_split_barrier(decoded)
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
