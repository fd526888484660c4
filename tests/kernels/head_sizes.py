"""Every backend of attention at every head dimension of the suite: what is found of it, here or in many processes."""

from __future__ import annotations

import functools
import multiprocessing
import os
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import kernels
from pytest_attnperf.backends import Registry
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import parse_workload
from suites import head_size_workloads as sizes

FAMILIES: dict[str, Sequence[Workload]] = {
    "prefill": sizes.PREFILL,
    "varlen": sizes.VARLEN,
    "mixed": sizes.MIXED,
    "decode": [*sizes.DECODE, *sizes.DECODE_PAGED],
    "backward": sizes.BACKWARD,
    "varlen_backward": sizes.VARLEN_BACKWARD,
    "qk_scores": sizes.QK_SCORES,
    "weighted_values": sizes.WEIGHTED_VALUES,
    "rope": sizes.ROPE,
    "mla": sizes.MLA,
}
"""Op family -> its workloads. Layers are left out: their attention is that of these."""

COMPILED = ("native.flex", "native.compiled", "triton.flash_trans_v_autotuned")
"""Backends that compile for seconds; they take the first and the last size."""

INTERPRETED = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)


@functools.cache
def registered() -> Registry:
    """Every backend of this repository."""
    registry = Registry()
    kernels.register(registry)
    return registry


def pairs() -> Iterator[tuple[str, str]]:
    """(family, backend) of every backend of every family."""
    for family in FAMILIES:
        yield from ((family, backend.name) for backend in registered().for_family(family))


def cases_of(family: str, backend: str) -> list[str]:
    """'backend/workload id' of each workload that the backend is tried on."""
    workloads = FAMILIES[family]
    chosen = (workloads[0], workloads[-1]) if backend in COMPILED else workloads
    return [f"{backend}/{workload.id}" for workload in chosen]


def head_dim_of(workload: Workload) -> int:
    """D; of latent attention that of heads without rotation."""
    return int(getattr(workload, "head_dim", 0) or workload.nope_dim)  # type: ignore[attr-defined]


def found(case: str, device: str = "cpu") -> dict[str, tuple[str, ...]]:
    """'refused' (reasons) and 'wrong' (problems) of one case; an exception is a problem."""
    from pytest_attnperf.environment.device import identify_device
    from tests.kernels.judging import find_wrong

    name, _, text = case.partition("/")
    workload = parse_workload(text)
    backend = registered().get(name)
    try:
        refused = backend.unsupported_reasons(workload, INTERPRETED if device == "cpu" else identify_device(device))
        wrong = () if refused else find_wrong(backend, workload, device)
    except Exception:
        return {"refused": (), "wrong": (traceback.format_exc(),)}
    return {"refused": tuple(refused), "wrong": wrong}


def found_on_gpu(cases: Sequence[str]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Case -> what is `found` of it on the GPU, by processes that share it: to compile takes most of the time."""
    workers = max(1, min(12, (os.cpu_count() or 1) - 2))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(found, case, "cuda"): case for case in cases}
        return {running[done]: done.result() for done in as_completed(running)}
