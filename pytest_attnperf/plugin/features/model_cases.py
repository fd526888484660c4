"""`--attnperf-model`: runs the workloads of a model's attention layers instead of those of the tests.

The module that reads models is imported only if a model is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.config import RunConfig, parse_number

if TYPE_CHECKING:
    from pytest_attnperf.workloads.base import Workload
    from pytest_attnperf.workloads.model_config import ModelConfig
    from pytest_attnperf.workloads.model_workloads import Sizes

FLAG = "--attnperf-model"
TP, BATCHES, LENGTHS = (1,), (1, 16), (512, 4096)
"""Values of fields that are not given."""

FIELDS = ("tp", "batch", "seq", "ignore")
"""Fields behind the file, each as ',NAME=VALUE'; several values of one are separated by ':'."""


@dataclass(frozen=True)
class ModelOption:
    """The parsed value of `--attnperf-model`: FILE[,tp=8][,batch=1:16][,seq=512:4096][,ignore=FIELD:FIELD]."""

    file: str
    tp: int
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    ignored: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> ModelOption:
        """Parses the option's value. The longest part, up to a comma or the end, that names an existing file is the
        file, so that its name may have commas and '='. Raises UsageError for an unknown or repeated field, and for a
        value that is none of it."""
        file, parts = _split_file(text)
        given: dict[str, list[str]] = {}
        for part in parts:
            name, equals, value = (word.strip() for word in part.partition("="))
            if not equals or name not in FIELDS or name in given:
                why = f"has {name} twice" if name in given else f"has no field {part.strip()!r}"
                raise UsageError(
                    f"{FLAG}={text!r} {why}; allowed: FILE,tp=8,batch=1:16,seq=512:4096,ignore=FIELD:FIELD"
                )
            given[name] = [value] if name == "tp" else [word.strip() for word in value.split(":")]
        numbers = {name: _parse_numbers(name, given[name]) for name in ("tp", "batch", "seq") if name in given}
        (tp,) = numbers.get("tp", TP)
        ignored = tuple(filter(None, given.get("ignore", [])))
        return cls(file, tp, numbers.get("batch", BATCHES), numbers.get("seq", LENGTHS), ignored)


def _split_file(text: str) -> tuple[str, list[str]]:
    """Returns the file and the fields behind it. If no part names a file, the fields begin at the first known one."""
    parts = text.split(",")
    starts = [",".join(parts[:count]) for count in range(len(parts), 0, -1)]
    file = next((start for start in starts if Path(start).is_file()), None)
    if file is None:
        first = next(
            (at for at, part in enumerate(parts[1:], 1) if part.partition("=")[0].strip() in FIELDS), len(parts)
        )
        file = ",".join(parts[:first])
    rest = text[len(file) + 1 :]
    return file, rest.split(",") if rest else []


def _parse_numbers(name: str, words: list[str]) -> tuple[int, ...]:
    """Returns the numbers of a field, each once. Raises UsageError with the field and the invalid word."""
    numbers = (int(parse_number(f"{FLAG}: {name}", word, minimum=1, integer=True)) for word in words)
    return tuple(dict.fromkeys(numbers))


@dataclass
class ModelCases:
    """The model of one run, and the sizes of its workloads.

    tp          number of tensor-parallel ranks that share its heads; one of them is measured
    batches     numbers of sequences decoded at once
    lengths     tokens per prompt, and keys per decoded sequence, as given
    without     family that tests asked for -> why the model has no workload of it
    """

    model: ModelConfig
    tp: int
    batches: Sequence[int]
    lengths: Sequence[int]
    without: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_options(cls, asked: RunConfig) -> ModelCases | None:
        """Reads the model file of --attnperf-model, and the sizes to measure; None without that option.

        Raises UsageError for contradicting options, for invalid fields, and, with file and field, for a model that
        cannot be measured.
        """
        if not asked.model:
            return None
        if asked.workload:
            raise UsageError("--attnperf-model and --attnperf-workload both replace the workloads of tests; drop one")
        if asked.update_baselines:
            raise UsageError(
                "--update-baselines with --attnperf-model: workloads given on the command line are never stored; "
                "add them to the suite's list first"
            )
        from pytest_attnperf.workloads.model_config import ModelConfig

        option = ModelOption.parse(asked.model)
        model = ModelConfig.read(option.file, option.ignored)
        cases = cls(model, option.tp, option.batches, option.lengths)
        cases._make_sizes()
        return cases

    def list_workloads(self, family: str) -> list[Workload]:
        """Returns the model's workloads of a family; if there are none, stores the reason in `without[family]`."""
        from pytest_attnperf.workloads.model_workloads import reason_no_workload, workloads_of

        found = workloads_of(self.model, family, self.tp, self.batches, self.lengths)
        if not found:
            self.without[family] = reason_no_workload(self.model, family)
        return found

    def describe_model(self) -> list[str]:
        """Returns a line on the model, and one for each part that is not measured and for lengths that are left out."""
        held = self._make_sizes().lengths
        left_out = [str(length) for length in self.lengths if length not in held]
        positions = f"longer than max_position_embeddings={self.model.positions}, and left out: {', '.join(left_out)}"
        notes = [*self.model.notes, *([positions] if left_out else [])]
        return [f"attnperf: {self.model.describe(self.tp)}", *(f"attnperf: note: {note}" for note in notes)]

    def describe_left_out(self) -> list[str]:
        """Returns a line for every family of the tests of which the model has no workload."""
        return [f"attnperf: no {family} of {self.model.file}: {reason}" for family, reason in self.without.items()]

    def _make_sizes(self) -> Sizes:
        from pytest_attnperf.workloads.model_workloads import Sizes

        return Sizes.from_config(self.model, self.tp, self.batches, self.lengths)
