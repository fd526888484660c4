"""`--attnperf-model`: runs the workloads of a model's attention layers instead of those of the tests.

The module that reads models is imported only if a model is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import RunConfig, parse_number

if TYPE_CHECKING:
    from pytest_attnperf.workloads.base import Workload
    from pytest_attnperf.workloads.model_config import ModelConfig
    from pytest_attnperf.workloads.model_workloads import Sizes

TP, BATCHES, LENGTHS = "1", "1,16", "512,4096"
"""Values of options that are not given. They are not the options' defaults: workers get only given options."""


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

        Raises UsageError for options of a model without one, for contradicting options, for invalid numbers, and, with
        file and field, for a model that cannot be measured.
        """
        if not asked.model:
            _refuse_alone(asked)
            return None
        if asked.workload:
            raise UsageError("--attnperf-model and --attnperf-workload both replace the workloads of tests; drop one")
        if asked.update_baselines:
            raise UsageError(
                "--update-baselines with --attnperf-model: workloads given on the command line are never stored; "
                "add them to the suite's list first"
            )
        from pytest_attnperf.workloads.model_config import ModelConfig

        model = ModelConfig.read(asked.model, _split_names(asked.model_ignore))
        (tp,) = _parse_numbers(asked, "tp", TP, many=False)
        cases = cls(
            model, tp, _parse_numbers(asked, "model-batch", BATCHES), _parse_numbers(asked, "model-seq", LENGTHS)
        )
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


def _refuse_alone(asked: RunConfig) -> None:
    """Raises UsageError if an option of a model is typed without --attnperf-model."""
    if asked.is_worker:
        return  # a worker gets options of the ini file as typed ones
    for name in options.OF_A_MODEL:
        if name in asked.typed:
            raise UsageError(f"{options.BY_NAME[name].flag} needs --attnperf-model: it is a setting of the model")


def _split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _parse_numbers(asked: RunConfig, name: str, unsaid: str, *, many: bool = True) -> tuple[int, ...]:
    """Returns the numbers of an option, '512,4096' -> (512, 4096), each once; an option that is not given counts as the
    text `unsaid`. Raises UsageError with the option and the invalid word."""
    flag, text = options.BY_NAME[name].flag, asked.text(name) or unsaid
    texts = text.split(",") if many else [text]
    numbers = (int(parse_number(flag, word.strip(), minimum=1, integer=True)) for word in texts)
    return tuple(dict.fromkeys(numbers))
