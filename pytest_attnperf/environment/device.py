"""Identifies the device that torch uses, and makes the product slugs that name the folders of baselines.

Runs in a worker, because the first call initialises the device.
"""

from __future__ import annotations

import os
import platform
import re
from typing import Any

from pytest_attnperf.environment.device_specs import product_by_shape
from pytest_attnperf.environment.system import ProbeError, System
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo

RDNA_PREFIXES = ("gfx10", "gfx11", "gfx12")
"""Architectures where torch's multi_processor_count counts work-group processors of two compute units each."""

UNNAMED_PRODUCTS = frozenset({"radeon-graphics", "unnamed"})
"""Slugs of the names that amdgpu gives to a card without a marketing name."""


def identify_device(device: str, *, interpreted: bool = False, system: System | None = None) -> DeviceInfo:
    """Identifies 'cuda' (the current GPU of either vendor) or 'cpu'.

    `interpreted` says that this process runs Triton kernels interpreted. `device_id` is 'GPU-<uuid>' on NVIDIA (for
    nvidia-smi), the PCI address on AMD (for sysfs) and '' on CPUs. Raises UsageError for another device name, and if
    torch sees no GPU.
    """
    if device == "cpu":
        return _identify_cpu(interpreted, system or System())
    if device != "cuda":
        raise UsageError(f"unknown device {device!r}; known: cpu, cuda (which also names AMD GPUs)")
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            f"device 'cuda' was requested, but torch {torch.__version__} sees no GPU; "
            "use --attnperf-device=cpu, or install a torch build for this GPU"
        )
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return identify_gpu(properties, is_rocm=torch.version.hip is not None)


def identify_gpu(properties: Any, *, is_rocm: bool) -> DeviceInfo:
    """Makes a DeviceInfo from torch's device properties.
    On ROCm a card without a marketing name gets the product that has its compute units and memory, if only one has."""
    name, memory_bytes = str(properties.name), int(properties.total_memory)
    compute_units = int(properties.multi_processor_count)
    if not is_rocm:
        arch = f"sm_{properties.major}{properties.minor}"
        uuid = getattr(properties, "uuid", None)
        device_id = f"GPU-{uuid}" if uuid else ""
        return DeviceInfo("cuda", arch, gpu_product(name), name, compute_units, memory_bytes, device_id)
    # gcnArchName carries features: 'gfx942:sramecc+:xnack-'.
    arch = str(properties.gcnArchName).split(":")[0]
    if arch.startswith(RDNA_PREFIXES):
        compute_units *= 2
    product = gpu_product(name)
    if product in UNNAMED_PRODUCTS:
        product = product_by_shape(arch, compute_units, memory_bytes) or product
    return DeviceInfo("rocm", arch, product, name, compute_units, memory_bytes, _pci_address(properties))


def _pci_address(properties: Any) -> str:
    """Formats the PCI address as sysfs does, '0000:c1:00.0'; '' if this torch version does not report it."""
    bus = getattr(properties, "pci_bus_id", None)
    if bus is None:
        return ""
    return f"{getattr(properties, 'pci_domain_id', 0):04x}:{bus:02x}:{getattr(properties, 'pci_device_id', 0):02x}.0"


def interpreted_gpu(arch: str) -> DeviceInfo:
    """Returns a GPU of an AMD architecture whose machine code this process interprets: its tensors are on the CPU."""
    return DeviceInfo("rocm", arch, f"interpreted-{arch}", "an interpreter of machine code", interpreted=True)


def _identify_cpu(interpreted: bool, system: System) -> DeviceInfo:
    import torch

    try:
        name = read_cpu_model(system)
    except ProbeError:
        name = platform.machine()
    return DeviceInfo(
        kind="cpu",
        arch=f"cpu-{platform.machine()}",
        product=cpu_product(name),
        name=name,
        compute_units=torch.get_num_threads(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        interpreted=interpreted,
    )


_MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
_NOISE = re.compile(r"\((R|TM)\)|@.*$|\bCPU\b|\b\d+-Core\b|\bProcessor\b", re.IGNORECASE)


def read_cpu_model(system: System) -> str:
    """Reads the model from /proc/cpuinfo, e.g. 'AMD EPYC 9B14'. Raises ProbeError if it has none (many ARM kernels)."""
    found = _MODEL.search(system.read("proc/cpuinfo"))
    if not found:
        raise ProbeError("/proc/cpuinfo names no model")
    return found[1].strip()


def cpu_product(model: str) -> str:
    """Shortens a CPU's model to a slug: 'AMD EPYC 9B14 96-Core Processor' gives 'amd-epyc-9b14'.
    The number of cores is left out, because fingerprints compare the number of threads as compute_units."""
    return make_slug(_NOISE.sub(" ", model))


def cpu_must_match(threads: int) -> dict[str, str]:
    """Returns the fingerprint fields that must be equal to compare CPU times: torch's threads, how time is taken, and
    constants for partitions and for the power cap, which a process cannot read."""
    return {
        "cpu_threads": str(threads),
        "host_clock": "fastest run, without waits",
        "compute_partition": "none",
        "memory_partition": "none",
        "power_cap_w": "unknown (not read on CPUs)",
    }


_VENDOR = re.compile(r"^(NVIDIA|AMD|Advanced Micro Devices)\b,?\s*", re.IGNORECASE)
_INSTINCT = re.compile(r"\bMI\d{3}[AX]?\b", re.IGNORECASE)


def make_slug(text: str) -> str:
    """Converts to lower case with hyphens for all but letters and digits: 'H100 80GB HBM3' gives 'h100-80gb-hbm3'.
    Text without letters and digits gives 'unnamed'."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def gpu_product(name: str) -> str:
    """Makes a GPU's slug: 'NVIDIA H200' gives 'h200', 'AMD Instinct MI300X VF' 'mi300x', 'NVIDIA H100 NVL' 'h100-nvl'.

    NVIDIA's suffix stays, because PCIe, NVL and SXM boards of one name differ in clock and memory. AMD's suffix after
    an Instinct model is dropped, because it only says how the card is passed through.
    """
    instinct = _INSTINCT.search(name)
    return instinct[0].lower() if instinct else make_slug(_VENDOR.sub("", name.strip()))
