"""Replays the configuration stored with a baseline instead of letting autotuners choose (--attnperf-pin-config).

The backend needs no change: the choice (see `autotuners.py`) is put where its autotuner stores its own. So nothing is
added between the timed call and its kernel. Nothing is written to a cache on disk.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import Around, Pinnable, replay_choice
from pytest_attnperf.measure.autotuners import (
    INDUCTOR,
    OPTIONS,
    PAD_KERNEL,
    PADDED,
    PADDING,
    PREFIX,
    TRITON,
    Use,
    format_config,
    format_inductor_config,
    inductor_use,
    padding_use,
    parse_config,
    parse_value,
    triton_use,
)
from pytest_attnperf.measure.patching import Patch, Patches

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Prepared, Tensors
    from pytest_attnperf.workloads.base import Workload

PINNED_KEY = "pinned"
"""Entry of a pinned case's configuration: what was replayed, and what could not be."""

AS_STORED = "as stored"
"""Its value if everything was replayed."""

NOTHING_TIMED_MS = (0.0, 0.0, 0.0)
"""Median and two quantiles for Triton's autotuner when it has only one configuration left."""


def pin_backend(backend: Backend, config: Mapping[str, str]) -> Backend:
    """Returns a backend that runs with the stored `config`: its own choice if it is Pinnable, and its autotuners'.

    Raises UsageError as `Pinnable.replay_config` does. If an autotuner cannot be pinned, the entry 'pinned' of the
    prepared configuration says so instead of an error.
    """
    return PinnedBackend(replay_choice(backend, config), dict(config), isinstance(backend, Pinnable))


@dataclass(frozen=True)
class PinnedBackend(Around):
    """A backend whose `prepare` runs under `pin_choices(config)`; all else is the backend's own.

    replayed    whether the backend itself applied the configuration
    """

    config: Mapping[str, str]
    replayed: bool = False

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """Prepares the backend with the stored choices; then calls it once if some of their kernels have not run yet.
        The entry 'pinned' of `Prepared.config` says what was replayed. Pinning ends when the result is freed."""
        with pin_choices(self.config) as pins:
            prepared = self.backend.prepare(workload, inputs)
            if pins.unmet_entries:
                prepared.run()
        # The autotuners belong to the whole process: the next case must not use these choices.
        weakref.finalize(prepared, pins.release).atexit = False
        prepared.config |= {**pins.decided_entries, PINNED_KEY: self._describe_pins(pins)}
        return prepared

    def _describe_pins(self, pins: Pins) -> str:
        if missed := pins.list_missed_choices():
            return f"not all that is stored: {'; '.join(missed)}"
        any_entry = any(name.startswith(PREFIX) for name in self.config)
        return AS_STORED if self.replayed or any_entry else "nothing: the stored configuration holds no choice"


class CannotPinError(Exception):
    """A kernel cannot use the stored configuration; the message says why."""


class Pins:
    """The stored choices to be replayed, and which of them were."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._stored = {name: text for name, text in config.items() if name.startswith(PREFIX)}
        self._met: set[str] = set()
        self._failed: dict[str, str] = {}
        self._undo: dict[int, Callable[[], None]] = {}
        self._only: list[Any] = []

    @property
    def unmet_entries(self) -> list[str]:
        """Sorted names of the stored 'autotuned.' entries whose kernel has not run yet."""
        return sorted(self._stored.keys() - self._met)

    @property
    def decided_entries(self) -> dict[str, str]:
        """Entry -> stored choice of padding for each product whose choice was replayed instead of decided."""
        return {name: self._stored[name] for name in sorted(self._met) if name.startswith(f"{PREFIX}{PAD_KERNEL}")}

    def has_choice_for(self, kernel: str) -> bool:
        """Tells whether any choice is stored for a kernel of this name."""
        return any(name == f"{PREFIX}{kernel}" or name.startswith(f"{PREFIX}{kernel}(") for name in self._stored)

    def list_missed_choices(self) -> list[str]:
        """Lists 'kernel: reason' for each stored choice that could not be replayed; empty if all were."""
        unmet = [f"{name.removeprefix(PREFIX)}: nothing of this name ran or was decided" for name in self.unmet_entries]
        return [*(f"{kernel}: {why}" for kernel, why in sorted(self._failed.items())), *unmet]

    def release(self) -> None:
        """Undoes the changes to the pinned autotuners, so that they choose for themselves again."""
        for undo in self._undo.values():
            undo()
        self._undo.clear()
        self._only.clear()

    def find_stored_choice(self, use: Use) -> str | None:
        """Returns the configuration stored for this use of a kernel and marks it as met; None if none is stored."""
        for name in use.entries:
            if name in self._stored:
                self._met.add(name)
                return self._stored[name]
        return None

    def forget_choices(self, autotuner: Any) -> None:
        """Clears a Triton autotuner's cache at its first call here, because an earlier case may have tuned it.
        It does nothing if no choice is stored for its kernel."""
        if id(autotuner) not in self._undo and self.has_choice_for(autotuner.base_fn.__name__):
            autotuner.cache.clear()
            self._undo[id(autotuner)] = autotuner.cache.clear

    def only_choice(self, autotuner: Any, kwargs: Mapping[str, Any], offered: list[Any]) -> list[Any]:
        """Returns only the stored configuration if there is one among the autotuner's, else all `offered` ones."""
        use = triton_use(autotuner, {**autotuner.nargs, **kwargs})
        wanted = self.find_stored_choice(use)
        if wanted is None:
            return offered
        for config in [*offered, *autotuner.configs]:
            if format_config(config) == wanted:
                self._only.append(config)
                return [config]
        self._failed[use.kernel] = f"'{wanted}' is stored, and its autotuner no longer offers it"
        return offered

    def is_only_choice(self, config: Any) -> bool:
        """Tells whether `only_choice` selected this configuration, so that Triton need not time it."""
        return any(config is known for known in self._only)

    def launch_stored(self, autotuner: Any) -> None:
        """Makes a kernel that Inductor wrote launch with its stored configuration only; acts once per kernel.
        An error becomes the kernel's reason in `list_missed_choices`."""
        if id(autotuner) in self._undo:
            return
        use = inductor_use(autotuner)
        wanted = self.find_stored_choice(use)
        if wanted is None:
            return
        try:
            if not autotuner.launchers:
                autotuner.precompile()
            before = list(autotuner.launchers)
            launcher = _find_launcher(autotuner, wanted)
            # Marks it as found by coordinate descent and by tuning combined kernels, so that neither tunes again.
            launcher.config.found_by_coordesc = launcher.config.found_by_combo_autotune = True
            _set_launchers(autotuner, [launcher])
            self._undo[id(autotuner)] = functools.partial(_set_launchers, autotuner, before)
        except Exception as error:  # CannotPinError, a failed compilation, internals of another version of torch
            why = str(error) if isinstance(error, CannotPinError) else f"{type(error).__name__}: {error}"
            self._failed[use.kernel] = why
            self._undo[id(autotuner)] = lambda: None


def _set_launchers(autotuner: Any, launchers: list[Any]) -> None:
    autotuner.launchers = launchers
    if hasattr(autotuner, "_cached_launcher"):  # torch 2.13: the launcher of its last call
        autotuner._cached_launcher = None


def _find_launcher(autotuner: Any, wanted: str) -> Any:
    """Returns a function that launches the kernel as `wanted`: one that Inductor compiled, else it compiles one.
    Raises CannotPinError as `_find_config` does."""
    for launcher in autotuner.launchers:
        if format_inductor_config(autotuner, launcher.config) == wanted:
            return launcher
    config = _find_config(autotuner, parse_config(wanted))
    if autotuner.fn.fn is None:  # it was compiled in another process, as Inductor does
        autotuner.fn = autotuner._reload_kernel().fn
    return autotuner._precompile_config(config).make_launcher()


def _find_config(autotuner: Any, wanted: Mapping[str, str]) -> Any:
    """Returns a copy of a kernel's first configuration with the stored values.
    Raises CannotPinError if it has other names, or if a stored value is a constant of its source and differs."""
    config = copy.deepcopy(autotuner.launchers[0].config)
    own = parse_config(format_inductor_config(autotuner, config))
    if own.keys() != wanted.keys():
        raise CannotPinError(f"its configuration now has {sorted(own)}, the stored one {sorted(wanted)}")
    for name, text in wanted.items():
        if name in config.kwargs:
            config.kwargs[name] = parse_value(text)
        if name in OPTIONS:
            setattr(config, name, parse_value(text))
        elif name not in config.kwargs and own[name] != text:
            raise CannotPinError(f"{name} is a constant of its source: {own[name]} here, {text} stored")
    return config


@contextlib.contextmanager
def pin_choices(config: Mapping[str, str]) -> Iterator[Pins]:
    """Makes kernels that run in this context use the choice of their 'autotuned.' entry in `config`, also afterwards.

    A kernel that is tuned for other sizes after the context ended chooses for itself. `Pins.list_missed_choices` lists
    what could not be replayed; `Pins.release` ends the pinning. Without such an entry nothing happens.
    """
    pins = Pins(config)
    patches = [
        Patch(*TRITON, "run", functools.partial(_pinning_run, pins)),
        Patch(*TRITON, "prune_configs", functools.partial(_pinning_prune, pins)),
        Patch(*TRITON, "_bench", functools.partial(_pinning_bench, pins)),
        Patch(*INDUCTOR, "run", functools.partial(_pinning_inductor, pins)),
        Patch(*PADDING, "_should_pad", functools.partial(_pinning_padding, pins)),
    ]
    with contextlib.ExitStack() as stack:
        if pins.unmet_entries:
            stack.enter_context(Patches(patches))
        if pins.has_choice_for(PAD_KERNEL):
            stack.enter_context(_traced_anew())
        yield pins


def _traced_anew() -> contextlib.AbstractContextManager[None]:
    """Returns a context without AOTAutograd's cache: cached graphs keep their padding, pinned or not."""
    settings: Any = importlib.import_module("torch._functorch.config")
    patched: contextlib.AbstractContextManager[None] = settings.patch(enable_autograd_cache=False)
    return patched


def _pinning_run(pins: Pins, previous: Callable[..., Any]) -> Callable[..., Any]:
    def run(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
        pins.forget_choices(autotuner)
        return previous(autotuner, *args, **kwargs)

    return run


def _pinning_prune(pins: Pins, previous: Callable[..., Any]) -> Callable[..., Any]:
    def prune_configs(autotuner: Any, kwargs: dict[str, Any]) -> Any:
        return pins.only_choice(autotuner, kwargs, previous(autotuner, kwargs))

    return prune_configs


def _pinning_bench(pins: Pins, previous: Callable[..., Any]) -> Callable[..., Any]:
    def bench(autotuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
        if pins.is_only_choice(config):
            return list(NOTHING_TIMED_MS)
        return previous(autotuner, *args, config=config, **meta)

    return bench


def _pinning_inductor(pins: Pins, previous: Callable[..., Any]) -> Callable[..., Any]:
    def run(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
        pins.launch_stored(autotuner)
        return previous(autotuner, *args, **kwargs)

    return run


def _pinning_padding(pins: Pins, previous: Callable[..., Any]) -> Callable[..., Any]:
    def should_pad(match: Any, left: Any, right: Any, operator: Any, *further: Any, **named: Any) -> Any:
        stored = pins.find_stored_choice(padding_use(left, right, operator))
        return previous(match, left, right, operator, *further, **named) if stored is None else stored == PADDED

    return should_pad
