"""The GPUs this project may use, and one value of each of them in as few words as possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_attnperf.environment import kfd
from pytest_attnperf.environment.gpus import visible_gpus
from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

AMD = "amd"
NVIDIA = "nvidia"


def list_tokens(surroundings: Surroundings) -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES takes for each visible GPU."""
    return visible_gpus(surroundings.environ, surroundings.system.root)


def list_cards(surroundings: Surroundings) -> dict[str, kfd.KfdCard]:
    """AMD's cards by token. Raises ProbeError for one that the driver does not show."""
    return {
        token: kfd.find_card(token, surroundings.system, surroundings.environ)
        for token in visible_gpus(surroundings.environ, surroundings.system.root)
    }


def format_by_gpu(values: Mapping[str, str]) -> str:
    """{'0': 'SPX', '1': 'SPX'} -> 'SPX on all 2 GPUs'; several values each name their GPUs; '' of no GPU."""
    by_value: dict[str, list[str]] = {}
    for token, value in values.items():
        by_value.setdefault(value, []).append(token)
    if len(by_value) == 1:
        [(value, of)] = by_value.items()
        return value if len(of) == 1 else f"{value} on all {len(of)} GPUs"
    return "; ".join(f"{value} on GPU {', '.join(of)}" for value, of in by_value.items())


def unknown_finding(name: str, error: object, fix: str = "") -> DoctorFinding:
    """The finding of what could not be asked."""
    meaning = "what could not be asked is not known to be right"
    return DoctorFinding(name, Status.UNKNOWN, f"not known: {error}", meaning, fix)


def ask_or_unknown(name: str, fix: str, look: Callable[[], DoctorFinding]) -> DoctorFinding:
    """What `look` finds, or that it could not be asked: one fact that is missing costs no other."""
    try:
        return look()
    except ProbeError as error:
        return unknown_finding(name, error, fix)
