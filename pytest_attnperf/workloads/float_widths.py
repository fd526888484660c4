"""Runs a reference in another floating-point width, whatever widths it names itself.

References are written for one width: they upcast inside (`x.float()`), sum in fp32 and round at the end. Given fp64
inputs, such a function would still round to fp32. So for the exact result, every width that it names is replaced by the
widest. Given bf16 inputs, it shows no error of bf16 arithmetic. So its intermediate results are rounded at random.

Some errors of fp32 sums and exponentials appear in no result of one operator: a reference that calls `torch.softmax`
sums in blocks and subtracts the maximum first. A kernel may add terms one after the other, or compute exp(x -
log-sum-exp), as every flash attention does in its backward pass. Both are honest.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors

ORDER_STEP = 2.0**-24
"""Bound of a sum's error, divided by the square root of the number of terms. Adding n positive terms one after the
other has an error of 0.24 times as much (root mean square); this bounds a number that is drawn uniformly."""

EXPONENT_STEP = 2.0**-23
"""Error relative to the largest exponent of a row: x and the log-sum-exp are rounded before they are subtracted."""

_SUMS = re.compile("sum|mean|logsumexp|linalg_vector_norm|norm|var.*|std.*|prod|nansum")
_ALONG = re.compile("_softmax|_log_softmax|cumsum|logcumsumexp|cumprod")
_PRODUCTS = {"mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv"}
"""Operators that multiply their last two arguments, matrices or vectors."""


@contextlib.contextmanager
def widen_floats(dtype: torch.dtype, *, unrounded: bool = False) -> Iterator[None]:
    """Replaces every floating-point dtype with the wider `dtype` (fp32 or fp64) inside the block.

    unrounded   also skip rounding to integers: `torch.round` and casts to int8 and uint8. A quantising function then
                returns the values before quantisation
    """
    import torch

    narrow = [*_list_fp8_dtypes(), torch.float16, torch.bfloat16, torch.float32]
    replaced = {each: dtype for each in narrow if each != dtype}
    if unrounded:
        replaced |= {torch.int8: dtype, torch.uint8: dtype}
    usual = torch.get_default_dtype()
    with _default_dtype(dtype), _width_mode(replaced, unrounded, usual):
        yield


class Noise:
    """Random errors of at most `step`, relative to a result or its terms; the same ones for the same `draw`.

    operators   number of operators whose results were changed
    sums        the sums in gradients of softmax, in their order
    """

    def __init__(self, step: float, draw: int = 0, earlier: Noise | None = None) -> None:
        self.step = step
        self.operators = 0
        self.sums: list[torch.Tensor] = []
        self._draw = draw
        self._earlier = earlier
        self._generators: dict[torch.device, torch.Generator] = {}

    def perturb(self, tensor: torch.Tensor, step: float, terms: torch.Tensor | None = None) -> torch.Tensor:
        """Returns an fp32 or fp64 tensor plus uniform noise: for each element within +-`step` times the element itself,
        or times that of `terms`."""
        import torch

        if tensor.device not in self._generators:
            self._generators[tensor.device] = torch.Generator(tensor.device).manual_seed(self._draw)
        generator = self._generators[tensor.device]
        # Elements are drawn within the bounds and added in one pass: this is a fifth of what a reference takes.
        noise = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        noise.uniform_(-step, step, generator=generator)
        return torch.addcmul(tensor, tensor if terms is None else terms, noise)

    def perturb_product(
        self, product: torch.Tensor, left: torch.Tensor, right: torch.Tensor, order: float
    ) -> torch.Tensor:
        """Returns `product` = `left` @ `right` with noise as if both factors were rounded. Terms of a sum that cancel
        add noise, too.

        order   error that the order of its sums may cause, relative to the product
        """
        moved = self.perturb(product, self.step + order, (left.square() @ right.square()).sqrt())
        return self.perturb(moved, order)

    def perturb_result(self, name: str, args: tuple[Any, ...], result: Any) -> Any:
        """Returns the perturbed result of the torch operator `name` called with `args`: a tensor, or a tuple or list of
        them. Values that are not fp32 or fp64 stay."""
        order = _order_step(name, args, result)
        if name in _PRODUCTS and _is_wide(result):
            return self.perturb_product(result, args[-2], args[-1], order)
        if isinstance(result, (tuple, list)):
            return type(result)([self.perturb(one, self.step + order) if _is_wide(one) else one for one in result])
        if not _is_wide(result):
            return result
        moved = self.perturb(result, self.step + order)
        exponent = _exponent_error(name, args, result)
        return moved if exponent is None else self.perturb(moved, 1.0, exponent)

    def softmax_gradient(self, gradient: torch.Tensor, weights: torch.Tensor, dim: int) -> torch.Tensor:
        """Returns weights * (gradient - sum(weights * gradient)) along `dim`, with the sum that the draw before this
        one computed, if there is one. Every flash attention takes that sum from its rounded result instead (Dao et al.,
        arXiv 2205.14135, appendix B). The error of that sum differs from that of the gradient, and does not cancel
        where one weight is nearly 1."""
        self.sums.append((weights * gradient).sum(dim, keepdim=True))
        place = len(self.sums) - 1
        others = self._earlier.sums if self._earlier is not None else []
        other = others[place] if place < len(others) else self.sums[place]
        return weights * (gradient - (other if other.shape == self.sums[place].shape else self.sums[place]))


@contextlib.contextmanager
def round_in_between(noise: Noise) -> Iterator[None]:
    """Changes the result of every operator inside the block at random, within the noise's step.

    Storing every intermediate result in a narrow type has the same effect, without its range. The change of the final
    result is the error that any honest algorithm of that precision may have. One plain computation does not show it: it
    may be lucky, or round once where a kernel rounds often (Monte Carlo arithmetic: D. S. Parker, UCLA CSD-970002,
    1997). Operators of the backward pass are rounded, too; those that only move, fill or choose elements are not.
    """
    with _attention_in_steps(), _noise_mode(noise):
        yield


SCORES_MOST = 2**27
"""Largest number of scores of an attention that is computed in steps: they take 1 GiB in fp64."""


def _attention_in_steps() -> Any:
    """Returns a torch mode in which scaled_dot_product_attention, up to SCORES_MOST scores, runs as separate products
    and softmax, so that noise can be added in between."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.overrides import TorchFunctionMode

    attention = torch.nn.functional.scaled_dot_product_attention

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            named = kwargs or {}
            if func is not attention:
                return func(*args, **named)
            q = args[0] if args else named["query"]
            k = args[1] if len(args) > 1 else named["key"]
            if q.shape[:-1].numel() * k.shape[-2] > SCORES_MOST:
                return func(*args, **named)
            with sdpa_kernel(SDPBackend.MATH):
                return func(*args, **named)

    return Mode()


def working_step(tensors: Tensors) -> float:
    """Returns half a rounding step (at 1) of the narrowest floating-point tensor, for fp32 two steps, as its fast
    instructions err by more. Returns 0 if none is f16, bf16 or fp32, or one is 8 bits wide."""
    return max(map(_step_of, find_narrowest(tensor.dtype for tensor in tensors)), default=0.0)


def find_narrowest(dtypes: Iterable[torch.dtype]) -> tuple[torch.dtype, ...]:
    """Returns, as a tuple of one, the least precise floating-point dtype, for which budgets are made; () if there is
    none, or one is narrower than 16 bits."""
    floats = tuple(dict.fromkeys(dtype for dtype in dtypes if dtype.is_floating_point))
    if not floats or any(dtype.itemsize < 2 for dtype in floats):
        return ()
    return (max(floats, key=_step_of),)


def _step_of(dtype: torch.dtype) -> float:
    import torch

    return {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-22}.get(dtype, 0.0)


def _list_fp8_dtypes() -> list[torch.dtype]:
    import torch

    names = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    return [getattr(torch, name) for name in names if hasattr(torch, name)]


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Sets torch's default dtype, e.g. of `torch.zeros(n)`, inside the block, and restores it."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _width_mode(replaced: dict[torch.dtype, torch.dtype], unrounded: bool, usual: torch.dtype) -> Any:
    """Returns a torch mode that replaces every dtype in `replaced` that a call names.

    usual   the default dtype outside: random numbers are drawn in the dtype that they have without the mode, because
            the same generator gives other numbers in another dtype
    """
    import torch
    from torch.overrides import TorchFunctionMode

    casts = {
        torch.Tensor.float: torch.float32,
        torch.Tensor.double: torch.float64,
        torch.Tensor.half: torch.float16,
        torch.Tensor.bfloat16: torch.bfloat16,
    }
    rounding = (torch.round, torch.Tensor.round) if unrounded else ()

    def replace_dtype(value: Any) -> Any:
        return replaced.get(value, value) if isinstance(value, torch.dtype) else value

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            if func in casts and args:
                return args[0].to(replace_dtype(casts[func]))
            if func in rounding:
                return args[0]
            if func is torch.Tensor.view and len(args) == 2 and args[1] in replaced and not args[0].is_floating_point():
                return func(*args).to(replaced[args[1]])  # the bits of a float, as packed scales are
            if func in (torch.rand, torch.randn):
                drawn = (kwargs or {}).get("dtype") or usual
                return func(*args, **{**(kwargs or {}), "dtype": drawn}).to(replace_dtype(drawn))
            named = {name: replace_dtype(value) for name, value in (kwargs or {}).items()}
            return func(*map(replace_dtype, args), **named)

    return Mode()


_EXACT = re.compile(
    "clone|_to_copy|copy|cat|stack|index.*|gather|where|masked_fill|constant_pad_nd|zeros.*|ones.*|full.*|empty.*|new_.*|"
    "arange|scalar_tensor|repeat.*|flip|roll|tri[lu]|sort|topk|a?max|a?min|max_dim|min_dim|neg|abs|relu|clamp.*|embedding|"
    "rand.*|normal.*|select_backward|slice_backward|threshold_backward|one_hot|maximum|minimum|sign|round|floor|ceil"
)
"""Operators whose results are never rounded: they move, fill or choose elements."""


def _is_wide(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.float64)


def _noise_mode(noise: Noise) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Returns whether torch's compiler is loaded. If not, torch would load it, which takes seconds, only to
            exclude this code from compilation."""
            return "torch._dynamo" in sys.modules

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            name = func._schema.name.partition("::")[2]
            if name == "_softmax_backward_data":
                result = noise.softmax_gradient(*args[:3])
            else:
                result = func(*args, **(kwargs or {}))
            aliases = any(returned.alias_info is not None for returned in func._schema.returns)
            if aliases or _EXACT.fullmatch(name):
                return result
            noise.operators += 1
            return noise.perturb_result(name, args, result)

    return Mode()  # type: ignore[no-untyped-call]


def _order_step(name: str, args: tuple[Any, ...], result: Any) -> float:
    """Returns the error that the order of summation may cause in a result of operator `name`, relative to its size; 0
    without a sum."""
    terms = _count_terms(name, args, result)
    return ORDER_STEP * math.sqrt(terms) if terms > 1 else 0.0


def _exponent_error(name: str, args: tuple[Any, ...], result: torch.Tensor) -> torch.Tensor | None:
    """Returns, for softmax or log_softmax, the absolute error of each result from rounding x and the maximum before
    exp; None for other operators."""
    if name not in ("_softmax", "_log_softmax"):
        return None
    scores: torch.Tensor = args[0]
    largest = scores.abs().nan_to_num(0.0, 0.0, 0.0).amax(args[1], keepdim=True)
    # A logarithm has the error of its exponent; for a weight, that is its relative error.
    return EXPONENT_STEP * largest * (1.0 if name == "_log_softmax" else result)


def _count_terms(name: str, args: tuple[Any, ...], result: Any) -> int:
    """Returns how many terms the operator `name` adds for one element of its result; 1 if it sums nothing or this is
    unknown."""
    import torch

    if not args or not isinstance(args[0], torch.Tensor) or not args[0].dim():
        return 1
    first = args[0]
    if name in _PRODUCTS:
        return int(args[-1].shape[-2] if args[-1].dim() > 1 else args[-1].shape[-1])
    if _ALONG.fullmatch(name):
        return int(first.shape[args[1]])
    if name == "native_layer_norm":
        return math.prod(args[1])
    if name == "convolution":
        return int(args[1][0].numel())
    if name.startswith("_scaled_dot_product"):
        return int(args[1].shape[-2])
    parts = [one for one in (result if isinstance(result, tuple) else (result,)) if isinstance(one, torch.Tensor)]
    least = min((one.numel() for one in parts if one.numel()), default=0)
    return first.numel() // least if least and (_SUMS.fullmatch(name) or "norm" in name) else 1
