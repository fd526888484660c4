"""Times launch configurations of Triton and HIP kernels on this GPU, and writes the best of each size class.

    python benchmarks/sweep_configs.py gemm decode --out DIR        # on the GPU: DIR/<kernel>.json
    python benchmarks/sweep_configs.py --apply DIR                  # anywhere: into kernels/{triton,hip}/configs

What is tried stands in benchmarks/sweeps/<kernel>.py. Candidates are compiled in parallel processes first; then each is
checked against the reference on every workload of its class and timed by replay of a CUDA graph. One that does not
compile, does not fit the device or is wrong is left out, and said. Rules of the file that no class replaces are kept.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "benchmarks")]

import kernels  # noqa: E402
from benchmarks.sweeps.sweep import Config, SizeClass, Sweep  # noqa: E402
from kernels.configs import FOLDER, HIP_FOLDER, SCHEMA, ConfigChoice, ConfigRule  # noqa: E402
from pytest_attnperf.backends import Registry  # noqa: E402
from pytest_attnperf.workloads.families import parse_workload  # noqa: E402

SEED = 0
BLOCKS = 7
BLOCK_US = 2000.0
COMPILE_S = 240.0
"""A candidate that takes longer to compile is left out."""


def main() -> None:
    """Sweep, or apply what a sweep wrote."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="names of modules in benchmarks/sweeps")
    parser.add_argument("--out", type=Path, help="folder for the rules that were found")
    parser.add_argument("--apply", type=Path, metavar="DIR", help="put such rules into the files of configurations")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="compiling processes")
    arguments = parser.parse_args()
    if arguments.apply:
        for path in sorted(arguments.apply.glob("*.json")):
            print("written:", apply(json.loads(path.read_text(encoding="utf-8"))))
        return
    if not arguments.kernels or not arguments.out:
        parser.error("needs names of sweeps and --out, or --apply DIR")
    import torch

    if not torch.cuda.is_available():
        parser.error("needs a GPU that torch can use; this machine has none")
    torch.set_grad_enabled(False)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for sweep in [importlib.import_module(f"benchmarks.sweeps.{name}").SWEEP for name in arguments.kernels]:
        result = swept(sweep, arguments.jobs)
        (arguments.out / f"{sweep.kernel}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")


def swept(sweep: Sweep, jobs: int) -> dict[str, Any]:
    """The best rule of every class, and the microseconds of everything that ran."""
    import torch

    from kernels.triton.triton_backend import arch_of

    began = time.monotonic()
    work = [
        (sweep, index, candidate, workload)
        for index, size in enumerate(sweep.classes)
        for candidate in size.candidates
        for workload in size.workloads
    ]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        failures = pool.starmap(compiled, work, chunksize=1)
    broken = {(item[1], frozenset(item[2].items())): why for item, why in zip(work, failures, strict=True) if why}
    print(f"{sweep.kernel}: {len(work)} compiled in {time.monotonic() - began:.0f} s", flush=True)
    arch = arch_of(torch.device("cuda"))
    compiler = "" if is_hip(sweep.backend) else f", Triton {importlib.import_module('triton').__version__}"
    where = f"{torch.cuda.get_device_name()}, torch {torch.__version__}{compiler}"
    rules, tables = [], []
    for index, size in enumerate(sweep.classes):
        times = {
            frozenset(candidate.items()): class_times(sweep, size, candidate)
            for candidate in size.candidates
            if (index, frozenset(candidate.items())) not in broken
        }
        for (number, candidate), why in broken.items():
            if number == index:
                print(f"  {dict(candidate)}: left out, {why}")
        kept = {candidate: us for candidate, us in times.items() if us is not None}
        tables.append(
            {"when": dict(size.when), "us": [{**dict(candidate), "us": us} for candidate, us in kept.items()]}
        )
        if kept:
            best = ranked(size, kept)[0]
            source = f"fastest of {len(kept)} by benchmarks/sweep_configs.py on {where}"
            config = next(dict(candidate) for candidate in size.candidates if frozenset(candidate.items()) == best)
            rules.append({"when": dict(size.when), "config": config, "source": source})
    print(f"{sweep.kernel}: {time.monotonic() - began:.0f} s", flush=True)
    return {"kernel": sweep.kernel, "backend": sweep.backend, "arch": arch, "rules": rules, "tables": tables}


def is_hip(backend: str) -> bool:
    """Whether a backend's kernels are those of kernels/hip."""
    return backend.startswith("hip.")


def ranked(size: SizeClass, times: Mapping[frozenset[Any], Mapping[str, float]]) -> list[frozenset[Any]]:
    """Candidates by the geometric mean of time over the fastest candidate's, best first; the first five are printed."""
    fastest = {workload: min(us[workload] for us in times.values()) for workload in size.workloads}
    cost = {c: statistics.geometric_mean(us[w] / fastest[w] for w in size.workloads) for c, us in times.items()}
    order = sorted(cost, key=cost.__getitem__)
    for candidate in order[:5]:
        us = ", ".join(f"{workload} {times[candidate][workload]:.4g}" for workload in size.workloads)
        print(f"  {dict(size.when)} {dict(sorted(candidate))}: {cost[candidate]:.3f}; us: {us}", flush=True)
    return order


def backend_with(sweep: Sweep, candidate: Config) -> Any:
    """The backend, with a candidate in place of what its files say."""
    registry = Registry()
    kernels.register(registry)
    backend: Any = registry.get(sweep.backend)
    return backend.with_choice(sweep.kernel, ConfigChoice("swept", ConfigRule({}, dict(candidate), "a sweep")))


def compiled(sweep: Sweep, index: int, candidate: Config, text: str) -> str:
    """Compile in this process, for the compiler's cache on disk; '' or why it cannot be used."""
    import signal

    import torch

    torch.set_grad_enabled(False)
    signal.alarm(math.ceil(COMPILE_S))
    try:
        workload = parse_workload(text)
        backend_with(sweep, candidate).prepare(workload, workload.make_inputs(SEED, "cuda", planted=False))
        torch.cuda.synchronize()
    except Exception as error:  # Triton raises its own types for shared memory and for what it cannot compile
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    finally:
        signal.alarm(0)
        torch.cuda.empty_cache()
    return ""


def class_times(sweep: Sweep, size: SizeClass, candidate: Config) -> dict[str, float] | None:
    """Microseconds by workload, or None, said, where it is wrong or does not run."""
    try:
        return {text: checked_us(sweep, candidate, text) for text in size.workloads}
    except Exception as error:
        print(f"  {dict(candidate)}: left out, {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)
        return None


_EXPECTED: dict[str, tuple[Any, Any]] = {}


def checked_us(sweep: Sweep, candidate: Config, text: str) -> float:
    """Microseconds per call. Raises ValueError when the result is beyond the backend's budget."""
    from pytest_attnperf.correctness.budget import list_problems
    from pytest_attnperf.correctness.metrics import compare_output
    from pytest_attnperf.correctness.references import References
    from pytest_attnperf.measure.gpu_timer import gpu_timer

    workload = parse_workload(text)
    if text not in _EXPECTED:
        _EXPECTED.clear()
        inputs = workload.make_inputs(SEED, "cuda", planted=True)
        _EXPECTED[text] = (inputs, References().compute_expected(workload, inputs, seed=SEED, planted=True))
    inputs, expected = _EXPECTED[text]
    backend = backend_with(sweep, candidate)
    prepared = backend.prepare(workload, inputs)
    outputs = prepared.outputs(prepared.run())
    with expected.reveal() as truth:
        figures = [
            compare_output("swept", name, outputs[name], truth[name], expected.yardsticks[name], backend.tolerance)
            for name in truth
        ]
    found = list_problems(figures)
    if found:
        raise ValueError(f"{text} is wrong: {found[0]}")
    return median_us(gpu_timer(prepared.call, *prepared.tensors, blocks=BLOCKS, block_us=BLOCK_US).block_us)


def median_us(block_us: Sequence[float]) -> float:
    """The median of microseconds per call of several blocks."""
    return statistics.median(block_us)


def apply(found: Mapping[str, Any]) -> Path:
    """Put found rules into the file of their architecture, before the rules for other problems that it has."""
    folder = HIP_FOLDER if is_hip(found["backend"]) else FOLDER
    path = folder / found["kernel"] / f"{found['arch']}.json"
    source = path if path.is_file() else path.with_name("default.json")
    replaced = [rule["when"] for rule in found["rules"]]
    kept = [rule for rule in json.loads(source.read_text(encoding="utf-8"))["rules"] if rule["when"] not in replaced]
    lines = ",\n".join(f"    {json.dumps(rule)}" for rule in [*found["rules"], *kept])
    path.write_text(f'{{\n  "schema": {SCHEMA},\n  "rules": [\n{lines}\n  ]\n}}\n', encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
