"""What nvidia-smi says of one NVIDIA GPU that a comparison depends on: power cap and MIG mode."""

from __future__ import annotations

from pytest_attnperf.environment.system import ProbeError, System

QUERY = ("power.limit", "mig.mode.current")
_NOT_AVAILABLE = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "")


def must_match(device_id: str, system: System) -> dict[str, str]:
    """power_cap_w, compute_partition and memory_partition of the GPU with this UUID ('GPU-...').

    One call of nvidia-smi, because each costs tens of milliseconds. A whole GPU has compute_partition 'none'; a sliced
    one 'mig', and its product name holds the slice's size. NVIDIA has no memory partitions.
    """
    try:
        power_limit, mig_mode = _query(device_id, system)
    except ProbeError as error:
        unknown = f"unknown ({error})"
        return {"power_cap_w": unknown, "compute_partition": unknown, "memory_partition": "none"}
    return {
        "power_cap_w": _watts(power_limit),
        "compute_partition": "mig" if mig_mode == "Enabled" else "none",
        "memory_partition": "none",
    }


def _query(device_id: str, system: System) -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    if not device_id:
        raise ProbeError("torch gives no UUID to ask nvidia-smi about")
    answer = system.run([*command, f"--id={device_id}"])
    fields = [field.strip() for field in answer.strip().split(",")]
    if len(fields) != len(QUERY):
        raise ProbeError(f"nvidia-smi answered {answer.strip()[:80]!r}")
    return fields


def _watts(text: str) -> str:
    """'700.00' -> '700'."""
    if text in _NOT_AVAILABLE:
        return "unknown (nvidia-smi gives no power limit)"
    try:
        return f"{float(text):.0f}"
    except ValueError:
        return f"unknown (nvidia-smi gives the power limit {text[:40]!r})"
