"""Reads the compiled kernels of an AMD code object (.hsaco, .co), an offload bundle or a cubin."""

from __future__ import annotations

from pytest_attnperf.codeobject.amd_metadata import amd_arch, amd_kernels
from pytest_attnperf.codeobject.bundles import device_elf
from pytest_attnperf.codeobject.contents import ObjectContents, ObjectKernel
from pytest_attnperf.codeobject.cubin import cubin_arch, cubin_kernels
from pytest_attnperf.codeobject.elf import EM_AMDGPU, read_elf
from pytest_attnperf.codeobject.targets import plain_arch
from pytest_attnperf.errors import CodeObjectError

__all__ = ["ObjectContents", "ObjectKernel", "read_object", "select_kernel"]

_MOST_NAMES = 20


def read_object(data: bytes, source: str, *, arch: str = "") -> ObjectContents:
    """Returns the kernels of a code object.

    source   name of the file in messages
    arch     the wanted architecture: it selects the entry of a bundle; other objects are refused

    Raises CodeObjectError if the data is not a complete code object, and if it has no kernel.
    """
    elf = read_elf(device_elf(data, source, arch), source)
    amd = elf.machine == EM_AMDGPU
    found = amd_arch(elf) if amd else cubin_arch(elf)
    if arch and plain_arch(arch) != found:
        raise CodeObjectError(f"{source}: was compiled for {found}, not for {arch}; compile it for {arch}")
    kernels = amd_kernels(elf) if amd else cubin_kernels(elf)
    if not kernels:
        raise CodeObjectError(
            f"{source}: is a code object for {found} without any kernel; was the kernel's function left out as unused, "
            "or is it no __global__ function?"
        )
    return ObjectContents(found, kernels, elf.data)


def select_kernel(contents: ObjectContents, name: str, source: str) -> ObjectKernel:
    """Returns the kernel called `name`; with '' the only one. CodeObjectError lists the kernels if none or several
    match."""
    names = [kernel.code.name for kernel in contents.kernels]
    wanted = [kernel for kernel in contents.kernels if not name or kernel.code.name == name]
    if len(wanted) == 1:
        return wanted[0]
    listed = ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" if names[_MOST_NAMES:] else "")
    if not wanted:
        raise CodeObjectError(f"{source}: has no kernel {name!r}; it has: {listed}")
    raise CodeObjectError(
        f"{source}: has {len(wanted)} kernels{f' {name!r}' if name else ''}; name the one that is meant: {listed}"
    )
