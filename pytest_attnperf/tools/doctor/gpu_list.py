"""Lists the GPUs that this project may use, and formats one value of each GPU in few words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_attnperf.environment import kfd
from pytest_attnperf.environment.gpus import visible_gpus
from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

AMD = "amd"
NVIDIA = "nvidia"


def list_tokens(surroundings: Surroundings) -> tuple[str, ...]:
    """Returns the value of CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES for each visible GPU."""
    return visible_gpus(surroundings.environ, surroundings.system.root)


def list_cards(surroundings: Surroundings) -> dict[str, kfd.KfdCard]:
    """Returns AMD's cards by token. Raises ProbeError for one that the driver does not show."""
    return {
        token: kfd.find_card(token, surroundings.system, surroundings.environ)
        for token in visible_gpus(surroundings.environ, surroundings.system.root)
    }


def format_by_gpu(values: Mapping[str, str]) -> str:
    """Joins equal values: {'0': 'SPX', '1': 'SPX'} -> 'SPX on all 2 GPUs'; others name their GPUs; '' without a GPU."""
    by_value: dict[str, list[str]] = {}
    for token, value in values.items():
        by_value.setdefault(value, []).append(token)
    if len(by_value) == 1:
        [(value, of)] = by_value.items()
        return value if len(of) == 1 else f"{value} on all {len(of)} GPUs"
    return "; ".join(f"{value} on GPU {', '.join(of)}" for value, of in by_value.items())


def unknown_finding(name: str, error: object, fix: str = "") -> DoctorFinding:
    """Returns the finding for a fact that could not be read."""
    meaning = "it could not be read, so it may be wrong"
    return DoctorFinding(name, Status.UNKNOWN, f"not known: {error}", meaning, fix)


def ask_or_unknown(name: str, fix: str, look: Callable[[], DoctorFinding]) -> DoctorFinding:
    """Returns the finding of `look`, or one that the fact could not be read: a failure hides no other finding."""
    try:
        return look()
    except ProbeError as error:
        return unknown_finding(name, error, fix)
