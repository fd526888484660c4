"""What Triton's and Inductor's autotuners look like from outside: their names, what they tune, and what they chose.

Read from Triton 3.2 to 3.9 (runtime/autotuner.py) and torch 2.11 to 2.13 (_inductor/runtime/triton_heuristics.py,
_inductor/fx_passes/pad_mm.py). All of it is internal to them: callers must expect attributes to be missing.

What autotuners chose for a case, as entries of its configuration: stored with a baseline, compared, and replayed.

An autotuner picks what was fastest in a few milliseconds of timing, so two machines, or two runs, may pick otherwise:
the time then changes without any change of code. `triton.autotune` keeps its choice in the process, Inductor in a cache
folder of the machine. `pinned_backend.py` replays what this file records.
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
"""Begins the configuration entry of one autotuned kernel, e.g. 'autotuned.flash_forward'."""

TRITON = ("triton.runtime.autotuner", "Autotuner")
INDUCTOR = ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner")
PADDING = ("torch._inductor.fx_passes.pad_mm", "")
"""Module and class of each; padding is decided by a function of its module."""

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
"""Options of a triton.Config beside its keyword arguments -> the value that goes unsaid; versions differ in them."""

CHOSEN_CONSTANTS = ("BLOCK_", "SPLIT_", "GROUP_", "SPARSE_", "USE_TMA", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
"""How the constants of an Inductor template begin that say how it computes; the others say what."""

_CONSTANT = re.compile(r"^\s*(\w+)\s*:\s*tl\.constexpr\s*=\s*(\w+)\s*$", re.MULTILINE)
"""A constant in a kernel's source; older releases of torch do not list a template's constants beside it."""


@dataclass(frozen=True)
class Use:
    """What was tuned: a kernel by name, and where it was used, which tells apart several choices for one name."""

    kernel: str
    where: str

    @property
    def entries(self) -> tuple[str, str]:
        """Names of the configuration entries that may hold its choice, the more exact one first."""
        return f"{PREFIX}{self.kernel}({self.where})", f"{PREFIX}{self.kernel}"


def format_config(config: Any) -> str:
    """A triton.Config as 'BLOCK_M: 64, num_warps: 4, num_stages: 3', in one wording for all versions of Triton."""
    values = {name: value for name, value in config.kwargs.items() if name not in OPTIONS}
    for name, unsaid in OPTIONS.items():
        value = getattr(config, name, None)
        if value is not None and value != unsaid:
            values[name] = value
    return _format_values(values)


def parse_config(text: str) -> dict[str, str]:
    """The parts of such a text, e.g. {'BLOCK_M': '64', 'num_warps': '4'}."""
    pairs = (part.partition(": ") for part in text.split(", "))
    return {name: value for name, colon, value in pairs if colon}


def parse_value(text: str) -> Any:
    """'64' -> 64, 'True' -> True, and any other word as it is."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def triton_use(autotuner: Any, arguments: Mapping[str, Any]) -> Use:
    """A use of a triton.autotune'd kernel: the values of its tuning keys and its tensors' dtypes, as Triton's own key.

    `arguments` are those of the call, by name.
    """
    own = {name: arguments[name] for name in autotuner.arg_names if name in arguments}
    keys = [f"{name}={own[name]}" for name in autotuner.keys if name in own]
    dtypes = [str(value.dtype).removeprefix("torch.") for value in own.values() if hasattr(value, "dtype")]
    function = autotuner.base_fn
    return Use(function.__name__, ", ".join([function.__module__, *keys, "/".join(dtypes)]))


def inductor_use(autotuner: Any) -> Use:
    """A use of a kernel that Inductor wrote: the hash of its source tells apart two of one name."""
    name = autotuner.inductor_meta.get("kernel_name") or autotuner.fn.__name__
    return Use(str(name), str(autotuner.kernel_hash)[:12])


def format_inductor_config(autotuner: Any, config: Any) -> str:
    """The configuration of one launcher; for a template, whose block sizes are constants in its source, these too."""
    constants = autotuner.inductor_meta.get("config_args") or dict(_CONSTANT.findall(getattr(autotuner.fn, "src", "")))
    names = [name for name in sorted(constants) if name.startswith(CHOSEN_CONSTANTS) and name not in config.kwargs]
    chosen = {name: constants[name] for name in names}
    texts = (_format_values(chosen), format_config(config))
    return ", ".join(text for text in texts if text)


def padding_use(left: Any, right: Any, operator: Any) -> Use:
    """A matrix product that Inductor may pad to aligned sizes, where it measures whether that is faster."""
    dtype = str(left.dtype).removeprefix("torch.")
    return Use(PAD_KERNEL, f"{operator} {dtype} {_format_shape(left.shape)} by {_format_shape(right.shape)}")


def _format_shape(sizes: Sequence[Any]) -> str:
    return "x".join(str(size) for size in sizes)


def _format_values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())


UNKNOWN_KEY = "autotuned"


class TunedChoices:
    """Choices seen while recording, the last one of each use."""

    def __init__(self) -> None:
        self._choices: dict[str, dict[str, tuple[Use, str]]] = {}
        self._unknown = ""

    def build_config_entries(self) -> dict[str, str]:
        """{'autotuned.<kernel>': 'BLOCK_M: 64, num_warps: 4'}, in alphabetical order.

        Where one kernel was tuned several times in a call with different results, each use has an entry of its own,
        'autotuned.<kernel>(<where>)'. 'autotuned' says why a choice could not be read, if one could not.
        """
        entries = {UNKNOWN_KEY: f"unknown: {self._unknown}"} if self._unknown else {}
        for uses in self._choices.values():
            several = len({text for _, text in uses.values()}) > 1
            for use, text in uses.values():
                exact, plain = use.entries
                entries[exact if several else plain] = text
        return dict(sorted(entries.items()))

    def record_choice(self, read: Callable[[], tuple[Use, str] | None]) -> None:
        """Keep what `read` gives. What it raises is kept as the reason for an unknown choice: a case must not fail."""
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
    """Record what autotuned kernels run with until the context ends; nothing is imported, and nothing is changed.

    Seen are kernels of `triton.autotune` with more than one configuration, kernels that Inductor wrote (torch.compile,
    FlexAttention), and whether Inductor pads a matrix product where it measures that. The last is seen only in a
    process that traces the graph: where AOTAutograd's cache has the whole graph, nobody decides.
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
