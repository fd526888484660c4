"""Process-wide settings that a backend changes and does not restore: the next backend would run with them.

Such a change is undone, and is a problem of the case that made it. Random number generators are restored without a
message: drawing numbers is allowed, and cannot be distinguished from seeding.

Environment variables are not checked, because compilers set some of their own permanently; nor are variables of Python
modules.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pytest_attnperf.errors import CaseFailedError, UnsupportedError


@dataclass(frozen=True)
class ProcessSetting:
    """One setting of a whole process or thread, by a name that kernel authors know."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


@dataclass(frozen=True)
class LeftBehind:
    """A setting whose value after a backend's work differs from the value before it."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return (
            f"{self.name} was {self.before} before this backend ran and is {self.after} afterwards: other backends of "
            "the process would run with it, so it was put back; change it within the call only, and restore it there"
        )


@contextlib.contextmanager
def watch_settings(changes: list[LeftBehind], torch_device: str) -> Iterator[None]:
    """Restores process-wide settings that the block changed, and appends one `LeftBehind` for each of them to
    `changes`.

    If a setting changed, an exception of the block is raised as CaseFailedError, which names the settings.
    CaseFailedError
    and UnsupportedError, which already say how the case failed, are passed on unchanged.
    The state of the random number generators is restored, too, without an entry.
    """
    settings = list_settings()
    before = [_read_setting(setting) for setting in settings]
    found: list[LeftBehind] = []
    with _keep_random_numbers(torch_device):
        try:
            yield
        except (CaseFailedError, UnsupportedError):
            raise
        except Exception as error:
            found += _put_back(settings, before)
            if not found:
                raise
            named = "; ".join(map(str, found))
            raise CaseFailedError(f"{type(error).__name__}: {error}. Before that, {named}") from error
        finally:
            found += _put_back(settings, before)
            changes += found


def list_settings() -> tuple[ProcessSetting, ...]:
    """Returns all settings that are checked: those of torch, the flags of torch.backends, autocast, and Python."""
    return (
        *_torch_settings(),
        *_flag_settings(),
        *_autocast_settings("cpu"),
        *_autocast_settings("cuda"),
        *_cache_settings(),
        *_python_settings(),
    )


def _torch_settings() -> tuple[ProcessSetting, ...]:
    import torch

    return (
        ProcessSetting("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        ProcessSetting("torch's default device", torch.get_default_device, _set_default_device),
        ProcessSetting("whether torch computes gradients", torch.is_grad_enabled, torch.set_grad_enabled),
        ProcessSetting("torch's number of threads", torch.get_num_threads, torch.set_num_threads),
        ProcessSetting(
            "torch's precision of fp32 products",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        ProcessSetting(
            "whether torch insists on deterministic algorithms",
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
        ProcessSetting("whether denormals are 0", _denormals_are_zero, torch.set_flush_denormal),
        ProcessSetting("the number of torch's dispatch modes", torch._C._len_torch_dispatch_stack, _leave_modes),
        ProcessSetting("the number of torch's function modes", _count_function_modes, _leave_function_modes),
    )


def _leave_modes(count: int) -> None:
    """Pops the innermost torch dispatch modes until `count` are left."""
    import torch

    while torch._C._len_torch_dispatch_stack() > count:
        torch._C._pop_torch_dispatch_stack(None)


def _count_function_modes() -> int:
    """Returns the number of torch function modes that are entered, except that of a default device."""
    from torch import overrides

    list_modes: Callable[[], list[Any]] = overrides._get_current_function_mode_stack
    return sum(type(mode).__name__ != "DeviceContext" for mode in list_modes())


def _leave_function_modes(count: int) -> None:
    """Pops the innermost torch function modes until `count` are left besides that of a default device."""
    import torch

    while _count_function_modes() > count:
        torch._C._pop_torch_function_stack()


_PRODUCTS = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)


def _flag_settings() -> tuple[ProcessSetting, ...]:
    """Returns the settings in torch.backends: precision of products, cuDNN, oneDNN, and which attention kernels torch
    may use. Kinds of attention that this release of torch does not know are left out."""
    import torch

    backends: Any = torch.backends
    # Since torch 2.9 a precision has a new name, and reading an old one may raise once the new one was set.
    precision = "fp32_precision" if hasattr(backends.cuda.matmul, "fp32_precision") else "allow_tf32"
    named = [
        *(("cuda.matmul", flag) for flag in (*_PRODUCTS, precision)),
        *(("cudnn", flag) for flag in ("enabled", "benchmark", "deterministic")),
        *((place, precision) for place in ("cudnn", "cudnn.conv", "mkldnn.matmul")),
        ("mkldnn", "enabled"),
    ]
    flags = [_make_flag_setting(place, name) for place, name in named]
    kinds = [
        kind for kind in ("flash", "mem_efficient", "math", "cudnn") if hasattr(backends.cuda, f"{kind}_sdp_enabled")
    ]
    attention = [
        ProcessSetting(
            f"whether torch may use its {kind} attention",
            getattr(backends.cuda, f"{kind}_sdp_enabled"),
            getattr(backends.cuda, f"enable_{kind}_sdp"),
        )
        for kind in kinds
    ]
    return (*flags, *attention)


def _make_flag_setting(place: str, name: str) -> ProcessSetting:
    import torch

    owner = attrgetter(place)

    def write(value: Any) -> None:
        setattr(owner(torch.backends), name, value)

    return ProcessSetting(f"torch.backends.{place}.{name}", lambda: getattr(owner(torch.backends), name), write)


def _autocast_settings(device: str) -> tuple[ProcessSetting, ...]:
    import torch

    return (
        ProcessSetting(
            f"whether autocast is on for {device}",
            lambda: torch.is_autocast_enabled(device),
            lambda value: torch.set_autocast_enabled(device, value),
        ),
        ProcessSetting(
            f"the type that autocast takes for {device}",
            lambda: torch.get_autocast_dtype(device),
            lambda value: torch.set_autocast_dtype(device, value),
        ),
    )


PERSISTING = 6
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE of NVIDIA's driver: bytes of the L2 cache that are set aside for chosen lines."""


def _cache_settings() -> tuple[ProcessSetting, ...]:
    """Returns the part of an NVIDIA GPU's L2 cache that is set aside for lines which other writes do not evict: a cold
    call whose inputs stay there is hot. Returns () where this process uses no such GPU."""
    import torch

    cuda: Any = torch.cuda
    if not cuda.is_initialized() or torch.version.hip is not None:
        return ()
    driver = ctypes.CDLL("libcuda.so.1")

    size = ctypes.c_size_t()
    if driver.cuCtxGetLimit(ctypes.byref(size), PERSISTING):
        return ()  # GPUs before Ampere have no such part

    def read() -> int:
        driver.cuCtxGetLimit(ctypes.byref(size), PERSISTING)
        return size.value

    def write(value: int) -> None:
        driver.cuCtxSetLimit(PERSISTING, ctypes.c_size_t(value))
        driver.cuCtxResetPersistingL2Cache()

    return (ProcessSetting("the L2 cache that is set aside for chosen lines, in bytes,", read, write),)


def _python_settings() -> tuple[ProcessSetting, ...]:
    return (
        ProcessSetting("the current folder", os.getcwd, os.chdir),
        ProcessSetting("whether Python collects garbage", gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
        ProcessSetting("Python's switch interval", sys.getswitchinterval, sys.setswitchinterval),
        ProcessSetting("Python's trace function", sys.gettrace, sys.settrace),
        ProcessSetting("Python's profile function", sys.getprofile, sys.setprofile),
    )


def _set_default_device(device: Any) -> None:
    """Sets torch's default device; the CPU as None, as torch starts, because naming a device enables a torch mode."""
    import torch

    torch.set_default_device(None if device == torch.device("cpu") else device)


_DENORMAL, _ONE = 2.0**-1040, 1.0


def _denormals_are_zero() -> bool:
    """Returns whether this thread flushes denormal numbers to 0. A product in Python obeys the CPU flag that torch
    sets, and is 100 times faster than asking torch."""
    return not _DENORMAL * _ONE


_UNKNOWN = object()


def _read_setting(setting: ProcessSetting) -> Any:
    """Returns the setting's value; _UNKNOWN if reading it raises, e.g. where old and new names of a precision mix."""
    try:
        return setting.read()
    except (AttributeError, RuntimeError, TypeError, OSError):
        return _UNKNOWN


def _put_back(settings: tuple[ProcessSetting, ...], before: list[Any]) -> list[LeftBehind]:
    """Restores the settings to the values `before`, as far as they can be set, and returns those that had changed."""
    found = [
        (setting, old, new)
        for setting, old, new in zip(settings, before, map(_read_setting, settings), strict=True)
        if old is not _UNKNOWN and new is not _UNKNOWN and old != new
    ]
    for _ in range(2 if found else 0):  # twice, because old and new names of a precision write over each other
        for setting, old in zip(settings, before, strict=True):
            if old is not _UNKNOWN and _read_setting(setting) != old:
                with contextlib.suppress(RuntimeError, OSError):
                    setting.write(old)
    return [LeftBehind(setting.name, str(old), str(new)) for setting, old, new in found]


@contextlib.contextmanager
def _keep_random_numbers(torch_device: str) -> Iterator[None]:
    """Restores the global random state of Python, torch, the GPU, and numpy (if imported) after the block."""
    import torch

    numpy: Any = sys.modules.get("numpy")
    python, own = random.getstate(), torch.random.get_rng_state()
    arrays = None if numpy is None else numpy.random.get_state()
    on_gpu = torch.cuda.get_rng_state() if torch_device == "cuda" else None
    try:
        yield
    finally:
        random.setstate(python)
        torch.random.set_rng_state(own)
        if arrays is not None:
            numpy.random.set_state(arrays)
        if on_gpu is not None:
            torch.cuda.set_rng_state(on_gpu)
