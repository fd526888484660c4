from __future__ import annotations

from typing import Any

import pytest

from pytest_attnperf.tools.doctor import variables
from pytest_attnperf.tools.doctor.probes import Status


@pytest.mark.parametrize("rule", variables.RULES, ids=lambda rule: rule.name)
def test_each_variable_is_found_where_it_matters(make_here: Any, rule: variables.VariableRule) -> None:
    """Set so that it matters, each variable is a line with what it means and how to unset it; otherwise it is none."""
    value = "0" if rule.applies is variables.is_off else "1"
    (finding,) = variables.probe(make_here("amd", environ={rule.name: value}))
    assert (finding.name, finding.status, finding.value) == (rule.name, rule.status, f"={value}")
    assert finding.fix == f"unset {rule.name}"
    for harmless in ({}, {rule.name: "1" if value == "0" else ""}):
        (finding,) = variables.probe(make_here("amd", environ=harmless))
        assert (finding.name, finding.status) == ("environment variables", Status.OK)


def test_variables_of_gpus_are_notes_without_one(make_here: Any) -> None:
    """What makes every launch wait is a problem on a GPU, and a note where there is none."""
    environ = {"HIP_LAUNCH_BLOCKING": "1", "AMD_SERIALIZE_KERNEL": "3"}
    with_gpu = variables.probe(make_here("amd", environ=environ))
    without = variables.probe(make_here(environ=environ))
    assert [finding.status for finding in with_gpu] == [Status.PROBLEM] * 2
    assert [finding.status for finding in without] == [Status.NOTE] * 2


@pytest.mark.parametrize(
    ("has_gpu", "vendor", "environ", "is_problem"),
    [
        (False, "amd", {"HIP_VISIBLE_DEVICES": ""}, True),
        (False, "nvidia", {"CUDA_VISIBLE_DEVICES": "-1"}, True),
        (True, "nvidia", {"CUDA_VISIBLE_DEVICES": "0"}, False),
        (False, "", {"CUDA_VISIBLE_DEVICES": ""}, False),
        (False, "amd", {}, False),
    ],
)
def test_hidden_gpus_are_a_problem(
    make_here: Any, has_gpu: bool, vendor: str, environ: dict[str, str], is_problem: bool
) -> None:
    """A GPU whose driver is there, and that a variable hides, is a problem that names the variable."""
    found = variables.probe(make_here(vendor, has_gpu=has_gpu, environ=environ))
    assert [finding.name for finding in found] == ["hidden GPUs" if is_problem else "environment variables"]
    assert not is_problem or found[0].fix == f"unset {next(iter(environ))}"


def test_only_names_on_the_list_are_shown() -> None:
    """Variables that cannot change what is measured stay out of the report and of the bundle."""
    environ = {"HIP_X": "1", "TORCH_Y": "2", "AWS_SECRET": "s", "HOME": "/h", "MAX_JOBS": "4", "SSH_AUTH_SOCK": "/x"}
    assert variables.list_relevant_variables(environ) == {"HIP_X": "1", "MAX_JOBS": "4", "TORCH_Y": "2"}
