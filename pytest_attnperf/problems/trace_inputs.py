"""The inputs of a workload: drawn, read from safetensors, or made by the definition's own function.

Random tensors are drawn as FlashInfer-Bench draws them: N(0, 1), for 8-bit floats cut at +-2, integers of all of int8
or of [-1024, 1024), and fair bools. Numbers are the same for every seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.problems.trace_schema import TraceDefinition, TraceInput, TraceTensor, TraceWorkload
from pytest_attnperf.records.regular_file import describe_os_error, require_regular
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.workloads.edge_planting import is_free

if TYPE_CHECKING:
    import torch

LFS_POINTER = b"version https://git-lfs"
RANDOM = TraceInput("random")

Values = dict[str, Any]
"""Inputs by name, in the definition's order: tensors, and numbers where a shape is None or a scalar is given."""


@dataclass
class InputMaker:
    """Makes the inputs of one workload.

    root     folder that the paths of safetensors files are relative to
    custom   the definition's own function of (sizes and scalars, device); None if it has none
    """

    definition: TraceDefinition
    workload: TraceWorkload
    root: Path
    custom: Callable[..., Any] | None = None
    _read: dict[str, torch.Tensor] = field(default_factory=dict)

    def make(self, seed: int, device: str) -> Values:
        """Returns all inputs on `device`, the same for the same seed. Raises UsageError for a file that cannot be used,
        inputs that do not have the shape and dtype of the definition, and a constraint that they violate, and
        UnsupportedError for a dtype that this torch cannot make."""
        import torch

        sizes = self.definition.sizes(self.workload.axes)
        sources = {name: self.workload.inputs.get(name, RANDOM) for name in self.definition.inputs}
        generator = torch.Generator(device).manual_seed(seed)
        made = self._make_custom(sizes, device, seed) if any(one.type == "custom" for one in sources.values()) else {}
        values: Values = {}
        for name, tensor in self.definition.inputs.items():
            shape = self.definition.shape_of(tensor, sizes)
            if sources[name].type == "custom":
                values[name] = self._require_made(name, made)
            elif tensor.optional and name not in self.workload.inputs:
                values[name] = None
            elif sources[name].type == "scalar":
                values[name] = _convert_number(sources[name].value, tensor.dtype)
            elif sources[name].type == "safetensors":
                values[name] = self._read_tensor(name, sources[name], tensor.shape is None).to(device)
                values[name] = values[name].item() if tensor.shape is None else values[name]
            elif tensor.shape is None:
                values[name] = _draw_number(f"{self.workload.uuid} {name}", tensor.dtype)
            else:
                values[name] = draw_tensor(shape, tensor.dtype, device, generator)
            self._require_fit(name, values[name], shape, tensor)
        self._vary_files(values, sources, generator)
        self._require_constraints(values, sizes)
        return values

    def _vary_files(self, values: Values, sources: Mapping[str, TraceInput], generator: torch.Generator) -> None:
        """Gives every element of the floating-point tensors of files a random sign, if no other input follows from the
        seed: a kernel that returns an old result must not pass. Tensors that are not free numbers stay."""
        import torch

        drawn = [
            name
            for name, one in values.items()
            if isinstance(one, torch.Tensor) and sources[name].type != "safetensors" and one.numel() > 1
        ]
        if drawn:
            return
        for name, one in values.items():
            if isinstance(one, torch.Tensor) and is_free(one):
                signs = torch.randint(0, 2, one.shape, generator=generator, device=one.device)
                values[name] = one * (2 * signs - 1).to(one.dtype)

    def _make_custom(self, sizes: Mapping[str, int], device: str, seed: int) -> Mapping[str, Any]:
        import torch

        assert self.custom is not None  # a workload with custom inputs is refused without one
        scalars = {name: one.value for name, one in self.workload.inputs.items() if one.type == "scalar"}
        torch.manual_seed(seed)
        made = self.custom({**sizes, **scalars}, torch.device(device))
        if not isinstance(made, Mapping):
            raise UsageError(f"{self.definition.custom_inputs_entrypoint} returned {type(made).__name__}, not a dict")
        return made

    def _require_made(self, name: str, made: Mapping[str, Any]) -> Any:
        if name not in made:
            raise UsageError(f"{self.definition.custom_inputs_entrypoint} made no input {name!r}; it made {list(made)}")
        return made[name]

    def _read_tensor(self, name: str, source: TraceInput, is_number: bool) -> torch.Tensor:
        """Returns a tensor of a safetensors file, read once. Refuses a shape that the definition does not have before
        its data are read."""
        if name not in self._read:
            tensor = self.definition.inputs[name]
            shape = self.definition.shape_of(tensor, self.definition.sizes(self.workload.axes))
            self._read[name] = read_safetensors(self.root, source, name, None if is_number else shape)
        return self._read[name]

    def _require_fit(self, name: str, value: Any, shape: tuple[int, ...], tensor: TraceTensor) -> None:
        import torch

        if not isinstance(value, torch.Tensor):
            return
        own = str(value.dtype).removeprefix("torch.")
        if tuple(value.shape) != shape or own != tensor.dtype:
            raise UsageError(
                f"input {name!r} of workload {self.workload.uuid[:80]!r} is {own} {list(value.shape)}; the definition "
                f"has {tensor.dtype} {list(shape)}"
            )

    def _require_constraints(self, values: Values, sizes: Mapping[str, int]) -> None:
        """Evaluates the definition's constraints, Python expressions, which are code as its reference is."""
        known = {**sizes, **values}
        for text in self.definition.constraints or ():
            try:
                holds = bool(eval(text, {"__builtins__": {}, **known}))
            except Exception as error:  # any, because the expression is foreign code
                raise UsageError(
                    f"the constraint {text[:120]!r} cannot be evaluated ({one_line(str(error))})"
                ) from None
            if not holds:
                named = ", ".join(f"{name} = {size}" for name, size in sizes.items() if name in text)
                raise UsageError(
                    f"workload {self.workload.uuid[:80]!r} violates the constraint {text[:120]!r}"
                    + (f" ({named})" if named else "")
                )


def read_safetensors(root: Path, source: TraceInput, name: str, shape: tuple[int, ...] | None) -> torch.Tensor:
    """Returns a tensor of a safetensors file below `root`. `shape` is the one that it must have; None for any of one
    element. Raises UsageError for a file that is missing, outside of `root`, broken, a pointer of Git LFS, or without
    such a tensor; says what to install where the package is missing."""
    path = (root / source.path).resolve()
    if not path.is_relative_to(root):
        raise UsageError(f"{one_line(source.path)} of input {name!r} is outside of {root}")
    try:
        require_regular(path)
        with path.open("rb") as stream:
            if stream.read(len(LFS_POINTER)) == LFS_POINTER:
                raise UsageError(f"{path} of input {name!r} is a pointer of Git LFS; get its content: git lfs pull")
    except OSError as error:
        raise UsageError(f"input {name!r}: {describe_os_error(error)}") from None
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise UsageError(
            f"input {name!r} is in a safetensors file; install the package: pip install 'pytest-attnperf[problems]'"
        ) from None
    try:
        with safe_open(path, framework="pt") as file:
            keys = list(file.keys())
            if source.tensor_key not in keys:
                has = one_line(", ".join(keys[:20]))
                raise UsageError(f"{path} holds no tensor {source.tensor_key[:80]!r}; it holds {has}")
            stored = tuple(file.get_slice(source.tensor_key).get_shape())
            if (shape is None and stored not in ((), (1,))) or (shape is not None and stored != shape):
                wanted = "one element" if shape is None else list(shape)
                raise UsageError(
                    f"{path}: {source.tensor_key[:80]!r} has the shape {list(stored)}; it must have {wanted}"
                )
            tensor: torch.Tensor = file.get_tensor(source.tensor_key)
            return tensor
    except SafetensorError as error:
        raise UsageError(f"{path} is no readable safetensors file ({one_line(str(error))}); fetch it again") from None


def find_dtype(name: str) -> torch.dtype:
    """Returns torch's dtype of this name. Raises UnsupportedError for one that this torch has not, or cannot fill."""
    import torch

    dtype = getattr(torch, name, None)
    if name.startswith("float4") or not isinstance(dtype, torch.dtype):
        raise UnsupportedError(f"{name} tensors can neither be drawn nor compared here")
    return dtype


def draw_tensor(shape: tuple[int, ...], name: str, device: str, generator: torch.Generator) -> torch.Tensor:
    """Draws a tensor of a dtype's usual distribution."""
    import torch

    dtype = find_dtype(name)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator, device=device).bool()
    if not dtype.is_floating_point:
        low, high = (-128, 128) if dtype == torch.int8 else (0, 256) if dtype == torch.uint8 else (-1024, 1024)
        return torch.randint(low, high, shape, generator=generator, device=device, dtype=dtype)
    if dtype.itemsize == 1:
        return torch.randn(shape, generator=generator, device=device).clamp_(-2.0, 2.0).to(dtype)
    return torch.randn(shape, generator=generator, device=device, dtype=dtype)


def _draw_number(seed: str, dtype: str) -> float | int | bool:
    draw = random.Random(seed)
    if dtype == "bool":
        return draw.random() < 0.5
    return draw.gauss(0.0, 1.0) if dtype.startswith(("float", "bfloat")) else draw.randrange(-1024, 1024)


def _convert_number(value: float | None, dtype: str) -> float | int | bool:
    assert value is not None  # checked when the workload was read
    return float(value) if dtype.startswith(("float", "bfloat")) else value
