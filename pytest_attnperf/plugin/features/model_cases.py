"""`--attnperf-model`: the workloads of a model's layers in place of those that tests are marked with.

What reads a model is imported where one is named: other sessions do without.
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
"""What the options are where they are not given; not their defaults, for workers are told what is given."""


@dataclass
class ModelCases:
    """The model of one run.

    tp          tensor-parallel ranks that its heads are shared out to; one of them is measured
    batches     sequences decoded at once
    lengths     tokens of prompts, and keys of sequences that are decoded, as asked for
    without     family -> why it has no workload, of the families that tests asked for
    """

    model: ModelConfig
    tp: int
    batches: Sequence[int]
    lengths: Sequence[int]
    without: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_options(cls, asked: RunConfig) -> ModelCases | None:
        """What the command line and the ini file ask for; None where they name no model.

        Raises UsageError for options that go with no model or not together, for numbers that are none, and, naming file
        and field, for a model that workloads cannot be made of.
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
        """The model's workloads of a family; where there are none, the reason is kept."""
        from pytest_attnperf.workloads.model_workloads import reason_no_workload, workloads_of

        found = workloads_of(self.model, family, self.tp, self.batches, self.lengths)
        if not found:
            self.without[family] = reason_no_workload(self.model, family)
        return found

    def describe_model(self) -> list[str]:
        """What is measured of which model, and a line for everything a reader must know of it."""
        held = self._make_sizes().lengths
        left_out = [str(length) for length in self.lengths if length not in held]
        positions = f"longer than max_position_embeddings={self.model.positions}, and left out: {', '.join(left_out)}"
        notes = [*self.model.notes, *([positions] if left_out else [])]
        return [f"attnperf: {self.model.describe(self.tp)}", *(f"attnperf: note: {note}" for note in notes)]

    def describe_left_out(self) -> list[str]:
        """A line for every family that tests asked for and the model has no workload of."""
        return [f"attnperf: no {family} of {self.model.file}: {reason}" for family, reason in self.without.items()]

    def _make_sizes(self) -> Sizes:
        from pytest_attnperf.workloads.model_workloads import Sizes

        return Sizes.from_config(self.model, self.tp, self.batches, self.lengths)


def _refuse_alone(asked: RunConfig) -> None:
    """Raise UsageError for an option of a model that was typed without one: it would have no effect."""
    if asked.is_worker:
        return  # a worker is given what the ini file says, too
    for name in options.OF_A_MODEL:
        if name in asked.typed:
            raise UsageError(f"{options.BY_NAME[name].flag} needs --attnperf-model: it says how a model is measured")


def _split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _parse_numbers(asked: RunConfig, name: str, unsaid: str, *, many: bool = True) -> tuple[int, ...]:
    """`512,4096` as numbers, each once. Raises UsageError naming the option and what is no number."""
    flag, text = options.BY_NAME[name].flag, asked.text(name) or unsaid
    texts = text.split(",") if many else [text]
    numbers = (int(parse_number(flag, word.strip(), minimum=1, integer=True)) for word in texts)
    return tuple(dict.fromkeys(numbers))
