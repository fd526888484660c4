from __future__ import annotations

import os
import platform
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_attnperf.environment.device import cpu_product, gpu_product, identify_device, identify_gpu, make_slug
from pytest_attnperf.environment.system import System
from pytest_attnperf.errors import UsageError

H200 = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    total_memory=150109880320,
    multi_processor_count=132,
    uuid="cb3296dd-c4f9-7776-d3c3-451768cecfc4",
)
MI300X = SimpleNamespace(
    name="AMD Instinct MI300X VF",
    gcnArchName="gfx942:sramecc+:xnack-",
    total_memory=206141652992,
    multi_processor_count=304,
    pci_domain_id=0,
    pci_bus_id=0xC1,
    pci_device_id=0,
)


def test_nvidia() -> None:
    """An H200 as torch 2.11 describes it."""
    device = identify_gpu(H200, is_rocm=False)
    assert (device.kind, device.arch, device.product) == ("cuda", "sm_90", "h200")
    assert (device.compute_units, device.memory_bytes) == (132, 150109880320)
    assert device.device_id == "GPU-cb3296dd-c4f9-7776-d3c3-451768cecfc4"


def test_amd() -> None:
    """An MI300X: features are cut off the arch, the pass-through suffix off the product, the PCI address is sysfs's."""
    device = identify_gpu(MI300X, is_rocm=True)
    assert (device.kind, device.arch, device.product) == ("rocm", "gfx942", "mi300x")
    assert (device.compute_units, device.device_id) == (304, "0000:c1:00.0")


def test_rdna_counts_compute_units() -> None:
    """On RDNA torch counts work-group processors; an unnamed card is told by its arch, size and memory."""
    card = SimpleNamespace(
        name="AMD Radeon Graphics", gcnArchName="gfx1201", total_memory=34208743424, multi_processor_count=32
    )
    device = identify_gpu(card, is_rocm=True)
    assert (device.compute_units, device.product, device.device_id) == (64, "radeon-ai-pro-r9700", "")


def test_an_unnamed_card_that_fits_nothing_keeps_its_name() -> None:
    """No nearest match is taken."""
    card = SimpleNamespace(
        name="AMD Radeon Graphics", gcnArchName="gfx1103", total_memory=2**34, multi_processor_count=6
    )
    assert identify_gpu(card, is_rocm=True).product == "radeon-graphics"


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA H200 MIG 1g.18gb", "h200-mig-1g-18gb"),
        ("AMD Instinct MI250X / MI250", "mi250x"),
        ("AMD Radeon RX 7900 XTX", "radeon-rx-7900-xtx"),
        ("../../etc", "etc"),
        ("", "unnamed"),
    ],
)
def test_product_names(name: str, product: str) -> None:
    """A product is a folder's name, whatever the driver says."""
    assert gpu_product(name) == product


@pytest.mark.parametrize(
    ("model", "product"),
    [
        ("AMD EPYC 9B14", "amd-epyc-9b14"),
        ("AMD EPYC 7763 64-Core Processor", "amd-epyc-7763"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "intel-xeon"),
        ("Intel(R) Core(TM) i7-8700K CPU @ 3.70GHz", "intel-core-i7-8700k"),
    ],
)
def test_cpu_products(model: str, product: str) -> None:
    """A CPU's slug leaves out trademarks, clock and core count."""
    assert cpu_product(model) == product == make_slug(product)


def test_cpu(tmp_path: Path) -> None:
    """A CPU is named by /proc/cpuinfo and counted by torch's threads."""
    torch = pytest.importorskip("torch")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD EPYC 9B14\nstepping\t: 1\n")
    device = identify_device("cpu", interpreted=True, system=System(tmp_path))
    assert (device.kind, device.arch, device.product) == ("cpu", f"cpu-{platform.machine()}", "amd-epyc-9b14")
    assert device.compute_units == torch.get_num_threads()
    assert device.memory_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert device.interpreted


def test_cpu_without_a_model_name(tmp_path: Path) -> None:
    """Many ARM kernels name no model; the machine's name stands in."""
    pytest.importorskip("torch")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\n")
    assert identify_device("cpu", system=System(tmp_path)).product == make_slug(platform.machine())


def test_unknown_device() -> None:
    """An unknown device lists what exists."""
    with pytest.raises(UsageError, match="unknown device 'rocm'; known: cpu, cuda"):
        identify_device("rocm")


def test_cuda_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for a GPU that torch does not see says which torch, and the way out."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"torch .* sees no GPU; use --attnperf-device=cpu, or install"):
        identify_device("cuda")


@pytest.mark.gpu
def test_the_gpu_of_this_machine() -> None:
    """The real GPU has an arch, a product that names a folder, compute units and an identity."""
    device = identify_device("cuda")
    assert device.arch.startswith(("sm_", "gfx"))
    assert device.product == make_slug(device.product)
    assert device.compute_units > 0
    assert device.device_id
