"""Reads what Triton's and Inductor's autotuners tuned and chose, as entries of a case's configuration.

The names and attributes were read from Triton 3.2 to 3.9 (runtime/autotuner.py) and torch 2.11 to 2.13
(_inductor/runtime/triton_heuristics.py, _inductor/fx_passes/pad_mm.py). All of them are internal, so callers must
expect missing attributes. The entries are stored with a baseline, compared, and replayed by `pinned_backend.py`.

An autotuner picks what was fastest in a few milliseconds of timing. Two machines, or two runs, may pick differently:
the time then changes without a change of code. `triton.autotune` keeps its choice in the process, Inductor in a cache
folder of the machine.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_attnperf.measure.patching import Patch, Patches

PREFIX = "autotuned."
"""Start of the name of an autotuned kernel's configuration entry, e.g. 'autotuned.flash_forward'."""

TRITON = ("triton.runtime.autotuner", "Autotuner")
INDUCTOR = ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner")
PADDING = ("torch._inductor.fx_passes.pad_mm", "")
"""Module and class of each; a function of its module decides about padding."""

PAD_KERNEL = "pad_mm"
PADDED, NOT_PADDED = "padded", "not padded"

OPTIONS = {
    "num_warps": None,
    "num_stages": None,
    "num_ctas": 1,
    "maxnreg": None,
    "ir_override": None,
    "num_buffers_warp_spec": 0,
    "num_consumer_groups": 0,
    "reg_dec_producer": 0,
    "reg_inc_consumer": 0,
}
"""Options of a triton.Config beside its keyword arguments -> the value that is left out; they differ by version."""

CHOSEN_CONSTANTS = ("BLOCK_", "SPLIT_", "GROUP_", "SPARSE_", "USE_TMA", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
"""Prefixes of those constants of an Inductor template that say how it computes; the others say what it computes."""

_CONSTANT = re.compile(r"^\s*(\w+)\s*:\s*tl\.constexpr\s*=\s*(\w+)\s*$", re.MULTILINE)
"""A constant in a kernel's source; older torch releases do not list a template's constants separately."""


@dataclass(frozen=True)
class Use:
    """What was tuned: the kernel's name, and where it was used, which distinguishes several choices for one name."""

    kernel: str
    where: str

    @property
    def entries(self) -> tuple[str, str]:
        """Names under which the chosen config may be stored: 'autotuned.<kernel>(<where>)', 'autotuned.<kernel>'."""
        return f"{PREFIX}{self.kernel}({self.where})", f"{PREFIX}{self.kernel}"


def format_config(config: Any) -> str:
    """Formats a triton.Config as 'BLOCK_M: 64, num_warps: 4, num_stages: 3', equally for all versions of Triton."""
    values = {name: value for name, value in config.kwargs.items() if name not in OPTIONS}
    for name, unsaid in OPTIONS.items():
        value = getattr(config, name, None)
        if value is not None and value != unsaid:
            values[name] = value
    return _format_values(values)


def parse_config(text: str) -> dict[str, str]:
    """Splits a text of `format_config` into names and values, e.g. {'BLOCK_M': '64', 'num_warps': '4'}."""
    pairs = (part.partition(": ") for part in text.split(", "))
    return {name: value for name, colon, value in pairs if colon}


def parse_value(text: str) -> Any:
    """Converts '64' to 64 and 'True' to True; returns any other word unchanged."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def triton_use(autotuner: Any, arguments: Mapping[str, Any]) -> Use:
    """Describes a use of a triton.autotune'd kernel by its tuning keys and its tensors' dtypes, as Triton's own key.

    `arguments` are the call's arguments by name.
    """
    own = {name: arguments[name] for name in autotuner.arg_names if name in arguments}
    keys = [f"{name}={own[name]}" for name in autotuner.keys if name in own]
    dtypes = [str(value.dtype).removeprefix("torch.") for value in own.values() if hasattr(value, "dtype")]
    function = autotuner.base_fn
    return Use(function.__name__, ", ".join([function.__module__, *keys, "/".join(dtypes)]))


def inductor_use(autotuner: Any) -> Use:
    """Describes a use of a kernel that Inductor wrote by its name and the first 12 digits of its source's hash."""
    name = autotuner.inductor_meta.get("kernel_name") or autotuner.fn.__name__
    return Use(str(name), str(autotuner.kernel_hash)[:12])


def format_inductor_config(autotuner: Any, config: Any) -> str:
    """Formats an Inductor kernel's `config` as `format_config` does.
    A template's kernel gets its block sizes in front, which its source holds as constants."""
    constants = autotuner.inductor_meta.get("config_args") or dict(_CONSTANT.findall(getattr(autotuner.fn, "src", "")))
    names = [name for name in sorted(constants) if name.startswith(CHOSEN_CONSTANTS) and name not in config.kwargs]
    chosen = {name: constants[name] for name in names}
    texts = (_format_values(chosen), format_config(config))
    return ", ".join(text for text in texts if text)


def padding_use(left: Any, right: Any, operator: Any) -> Use:
    """Describes a matrix product that Inductor may pad to aligned sizes if it measures that this is faster."""
    dtype = str(left.dtype).removeprefix("torch.")
    return Use(PAD_KERNEL, f"{operator} {dtype} {_format_shape(left.shape)} by {_format_shape(right.shape)}")


def _format_shape(sizes: Sequence[Any]) -> str:
    return "x".join(str(size) for size in sizes)


def _format_values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())


UNKNOWN_KEY = "autotuned"


class TunedChoices:
    """The configurations that autotuned kernels ran with during `record_choices`, the last one of each use."""

    def __init__(self) -> None:
        self._choices: dict[str, dict[str, tuple[Use, str]]] = {}
        self._unknown = ""

    def build_config_entries(self) -> dict[str, str]:
        """Returns {'autotuned.<kernel>': 'BLOCK_M: 64, num_warps: 4'}, in alphabetical order.

        A kernel tuned several times in a call with different results has one entry per use,
        'autotuned.<kernel>(<where>)'. The entry 'autotuned' says why a choice could not be read.
        """
        entries = {UNKNOWN_KEY: f"unknown: {self._unknown}"} if self._unknown else {}
        for uses in self._choices.values():
            several = len({text for _, text in uses.values()}) > 1
            for use, text in uses.values():
                exact, plain = use.entries
                entries[exact if several else plain] = text
        return dict(sorted(entries.items()))

    def record_choice(self, read: Callable[[], tuple[Use, str] | None]) -> None:
        """Stores the (use, configuration) that `read` returns; nothing if it returns None.
        If it raises, the error is stored as the reason for an unknown choice, because recording must fail no case."""
        try:
            found = read()
        except Exception as error:  # internals of another version of Triton or torch
            self._unknown = f"{type(error).__name__}: {error}"
            return
        if found is not None:
            use, text = found
            self._choices.setdefault(use.kernel, {})[use.where] = (use, text)


@contextlib.contextmanager
def record_choices() -> Iterator[TunedChoices]:
    """Records the configurations of autotuned kernels until the context ends; imports nothing and changes no choice.

    It sees kernels of `triton.autotune` with more than one configuration, kernels that Inductor wrote (torch.compile,
    FlexAttention), and whether Inductor pads a matrix product if it measures that. Padding is seen only in a process
    that traces the graph: a whole graph from AOTAutograd's cache needs no decision.
    """
    chosen = TunedChoices()
    patches = [
        Patch(*TRITON, "run", functools.partial(_recording_triton, chosen)),
        Patch(*INDUCTOR, "run", functools.partial(_recording_inductor, chosen)),
        Patch(*PADDING, "_should_pad", functools.partial(_recording_padding, chosen)),
    ]
    with Patches(patches):
        yield chosen


def _recording_triton(chosen: TunedChoices, previous: Callable[..., Any]) -> Callable[..., Any]:
    def run(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
        result = previous(autotuner, *args, **kwargs)
        chosen.record_choice(lambda: _triton_choice(autotuner, args, kwargs))
        return result

    return run


def _triton_choice(autotuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Use, str] | None:
    if len(autotuner.configs) < 2:
        return None
    arguments = {**dict(zip(autotuner.arg_names, args, strict=False)), **kwargs}
    return triton_use(autotuner, arguments), format_config(autotuner.best_config)


def _recording_inductor(chosen: TunedChoices, previous: Callable[..., Any]) -> Callable[..., Any]:
    def run(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
        result = previous(autotuner, *args, **kwargs)
        chosen.record_choice(
            lambda: (inductor_use(autotuner), format_inductor_config(autotuner, autotuner.launchers[0].config))
        )
        return result

    return run


def _recording_padding(chosen: TunedChoices, previous: Callable[..., Any]) -> Callable[..., Any]:
    def should_pad(match: Any, left: Any, right: Any, operator: Any, *further: Any, **named: Any) -> Any:
        result = previous(match, left, right, operator, *further, **named)
        chosen.record_choice(lambda: (padding_use(left, right, operator), PADDED if result else NOT_PADDED))
        return result

    return should_pad
