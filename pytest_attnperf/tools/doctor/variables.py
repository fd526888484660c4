"""Finds environment variables that change which code runs, or how long it takes. Each gets a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

OFF = frozenset({"", "0", "false", "no", "off", "n"})
VALUE_LIMIT = 60

PREFIXES = (
    *("ATTNPERF_", "PYTEST_", "PYTHON", "OMP_", "MKL_", "LD_PRELOAD"),
    *(
        "HIP_",
        "HSA_",
        "ROCR_",
        "ROCM_",
        "ROC_",
        "ROCP_",
        "ROCPROF",
        "ROCBLAS_",
        "HIPBLASLT_",
        "AMD_",
        "GPU_",
        "MIOPEN_",
    ),
    *("CUDA_", "NVIDIA_", "CUBLAS_", "NCCL_", "RCCL_", "TRITON_", "TORCH", "PYTORCH_"),
    *("AITER_", "FLYDSL_", "FLASH_ATTENTION_", "ENABLE_CK", "CK_DIR", "CU_NUM", "MAX_JOBS"),
)
"""Prefixes of the variables that can change measurements."""

VISIBLE = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def is_on(value: str) -> bool:
    """Returns whether a variable's value switches its feature on: anything but '', 0, false, no, off and n."""
    return value.strip().lower() not in OFF


def is_off(value: str) -> bool:
    """Returns whether a variable's value switches its feature off: '', 0, false, no, off or n."""
    return not is_on(value)


@dataclass(frozen=True)
class VariableRule:
    """A variable, the values that matter (`applies`), and their effect. `of_gpu` says that it has no effect without a
    GPU."""

    name: str
    status: Status
    meaning: str
    applies: Callable[[str], bool] = is_on
    of_gpu: bool = True


BLOCKING = "every launch waits for its kernel: times of single calls and of the host are not those of normal use"
TOOL = "a profiler's or debugger's library is loaded into every process and slows launches"
OTHER_CODE = "it changes which code runs: compare such runs with each other only"

RULES = (
    VariableRule("HIP_LAUNCH_BLOCKING", Status.PROBLEM, BLOCKING),
    VariableRule("CUDA_LAUNCH_BLOCKING", Status.PROBLEM, BLOCKING),
    VariableRule("AMD_SERIALIZE_KERNEL", Status.PROBLEM, BLOCKING),
    VariableRule("AMD_SERIALIZE_COPY", Status.PROBLEM, "every copy is waited for: host times are longer than normal"),
    VariableRule(
        "TRITON_INTERPRET",
        Status.WARNING,
        "gpu_timer and --attnperf-isolate=none would time Triton's interpreter; workers of a gate drop it",
    ),
    VariableRule(
        "TORCHDYNAMO_DISABLE", Status.WARNING, "torch.compile does nothing: compiled backends time eager code"
    ),
    VariableRule(
        "PYTORCH_NO_CUDA_MEMORY_CACHING", Status.WARNING, "every tensor is allocated by the driver: host times grow"
    ),
    VariableRule(
        "PYTORCH_NO_HIP_MEMORY_CACHING", Status.WARNING, "every tensor is allocated by the driver: host times grow"
    ),
    VariableRule(
        "PYTORCH_TUNABLEOP_ENABLED", Status.WARNING, "torch tries GEMMs while the case runs, and keeps the fastest"
    ),
    VariableRule(
        "NVIDIA_TF32_OVERRIDE", Status.WARNING, "libraries switch TF32 on or off against the case's setting", bool
    ),
    VariableRule(
        "HSA_OVERRIDE_GFX_VERSION", Status.WARNING, "code for another architecture than the device's is loaded", bool
    ),
    VariableRule("HSA_CU_MASK", Status.WARNING, "only a part of the compute units is used", bool),
    VariableRule("ROC_GLOBAL_CU_MASK", Status.WARNING, "only a part of the compute units is used", bool),
    VariableRule("HSA_TOOLS_LIB", Status.WARNING, TOOL, bool),
    VariableRule("ROCP_TOOL_LIBRARIES", Status.WARNING, TOOL, bool),
    VariableRule("CUDA_INJECTION64_PATH", Status.WARNING, TOOL, bool),
    VariableRule("ENABLE_CK", Status.WARNING, "aiter silently uses Triton instead of Composable Kernel", is_off),
    VariableRule(
        "TRITON_ALWAYS_COMPILE", Status.NOTE, "every process compiles every Triton kernel again: runs take longer"
    ),
    VariableRule("TRITON_DISABLE_LINE_INFO", Status.NOTE, "code objects have no source lines"),
    VariableRule("TORCHINDUCTOR_MAX_AUTOTUNE", Status.NOTE, OTHER_CODE),
    VariableRule("MIOPEN_FIND_ENFORCE", Status.NOTE, OTHER_CODE),
    VariableRule("FLASH_ATTENTION_TRITON_AMD_ENABLE", Status.NOTE, OTHER_CODE),
    VariableRule("AITER_REBUILD", Status.NOTE, "aiter builds its modules again in every process, for minutes each"),
    VariableRule("CUDA_DEVICE_MAX_CONNECTIONS", Status.NOTE, "kernels of several streams overlap less", bool),
    VariableRule("GPU_MAX_HW_QUEUES", Status.NOTE, "kernels of several streams overlap differently", bool),
    VariableRule("LD_PRELOAD", Status.NOTE, "a library is loaded first in every process", bool, of_gpu=False),
    VariableRule(
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
        Status.WARNING,
        "pytest loads no plugin by itself and does not know --attnperf; or add -p pytest_attnperf.plugin.main",
        of_gpu=False,
    ),
    VariableRule(
        "PYTHONDONTWRITEBYTECODE",
        Status.NOTE,
        "every worker compiles the plugin again, which triples its start",
        bool,
        of_gpu=False,
    ),
)
"""Ordered by severity. Python reads any text in its variable as true. Sources: HIP's and torch's own pages of
variables, aiter's dispatcher (kernels/aiter/README.md)."""


def probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns one finding for each variable whose value affects measurements; else a single OK finding."""
    found = [*_probe_hidden_gpus(here), *_probe_by_rule(here)]
    shown = tuple(f"{name}={value}" for name, value in list_relevant_variables(here.environ).items())
    if found:
        return found
    return (DoctorFinding("environment variables", Status.OK, "none is set that changes times", details=shown),)


def list_relevant_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns name -> value of the variables that can change measurements (any that begin with one of PREFIXES),
    sorted by name."""
    return {name: environ[name] for name in sorted(environ) if name.startswith(PREFIXES)}


def _probe_by_rule(here: Surroundings) -> list[DoctorFinding]:
    found = []
    for rule in RULES:
        value = here.environ.get(rule.name)
        if value is None or not rule.applies(value):
            continue
        # A GPU variable does not affect checks on a CPU, but the next run from this shell inherits it.
        status = Status.NOTE if rule.of_gpu and not here.vendor else rule.status
        found.append(DoctorFinding(rule.name, status, f"={_shorten_value(value)}", rule.meaning, f"unset {rule.name}"))
    return found


def _probe_hidden_gpus(here: Surroundings) -> list[DoctorFinding]:
    """Returns a problem if a variable such as HIP_VISIBLE_DEVICES hides a GPU that exists; else nothing."""
    names = [name for name in VISIBLE if name in here.environ]
    if here.has_gpu or not here.vendor or not names:
        return []
    shown = ", ".join(f"{name}={here.environ[name]!r}" for name in names)
    meaning = "they name no GPU that is here, or the device node cannot be opened: cases run on no GPU"
    return [DoctorFinding("hidden GPUs", Status.PROBLEM, shown, meaning, f"unset {' '.join(names)}")]


def _shorten_value(value: str) -> str:
    return value if len(value) <= VALUE_LIMIT else f"{value[:VALUE_LIMIT]}..."
