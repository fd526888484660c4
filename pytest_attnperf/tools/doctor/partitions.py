"""How the GPUs are divided: AMD's compute and memory partitions; NVIDIA's MIG, compute and persistence mode.

What changes a partition needs root and an idle GPU, and takes the GPU away from everybody else: the command is named,
never run. Options as `amd-smi set --help` (AMD SMI 24 to 26) and `rocm-smi --help`, its forerunner, print them. No AMD
GPU was at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_attnperf.environment import amd, nvidia
from pytest_attnperf.environment.kfd import Card
from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.tools.doctor.gpu_list import AMD, asked, cards, in_words, tokens, unknown
from pytest_attnperf.tools.doctor.probes import Finding, Status, Surroundings

COMPUTE, MEMORY = "compute partition", "memory partition"
WHOLE = {COMPUTE: "SPX", MEMORY: "NPS1"}
"""What an undivided card says; 'none' is said of a card that cannot be divided."""

_OLDER = {COMPUTE: "--setcomputepartition SPX", MEMORY: "--setmemorypartition NPS1"}
_EFFECT = {
    COMPUTE: "each partition is a GPU of its own with a share of the compute units",
    MEMORY: "each part of the card reaches its own share of the memory",
}
DISTURBS = "needs root and an idle GPU, and stops work of others on it"
UNKNOWN = "unknown"
NO_SMI = "see that nvidia-smi runs here: it comes with the driver, and a container needs --gpus all"


def probe(surroundings: Surroundings) -> Sequence[Finding]:
    """'compute partition' and 'memory partition' of AMD; 'MIG', 'compute mode', 'persistence mode' of NVIDIA."""
    return _amd(surroundings) if surroundings.vendor == AMD else _nvidia(surroundings)


def _amd(surroundings: Surroundings) -> list[Finding]:
    try:
        shown = cards(surroundings)
    except ProbeError as error:
        return [unknown(name, error) for name in WHOLE]
    facts = {token: amd.must_match(card.pci_address, surroundings.system) for token, card in shown.items()}
    return [
        _partition(name, {token: fact[name.replace(" ", "_")] for token, fact in facts.items()}, shown)
        for name in WHOLE
    ]


def _partition(name: str, seen: Mapping[str, str], shown: Mapping[str, Card]) -> Finding:
    whole = WHOLE[name]
    if not_known := next((value for value in seen.values() if value.startswith(UNKNOWN)), ""):
        return unknown(name, not_known.removeprefix(UNKNOWN).strip(" ()"))
    divided = {token: value for token, value in seen.items() if value not in (whole, "none")}
    if not divided:
        return Finding(name, Status.OK, in_words(seen))
    baselines = f"baselines recorded with another partition ({whole}, say) are INCOMPARABLE"
    address = next(shown[token].pci_address for token in divided)
    option = f"--{name.replace(' ', '-')} {whole}"
    fix = f"sudo amd-smi set --gpu {address} {option}, or sudo rocm-smi {_OLDER[name]} ({DISTURBS})"
    if len(set(seen.values())) > 1:
        meaning = f"the GPUs are divided differently: a case measured on two of them is INCOMPARABLE; {baselines}"
        fix = f"show only GPUs that are alike (HIP_VISIBLE_DEVICES={next(iter(divided))}), or {fix}"
        return Finding(name, Status.WARNING, in_words(seen), meaning, fix)
    return Finding(name, Status.NOTE, in_words(seen), f"{_EFFECT[name]}; {baselines}", f"to undo it: {fix}")


def _nvidia(surroundings: Surroundings) -> list[Finding]:
    state = _modes(surroundings)
    if isinstance(state, ProbeError):
        return [unknown(name, state, NO_SMI) for name in ("MIG", "compute mode", "persistence mode")]
    return [
        asked("MIG", NO_SMI, lambda: _mig(surroundings)),
        _compute_mode({token: modes.get("compute_mode", "") for token, modes in state.items()}),
        _persistence({token: modes.get("persistence_mode", "") for token, modes in state.items()}),
    ]


def _modes(surroundings: Surroundings) -> dict[str, dict[str, str]] | ProbeError:
    try:
        return {token: nvidia.read_state(token, surroundings.system).values for token in tokens(surroundings)}
    except ProbeError as error:
        return error


def _mig(surroundings: Surroundings) -> Finding:
    seen = {token: nvidia.must_match(token, surroundings.system)["compute_partition"] for token in tokens(surroundings)}
    if not_known := next((value for value in seen.values() if value.startswith(UNKNOWN)), ""):
        raise ProbeError(not_known.removeprefix(UNKNOWN).strip(" ()"))
    if "mig" not in seen.values():
        return Finding("MIG", Status.OK, "off")
    meaning = "a slice has a share of the card: baselines of the whole card, or of another slice, are INCOMPARABLE"
    token = next(token for token, value in seen.items() if value == "mig")
    fix = f"to undo it: sudo nvidia-smi -i {token} -mig 0 ({DISTURBS})"
    words = {"mig": "on", "none": "off"}
    return Finding("MIG", Status.NOTE, in_words({token: words[value] for token, value in seen.items()}), meaning, fix)


def _compute_mode(seen: Mapping[str, str]) -> Finding:
    name = "compute mode"
    if not all(seen.values()):
        return unknown(name, "nvidia-smi does not give it")
    for begins, status, meaning in (
        ("Prohibited", Status.PROBLEM, "no process may compute on this GPU"),
        (
            "Exclusive",
            Status.WARNING,
            "one process at a time: A B B A against a revision needs two on one GPU at once, and cannot run",
        ),
    ):
        if token := next((token for token, mode in seen.items() if mode.startswith(begins)), ""):
            return Finding(name, status, in_words(seen), meaning, f"sudo nvidia-smi -i {token} -c DEFAULT")
    return Finding(name, Status.OK, in_words(seen))


def _persistence(seen: Mapping[str, str]) -> Finding:
    name = "persistence mode"
    if not all(seen.values()):
        return unknown(name, "nvidia-smi does not give it")
    token = next((token for token, mode in seen.items() if mode != "Enabled"), "")
    if not token:
        return Finding(name, Status.OK, in_words(seen))
    meaning = "the driver unloads between processes: each start takes seconds more, and a power limit is forgotten"
    return Finding(name, Status.NOTE, in_words(seen), meaning, f"sudo nvidia-smi -i {token} -pm 1")
