"""Checks which torch is installed, from its files, and which devices it sees, in another process."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.environment import gpu_tokens
from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.tools.doctor.child import answer_of
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

LIMIT_S = 60.0
"""Seconds for the import: from a cold disk it reads gigabytes of libraries."""

KIND_OF = {"amd": "ROCm", "nvidia": "CUDA", "": "CPU"}
INSTALL = {
    "amd": "pip install torch --index-url https://download.pytorch.org/whl/rocm7.0 (the version that fits the driver)",
    "nvidia": "pip install torch",
    "": "pip install torch --index-url https://download.pytorch.org/whl/cpu",
}
"""Install command by vendor. PyPI's own torch for Linux on x86-64 is the CUDA build."""

QUESTION = """
import json, time
began = time.perf_counter()
import torch
took = time.perf_counter() - began
devices = []
if torch.cuda.is_available():
    for index in range(torch.cuda.device_count()):
        seen = torch.cuda.get_device_properties(index)
        arch = getattr(seen, "gcnArchName", "") if torch.version.hip else f"sm_{seen.major}{seen.minor}"
        devices.append([seen.name, arch.partition(":")[0], seen.multi_processor_count, seen.total_memory])
toolkit = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
print(json.dumps({
    "version": torch.__version__, "took_s": took, "devices": devices, "threads": torch.get_num_threads(),
    "toolkit": toolkit if torch.version.hip or torch.version.cuda else "",
}))
"""


def build_probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns one finding 'torch': whether it is installed and its build fits this machine's GPU, from its metadata and
    its version file."""
    version, kind = gpu_tokens.torch_build(), gpu_tokens.torch_build_kind()
    if version is None:
        return (
            DoctorFinding(
                "torch",
                Status.PROBLEM,
                "not installed",
                "nothing can be proven right or measured",
                INSTALL[here.vendor],
            ),
        )
    value = f"{version}, {f'{kind} build' if kind != 'CPU' else 'CPU only'}" if kind else version
    wanted = KIND_OF[here.vendor]
    if here.vendor and kind and kind != wanted:
        meaning = (
            f"the GPU here is {here.vendor.upper()}'s and needs a {wanted} build: nothing runs on it with this one"
        )
        fix = f"pip uninstall torch triton, then {INSTALL[here.vendor]}"
        return (DoctorFinding("torch", Status.PROBLEM, value, meaning, fix),)
    if not here.vendor and kind in ("CUDA", "ROCm"):
        meaning = "no GPU is visible here: correctness checks and code objects only, nothing is timed on a GPU"
        return (DoctorFinding("torch", Status.NOTE, value, meaning, "see the device lines below"),)
    return (
        DoctorFinding("torch", Status.OK, value, details=() if kind else ("its files do not say for which device",)),
    )


def device_probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns one finding 'torch device': which devices an import in another process sees, or why the import fails.
    Returns none if torch is not installed."""
    if gpu_tokens.torch_build() is None:
        return ()
    try:
        seen = answer_of((here.python, "-c", QUESTION), limit_s=LIMIT_S - 1, environ=here.environ, folder=here.root)
    except ProbeError as error:
        return (_judge_broken_import(here, str(error)),)
    return (_judge_devices(here, seen),)


def _judge_devices(here: Surroundings, seen: dict[str, object]) -> DoctorFinding:
    devices, took_s = seen["devices"], seen["took_s"]
    if not isinstance(devices, list) or not isinstance(took_s, float):
        raise ProbeError(f"torch's process answered {seen!r}")
    imports = f"imports in {took_s:.1f} s"
    if devices:
        name, arch, units, memory_bytes = devices[0]
        count = "" if len(devices) == 1 else f"{len(devices)} devices, the first: "
        value = f"{count}{name} ({arch}), {units} compute units, {memory_bytes / 2**30:.1f} GiB"
        details = (imports, str(seen.get("toolkit", "")), *(f"{each[0]} ({each[1]})" for each in devices[1:]))
        return DoctorFinding("torch device", Status.OK, value, details=tuple(filter(None, details)))
    threads = seen.get("threads")
    value = f"{imports}, sees the CPU only ({threads} thread{'' if threads == 1 else 's'})"
    if not here.has_gpu:
        return DoctorFinding("torch device", Status.OK, value)
    return DoctorFinding(
        "torch device",
        Status.PROBLEM,
        f"{imports}, but sees no device",
        "a GPU's device node exists, but torch cannot use it: no case runs on it",
        'python -c "import torch; torch.zeros(1).cuda()" says why; then see the device lines below',
    )


def _judge_broken_import(here: Surroundings, said: str) -> DoctorFinding:
    hiding = next((name for name in ("torch.py", "torch") if (here.root / name).exists()), "")
    return DoctorFinding(
        "torch device",
        Status.PROBLEM,
        f"torch is installed, but its import fails: {said}",
        "every worker would fail in the same way",
        f"rename {hiding} in this folder, which Python imports instead of torch, and run the doctor again"
        if hiding
        else f"pip uninstall torch triton, then {INSTALL[here.vendor]}",
    )
