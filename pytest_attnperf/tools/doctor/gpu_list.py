"""Lists the GPUs that this project may use, and formats one value of each GPU in few words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_attnperf.environment import kfd
from pytest_attnperf.environment.gpu_tokens import visible_gpus
from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

AMD = "amd"
NVIDIA = "nvidia"


def list_tokens(surroundings: Surroundings) -> tuple[str, ...]:
    """Returns for each visible GPU the text that selects it in CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES."""
    return visible_gpus(surroundings.environ, surroundings.system.root)


def list_cards(surroundings: Surroundings) -> dict[str, kfd.KfdCard]:
    """Returns the driver's entry for each visible AMD GPU, by its token in HIP_VISIBLE_DEVICES. Raises ProbeError for a
    GPU that the driver does not show."""
    return {
        token: kfd.find_card(token, surroundings.system, surroundings.environ)
        for token in visible_gpus(surroundings.environ, surroundings.system.root)
    }


def format_by_gpu(values: Mapping[str, str]) -> str:
    """Returns the values of GPUs in one line: {'0': 'SPX', '1': 'SPX'} -> 'SPX on all 2 GPUs'; different values name
    their GPUs; '' without a GPU."""
    by_value: dict[str, list[str]] = {}
    for token, value in values.items():
        by_value.setdefault(value, []).append(token)
    if len(by_value) == 1:
        [(value, of)] = by_value.items()
        return value if len(of) == 1 else f"{value} on all {len(of)} GPUs"
    return "; ".join(f"{value} on GPU {', '.join(of)}" for value, of in by_value.items())


def unknown_finding(name: str, error: object, fix: str = "") -> DoctorFinding:
    """Returns an UNKNOWN finding whose value is `error`, the reason why the fact `name` could not be read."""
    meaning = "it could not be read, so it may be wrong"
    return DoctorFinding(name, Status.UNKNOWN, f"not known: {error}", meaning, fix)


def ask_or_unknown(name: str, fix: str, look: Callable[[], DoctorFinding]) -> DoctorFinding:
    """Returns the finding of `look`. If that raises ProbeError, returns an UNKNOWN finding with `name` and `fix`, so
    that other findings are still shown."""
    try:
        return look()
    except ProbeError as error:
        return unknown_finding(name, error, fix)
