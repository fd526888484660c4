"""Tuning of kernels that are configured from our data files: the candidates, and the rule that a winner changes.

A rule serves every problem that no rule before it takes. A tuner changes the one rule that serves its workloads, or
inserts a narrower one directly before it. `Configured` backends implement `Tunable` with the functions here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels import config_files
from kernels.configs import DEFAULT, FOLDER, ConfigRule, KernelConfigError, Problem, Space
from pytest_attnperf.errors import UsageError
from pytest_attnperf.tuning_records import Candidate, Constraint, TunedFile, TuningSpace, Value

if TYPE_CHECKING:
    from kernels.tuning_spaces.declared import Declared
    from pytest_attnperf.kernel_builds import KernelBuild
    from pytest_attnperf.workloads.base import Workload

When = Mapping[str, Value]

CANDIDATE = "a candidate of a tuning run"
"""Source and architecture in the record of a pinned candidate."""


@dataclass(frozen=True)
class RulePlace:
    """Where a winner's rule goes in a configuration file: in place of the rule that serves the workloads, or before it.

    listed    the architecture whose file has the rule today, or 'default'
    rules     all of its rules
    number    index of the rule that serves the workloads, from 0
    when      conditions of the winner's rule; the present rule's own if that rule is changed
    """

    listed: str
    rules: tuple[ConfigRule, ...]
    number: int
    when: When

    @property
    def rule(self) -> ConfigRule:
        """The rule that serves the workloads before tuning."""
        return self.rules[self.number]

    @property
    def is_narrower(self) -> bool:
        """Whether a new, narrower rule is inserted before today's rule; otherwise today's rule is changed."""
        return dict(self.when) != dict(self.rule.when)

    @property
    def description(self) -> str:
        """The place of the winner's rule in words, e.g. 'rule 4 of 10 (head_dim_max 256, element_bits 16) for sm_90'; a
        rule that is inserted is 'a new rule (...) before rule 4 ...'."""
        today = (
            f"rule {self.number + 1} of {len(self.rules)} "
            f"({config_files.format_conditions(self.rule.when)}) for {self.listed}"
        )
        return f"a new rule ({config_files.format_conditions(self.when)}) before {today}" if self.is_narrower else today


def declared_by_kernel() -> dict[str, Declared]:
    """Returns kernel name -> its declared tuning space, for all our kernels that can be tuned."""
    from kernels.tuning_spaces import decode, gemm, mla, prefill, rows, trans_v

    modules = (prefill, decode, gemm, rows, trans_v, mla)
    every: list[Declared] = [each for module in modules for each in module.DECLARED]
    return {each.space.kernel: each for each in every}


def declared_of(backend: str, spaces: Sequence[Space], kernel: str) -> Declared:
    """Returns the tuning space that a backend's kernel declares; for '' that of the first of `spaces` that has one.
    Raises UsageError for a kernel that the backend has not, or that cannot be tuned."""
    known = declared_by_kernel()
    names = [space.kernel for space in spaces]
    if kernel and kernel not in names:
        raise UsageError(f"{backend} has no kernel {kernel!r}; it has {', '.join(names)}")
    found = next((known[name] for name in ([kernel] if kernel else names) if name in known), None)
    if found is None or not any(found.space is space for space in spaces):
        raise UsageError(
            f"{backend}: {kernel or ', '.join(names)} declares no tuning space; tunable: {', '.join(sorted(known))}"
        )
    return found


def tuning_space(declared: Declared, workloads: Sequence[Workload], arch: str, when: When | None) -> TuningSpace:
    """Returns the values to try, today's configuration, the constraints, alternatives of the file that are not among
    these values, and the rule that serves all workloads, for `Tunable.tuning_space`. Raises UsageError as `place_of`
    does."""
    from kernels.tuning_spaces.target import Target

    target = Target(arch)
    place = place_of(declared, workloads, arch, when)
    values = declared.values(workloads, target)
    default: dict[str, Value] = {name: 0 for name in values if name in declared.space.further}
    default |= {**declared.space.defaults, **place.rule.config}
    names = [*values, *(name for name in default if name not in values)]
    constraints = tuple(spare_default(each, default) for each in declared.constraints(workloads, target))
    grid = {name: tuple(sorted({*values.get(name, ()), default[name]})) for name in names}
    further = (
        each
        for each in list_alternatives(declared, workloads, arch, default)
        if not all(value in grid.get(name, ()) for name, value in each.values.items())
        or not all(one.holds(each.values) for one in constraints)
    )
    return TuningSpace(
        kernel=declared.space.kernel,
        values=grid,
        default=Candidate(default),
        constraints=constraints,
        extra=tuple(further),
        serves=place.description,
        where=shown_path(declared.space, place.listed),
    )


def list_alternatives(
    declared: Declared, workloads: Sequence[Workload], arch: str, default: Mapping[str, Value]
) -> tuple[Candidate, ...]:
    """Returns the alternatives in the file of `arch` that have a rule for every one of the workloads, as candidates
    labelled by their names. Options of `default` that an alternative leaves out are 0, left to the compiler."""
    unsaid: dict[str, Value] = {name: 0 for name in default if name in declared.space.further}
    offered = [declared.space.find_alternatives(arch, problem_of(declared, each)) for each in workloads]
    return tuple(
        Candidate({**unsaid, **declared.space.defaults, **rule.config}, name)
        for name, rule in offered[0].items()
        if all(one.get(name) == rule for one in offered)
    )


def place_of(declared: Declared, workloads: Sequence[Workload], arch: str, when: When | None) -> RulePlace:
    """Returns where the winner's rule goes: the rule that serves all of these workloads, and its conditions narrowed by
    `when`.

    Raises UsageError if no rule or several rules do, if the file is malformed, and for a `when` that does not take
    every workload.
    """
    problems = {each.id: problem_of(declared, each) for each in workloads}
    if not problems:
        raise UsageError(f"{declared.space.kernel}: no workload was chosen; name one with --workload")
    try:
        rules = config_files.rules_of(declared.space, arch)
    except KernelConfigError as error:
        raise UsageError(str(error)) from error
    listed = declared.space.rules_arch(arch)
    served: dict[int | None, list[str]] = {}
    for name, problem in problems.items():
        served.setdefault(config_files.find_serving_rule(rules, problem), []).append(name)
    if None in served:
        raise UsageError(f"{shown_path(declared.space, listed)} has no rule for {', '.join(served[None])}; add one")
    numbers = sorted(number for number in served if number is not None)
    if len(numbers) > 1:
        told = "; ".join(
            f"rule {number + 1} ({config_files.format_conditions(rules[number].when)}) serves "
            f"{', '.join(served[number])}"
            for number in numbers
        )
        raise UsageError(
            f"these workloads are served by {len(numbers)} rules of {shown_path(declared.space, listed)}, and a tuner "
            f"changes one: {told}. Choose the workloads of one rule with --workload; --when narrows that rule where "
            "its workloads want different configurations"
        )
    rule = rules[numbers[0]]
    if when:
        _require_conditions(declared.space, when, problems)
    return RulePlace(listed, rules, numbers[0], config_files.narrow_conditions(rule, when or {}))


def has_same_rule(declared: Declared, workload: Workload, space: TuningSpace, arch: str, when: When | None) -> bool:
    """Returns whether the rule that a winner of `space` changes or adds serves `workload` too, for
    `Tunable.tuning_serves`. False for another family, and if no rule serves it."""
    if workload.family not in declared.families:
        return False
    try:
        place = place_of(declared, [workload], arch, None)
        narrow = config_files.narrow_conditions(place.rule, when or {})
    except UsageError:
        return False
    told = RulePlace(place.listed, place.rules, place.number, narrow).description
    return told == space.serves and ConfigRule(narrow, {}, CANDIDATE).is_for(problem_of(declared, workload))


def pin_candidate(candidate: Candidate, prefix: str) -> dict[str, str]:
    """Returns the candidate's values as entries of a stored `Prepared.config`, each name with `prefix` before it, for
    `Tunable.tuning_pin`."""
    held = {name: str(value) for name, value in candidate.values.items()}
    return {prefix + name: text for name, text in (held | {"config_source": CANDIDATE}).items()}


def make_builds(declared: Declared, candidate: Candidate, workload: Workload, arch: str) -> Sequence[KernelBuild]:
    """Returns what is compiled for the workload with the candidate's constants and options, for
    `Tunable.tuning_builds`; empty if that needs a GPU."""
    rule = ConfigRule(
        {}, {name: value for name, value in candidate.values.items() if isinstance(value, int)}, CANDIDATE
    )
    return declared.builds(workload, arch, rule)


def make_files(
    declared: Declared, winner: Candidate, workloads: Sequence[Workload], arch: str, source: str, when: When | None
) -> list[TunedFile]:
    """Returns a list of one file, `configs/<kernel>/<arch>.json`, complete, with the winner's rule changed or added,
    for `Tunable.tuned_files`. Writes nothing. Raises UsageError as `place_of` does."""
    space = declared.space
    place = place_of(declared, workloads, arch, when)
    new = ConfigRule(place.when, config_files.order_values(space, winner.values, place.rule), source)
    try:
        text = config_files.replace_rule(space, arch, place.number, new)
    except KernelConfigError as error:
        raise UsageError(str(error)) from error
    kept = len(place.rules) if place.is_narrower else len(place.rules) - 1
    change = f"1 rule added before rule {place.number + 1}" if place.is_narrower else f"rule {place.number + 1} changed"
    copied = " (copied from default.json)" if place.listed == DEFAULT and arch != DEFAULT else ""
    what = f"rules of {space.kernel} for {arch}{copied}: {change}, {kept} kept"
    return [TunedFile(f"configs/{space.kernel}/{arch}.json", text, what)]


def problem_of(declared: Declared, workload: Workload) -> Problem:
    """Returns the workload's properties, name -> value, by which a rule is chosen. Raises UsageError for a workload of
    a family that the kernel does not serve."""
    if workload.family not in declared.families:
        raise UsageError(
            f"{workload.id} is no workload of {declared.space.kernel}, which serves "
            f"{', '.join(sorted(declared.families))}; choose others with --workload"
        )
    return declared.problem(workload)


def shown_path(space: Space, listed: str) -> str:
    """Returns the path in the repository of the configuration file of `listed`, an architecture or 'default', e.g.
    'kernels/triton/configs/gemm/sm_90.json'; only its name if it is elsewhere."""
    path = space.config_path(listed)
    return path.relative_to(FOLDER.parents[2]).as_posix() if path.is_relative_to(FOLDER) else path.name


def _require_conditions(space: Space, when: When, problems: Mapping[str, Problem]) -> None:
    """Raises UsageError unless every condition in `when` is a property of the space, has its type, and is met by every
    problem. `problems` holds workload name -> problem."""
    for name, value in when.items():
        held = name.removesuffix("_max").removesuffix("_min")
        if held not in space.properties:
            raise UsageError(
                f"--when {name}: {space.kernel} knows {', '.join(space.properties)}, numbers also with _max and _min"
            )
        for workload, problem in problems.items():
            if type(value) is not type(problem[held]) or (held != name and type(value) is not int):
                raise UsageError(
                    f"--when {name} = {value!r} must be of the type of {problem[held]!r}, the {held} of {workload}; "
                    "only whole numbers take _max and _min"
                )
            if not ConfigRule({name: value}, {}, CANDIDATE).is_for(problem):
                raise UsageError(
                    f"--when {name} {value} excludes {workload}, whose {held} is {problem[held]}; a tuned rule "
                    "must serve every workload that it is tuned for"
                )


def spare_default(constraint: Constraint, default: Mapping[str, Value]) -> Constraint:
    """Returns the constraint, relaxed so that the values of `default`, today's configuration, always pass: it is
    measured like any other candidate."""
    return Constraint(constraint.why, lambda values: dict(values) == dict(default) or constraint.holds(values))
