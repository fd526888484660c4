"""Runs the autotuned backend over transposed values as the harness does, for the interpreting process: once free, once
pinned to the last of its configurations."""

from __future__ import annotations

from typing import Any

from kernels.triton.trans_v.autotuned import autotuned_kernel
from kernels.triton.trans_v.backend import BACKENDS, list_configs
from pytest_attnperf.measure.autotuners import format_config, record_choices
from pytest_attnperf.measure.interpreting import start_interpreting, stop_interpreting
from pytest_attnperf.measure.pinned_backend import pin_backend
from pytest_attnperf.workloads.families import parse_workload


def found(case: str) -> dict[str, Any]:
    """Outputs and recorded choices of both runs, and the text of the last configuration."""
    workload = parse_workload(case)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    configs = tuple(tuple(each.items()) for each in list_configs(workload, "interpreter"))
    last = format_config(autotuned_kernel(configs, workload.batch).configs[-1])
    start_interpreting()
    try:
        prepared = BACKENDS[2].prepare(workload, inputs)
        with record_choices() as chosen:
            outputs = _copies(prepared.outputs(prepared.run()))
        pinned = pin_backend(BACKENDS[2], {"autotuned.trans_v_kernel": last}).prepare(workload, inputs)
        with record_choices() as replayed:
            pinned_outputs = _copies(pinned.outputs(pinned.run()))
    finally:
        stop_interpreting()
    return {
        "outputs": outputs,
        "config": prepared.config,
        "chosen": chosen.build_config_entries(),
        "last": last,
        "pinned_outputs": pinned_outputs,
        "pinned": replayed.build_config_entries(),
        "said_of_pinning": pinned.config["pinned"],
    }


def _copies(outputs: Any) -> Any:
    return {name: tensor.clone() for name, tensor in outputs.items()}
