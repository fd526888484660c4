"""What the Triton backends share: what they need, which configuration they run with, and the compile before timing.

Triton is imported in `prepare` only.
"""

from __future__ import annotations

import abc
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernels.triton.configs import Choice, KernelConfigError, Problem, Space
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo

INTERPRETER_FLOPS_MAX = 6e7
"""Triton's interpreter takes about a second for this much, in tiles of 32 x 32."""


@dataclass(frozen=True)
class Configured(abc.ABC):
    """Mixed into a backend whose kernels are configured from data files: it can be pinned to what was stored.

    pinned_choices    kernel -> a configuration to use in place of the data files'
    """

    pinned_choices: Mapping[str, Choice] = field(default_factory=dict, compare=False, kw_only=True)

    @property
    @abc.abstractmethod
    def spaces(self) -> tuple[Space, ...]:
        """What each of its kernels is configured by."""

    def pinned(self, config: Mapping[str, str]) -> Self:
        """With the constants and options of a stored configuration. Raises UsageError where it lacks one."""
        prefixes = {space: self._prefix(space) for space in self.spaces}
        used = [s for s, prefix in prefixes.items() if any(name.startswith(prefix) for name in config) or not prefix]
        if not used:
            raise UsageError(
                f"the stored configuration holds none of the kernels {', '.join(s.kernel for s in prefixes)}; it has "
                f"{', '.join(sorted(config)) or 'nothing'}; record the baseline again, or run without "
                "--attnperf-pin-config"
            )
        return replace(self, pinned_choices={s.kernel: s.replayed(config, prefixes[s]) for s in used})

    def with_choice(self, kernel: str, choice: Choice) -> Self:
        """With another configuration of one kernel. Raises UsageError for a kernel it does not have."""
        names = [space.kernel for space in self.spaces]
        if kernel not in names:
            raise UsageError(f"{type(self).__name__} has no kernel {kernel!r}; it has {', '.join(names)}")
        return replace(self, pinned_choices={**self.pinned_choices, kernel: choice})

    def choose(self, space: Space, arch: str, problem: Problem) -> Choice:
        """The pinned configuration of a kernel, or the data files' for this problem. Raises KernelConfigError."""
        return self.pinned_choices.get(space.kernel) or space.choose(arch, problem)

    def recorded(self, choices: Mapping[str, Choice]) -> dict[str, str]:
        """What `Prepared.config` says of the choices by kernel, so that `pinned` can read it back."""
        return {
            name: text
            for space in self.spaces
            if space.kernel in choices
            for name, text in choices[space.kernel].recorded(self._prefix(space)).items()
        }

    def _prefix(self, space: Space) -> str:
        """Names are as they are where there is one kernel, and 'kernel.name' where there are more."""
        return "" if len(self.spaces) == 1 else f"{space.kernel}."


def missing_triton(device: DeviceInfo) -> list[str]:
    """Why no Triton kernel can run here: Triton is needed and, without a GPU, its interpreter."""
    found = []
    if importlib.util.find_spec("triton") is None:
        found.append("triton is not installed")
    if device.kind == "cpu" and not device.interpreted:
        found.append("Triton compiles for GPUs only; without one, set TRITON_INTERPRET=1 before triton is imported")
    return found


def compile_ahead(call: Callable[..., Any], tensors: Tensors, space: Space, choice: Choice) -> None:
    """Run once on a GPU, so that nothing is compiled while timing; does nothing without one.

    Raises KernelConfigError for a configuration that asks for more shared memory, or other resources, than the device
    has, before anything is launched.
    """
    if not tensors[0].is_cuda:
        return
    from triton.runtime.errors import OutOfResources

    try:
        call(*tensors)
    except OutOfResources as error:
        settings = ", ".join(f"{name}={value}" for name, value in choice.config.items())
        raise KernelConfigError(
            f"{space.path(choice.arch)}: {space.kernel} with {settings} needs {error.required} of {error.name}, and "
            f"this device has {error.limit}; take smaller tiles or fewer stages"
        ) from error


def arch_of(device: torch.device) -> str:
    """The name of the configuration files: sm_90, gfx942, or 'interpreter' where there is no GPU."""
    import torch

    if device.type == "cpu":
        return "interpreter"
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is not None:
        return str(properties.gcnArchName).split(":", maxsplit=1)[0]
    return f"sm_{properties.major}{properties.minor}"
