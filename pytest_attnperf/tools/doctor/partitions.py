"""Checks how the GPUs are divided: AMD's compute and memory partitions; NVIDIA's MIG, compute and persistence mode.

Changing a partition needs root and an idle GPU, and stops everybody else's work on it. So the command is named, never
run. Options follow the help of `amd-smi set` (AMD SMI 24 to 26) and of `rocm-smi`, its predecessor. They were not tried
on an AMD GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_attnperf.environment import amd, nvidia
from pytest_attnperf.environment.kfd import KfdCard
from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.tools.doctor.gpu_list import (
    AMD,
    ask_or_unknown,
    format_by_gpu,
    list_cards,
    list_tokens,
    unknown_finding,
)
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

COMPUTE, MEMORY = "compute partition", "memory partition"
WHOLE = {COMPUTE: "SPX", MEMORY: "NPS1"}
"""Values of an undivided card. A card that cannot be divided has 'none'."""

_OLDER = {COMPUTE: "--setcomputepartition SPX", MEMORY: "--setmemorypartition NPS1"}
_EFFECT = {
    COMPUTE: "each partition is a GPU of its own with a share of the compute units",
    MEMORY: "each part of the card uses its own share of the memory",
}
DISTURBS = "needs root and an idle GPU, and stops work of others on it"
UNKNOWN = "unknown"
NO_SMI = "make nvidia-smi run here: it comes with the driver, and a container needs --gpus all"


def probe(surroundings: Surroundings) -> Sequence[DoctorFinding]:
    """Returns findings on how the GPUs are divided: 'compute partition' and 'memory partition' for AMD; 'MIG', 'compute
    mode' and 'persistence mode' for NVIDIA."""
    return _probe_amd(surroundings) if surroundings.vendor == AMD else _probe_nvidia(surroundings)


def _probe_amd(surroundings: Surroundings) -> list[DoctorFinding]:
    try:
        shown = list_cards(surroundings)
    except ProbeError as error:
        return [unknown_finding(name, error) for name in WHOLE]
    facts = {token: amd.must_match(card.pci_address, surroundings.system) for token, card in shown.items()}
    return [
        _judge_partition(name, {token: fact[name.replace(" ", "_")] for token, fact in facts.items()}, shown)
        for name in WHOLE
    ]


def _judge_partition(name: str, seen: Mapping[str, str], shown: Mapping[str, KfdCard]) -> DoctorFinding:
    whole = WHOLE[name]
    if not_known := next((value for value in seen.values() if value.startswith(UNKNOWN)), ""):
        return unknown_finding(name, not_known.removeprefix(UNKNOWN).strip(" ()"))
    divided = {token: value for token, value in seen.items() if value not in (whole, "none")}
    if not divided:
        return DoctorFinding(name, Status.OK, format_by_gpu(seen))
    baselines = f"baselines recorded with another partition ({whole}, say) are INCOMPARABLE"
    address = next(shown[token].pci_address for token in divided)
    option = f"--{name.replace(' ', '-')} {whole}"
    fix = f"sudo amd-smi set --gpu {address} {option}, or sudo rocm-smi {_OLDER[name]} ({DISTURBS})"
    if len(set(seen.values())) > 1:
        meaning = f"the GPUs are divided differently: a case measured on two of them is INCOMPARABLE; {baselines}"
        fix = f"make only equal GPUs visible (HIP_VISIBLE_DEVICES={next(iter(divided))}), or {fix}"
        return DoctorFinding(name, Status.WARNING, format_by_gpu(seen), meaning, fix)
    return DoctorFinding(name, Status.NOTE, format_by_gpu(seen), f"{_EFFECT[name]}; {baselines}", f"to undo it: {fix}")


def _probe_nvidia(surroundings: Surroundings) -> list[DoctorFinding]:
    state = _read_modes(surroundings)
    if isinstance(state, ProbeError):
        return [unknown_finding(name, state, NO_SMI) for name in ("MIG", "compute mode", "persistence mode")]
    return [
        ask_or_unknown("MIG", NO_SMI, lambda: _probe_mig(surroundings)),
        _judge_compute_mode({token: modes.get("compute_mode", "") for token, modes in state.items()}),
        _judge_persistence({token: modes.get("persistence_mode", "") for token, modes in state.items()}),
    ]


def _read_modes(surroundings: Surroundings) -> dict[str, dict[str, str]] | ProbeError:
    try:
        return {token: nvidia.read_state(token, surroundings.system).values for token in list_tokens(surroundings)}
    except ProbeError as error:
        return error


def _probe_mig(surroundings: Surroundings) -> DoctorFinding:
    seen = {
        token: nvidia.must_match(token, surroundings.system)["compute_partition"] for token in list_tokens(surroundings)
    }
    if not_known := next((value for value in seen.values() if value.startswith(UNKNOWN)), ""):
        raise ProbeError(not_known.removeprefix(UNKNOWN).strip(" ()"))
    if "mig" not in seen.values():
        return DoctorFinding("MIG", Status.OK, "off")
    meaning = "a slice has a share of the card: baselines of the whole card, or of another slice, are INCOMPARABLE"
    token = next(token for token, value in seen.items() if value == "mig")
    fix = f"to undo it: sudo nvidia-smi -i {token} -mig 0 ({DISTURBS})"
    words = {"mig": "on", "none": "off"}
    return DoctorFinding(
        "MIG", Status.NOTE, format_by_gpu({token: words[value] for token, value in seen.items()}), meaning, fix
    )


def _judge_compute_mode(seen: Mapping[str, str]) -> DoctorFinding:
    name = "compute mode"
    if not all(seen.values()):
        return unknown_finding(name, "nvidia-smi does not give it")
    for begins, status, meaning in (
        ("Prohibited", Status.PROBLEM, "no process may compute on this GPU"),
        (
            "Exclusive",
            Status.WARNING,
            "one process at a time: A B B A against a revision needs two on one GPU at once, and cannot run",
        ),
    ):
        if token := next((token for token, mode in seen.items() if mode.startswith(begins)), ""):
            return DoctorFinding(name, status, format_by_gpu(seen), meaning, f"sudo nvidia-smi -i {token} -c DEFAULT")
    return DoctorFinding(name, Status.OK, format_by_gpu(seen))


def _judge_persistence(seen: Mapping[str, str]) -> DoctorFinding:
    name = "persistence mode"
    if not all(seen.values()):
        return unknown_finding(name, "nvidia-smi does not give it")
    token = next((token for token, mode in seen.items() if mode != "Enabled"), "")
    if not token:
        return DoctorFinding(name, Status.OK, format_by_gpu(seen))
    meaning = "the driver unloads between processes: each start takes seconds more, and a power limit is forgotten"
    return DoctorFinding(name, Status.NOTE, format_by_gpu(seen), meaning, f"sudo nvidia-smi -i {token} -pm 1")
