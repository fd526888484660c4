"""Records one case of each public kernel, gates it unchanged, and gates it made slower; prints one table. Needs a GPU.

    python benchmarks/foreign_gate.py [--wheels DIR] [--only TEXT] [--share 0.07] [--logs DIR]

Every step is a run of pytest as a user types it, in processes of its own: `--update-baselines`, `--attnperf`, and
`--attnperf` with foreign_slower.py beside it. The exit status is 1 unless every case was recorded, every unchanged one
passed and every slower one failed as SLOWER. Needs Python 3.11 or later.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import tomllib

from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import CaseResult

HERE = Path(__file__).resolve().parent
FOREIGN = HERE.parent / "examples" / "foreign"
sys.path[:0] = [str(HERE), str(FOREIGN)]

import run as foreign  # noqa: E402

CASES = {
    "liger/test_liger.py": (
        "test_rms_norm[8192-4096-forward]",
        "test_fused_add_rms_norm[8192-4096]",
        "test_layer_norm[8192-4096]",
        "test_group_norm[32-256-32-4096]",
        "test_gated_activation[4096-11008-swiglu-silu]",
        "test_relu_squared[4096-11008]",
        "test_softmax[8192-4096]",
        "test_sparsemax[8192-1024]",
        "test_rope[32-4096-128]",
        "test_embedding[32000-1024-8192]",
    ),
    "liger/test_liger_losses.py": (
        "test_cross_entropy[2048-32000-forward]",
        "test_fused_linear_cross_entropy[2048-1024-32000]",
        "test_kl_divergence[2048-32000]",
        "test_jensen_shannon_divergence[2048-32000]",
    ),
    "fla-core/test_fla_core.py": (
        "test_linear_attention[(16, 256, 8, 64)-chunk_linear_attn]",
        "test_retention[(16, 256, 8, 64)-parallel_retention]",
        "test_gated_linear_attention[(16, 256, 8, 64)-fused_recurrent_gla]",
        "test_simple_gated_linear_attention[(16, 256, 8, 64)]",
        "test_delta_rule[(16, 256, 8, 64)-fused_recurrent_delta_rule]",
        "test_gated_delta_rule[(16, 256, 8, 64)-forward]",
        "test_gated_delta_rule_token_by_token[(16, 256, 8, 64)]",
        "test_attention[(16, 256, 8, 64)]",
    ),
    "fla-core/test_fla_layers.py": (
        "test_l2_norm[65536-128]",
        "test_rotary_embedding[4-2048-16-128]",
        "test_token_shift[4-2048-2048]",
        "test_cross_entropy[2048-32000]",
    ),
    "attn-gym/test_attn_gym.py": ("test_causal", "test_alibi", "test_sliding_window", "test_documents"),
    "conch/test_conch.py": (
        "test_rms_norm[8192-4096]",
        "test_fused_add_rms_norm[8192-4096]",
        "test_gemma_rms_norm[8192-4096]",
        "test_gated_activation[4096-11008-silu]",
        "test_gated_activation[4096-11008-gelu_tanh]",
        "test_rotary_embedding[8192-32-128]",
        "test_int8_quantisation[8192-4096]",
        "test_fp8_quantisation[8192-4096]",
        "test_reshape_and_cache[8192-8-128-1024]",
        "test_copy_blocks[1024-16384-256]",
        "test_paged_attention[32-32-128-128]",
        "test_varlen_attention_of_single_queries[32-32-128-128]",
    ),
    "xformers/test_xformers.py": (
        "test_rms_norm[8192-4096]",
        "test_rms_norm_of_a_sum[8192-4096]",
        "test_rope_into_a_padded_cache[64-1024-32-128]",
        "test_index_select_cat[8192-4096-4096]",
        "test_scaled_index_add[64-40-512-1024]",
        "test_decoding_attention[8-8192-8-128]",
    ),
    "torchao/test_torchao.py": ("test_weights_to_fp8[4096-4096]", "test_weights_from_fp8[4096-4096]"),
    "sageattention/test_sageattention.py": (
        "test_attention[full-whole]",
        "test_attention[causal-whole]",
        "test_attention_of_packed_sequences[causal-whole]",
    ),
    "cut-cross-entropy/test_cut_cross_entropy.py": ("test_linear_cross_entropy[2048-1024-32000-both]",),
}
STEPS = {
    "record": ["--update-baselines"],
    "unchanged": ["--attnperf"],
    "slower": ["--attnperf", "--attnperf-worker-args=-p foreign_slower"],
}


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--steps",
        nargs="*",
        choices=STEPS,
        default=list(STEPS),
        help="some of them, in their order; none: print what --logs holds",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose 'file::test' holds this")
    parser.add_argument("--share", type=float, default=0.07, help="slower by this share of the recorded time")
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="S", help="seconds for one step")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="install from the wheels here, without a network")
    parser.add_argument("--into", type=Path, default=Path("build/foreign"), help="where packages are installed")
    parser.add_argument("--logs", type=Path, default=Path("build/foreign/logs"), help="what pytest prints, and results")
    return parser.parse_args()


def environment(options: argparse.Namespace) -> dict[str, str]:
    """This process's, with every package that can be had, each in its own folder."""
    folders = []
    for name, package in tomllib.loads((FOREIGN / "packages.toml").read_text()).items():
        folder = options.into.resolve() / name
        if reason := foreign.installed(name, package, folder, options.wheels):
            print(f"{name}: {reason}", file=sys.stderr)
        folders.append(str(folder))
    environ = foreign.environment(Path(os.pathsep.join([*folders, str(HERE)])))
    return environ | {"FOREIGN_SLOWER": f"{options.logs.resolve() / 'record.json'} {options.share}"}


def run(step: str, cases: list[str], options: argparse.Namespace, environ: dict[str, str]) -> float:
    """One run of pytest; the seconds that it took."""
    logs = options.logs.resolve()
    command = [
        sys.executable,
        "-m",
        "pytest",
        *cases,
        *STEPS[step],
        "--tb=short",
        f"--attnperf-results={logs / step}.json",
    ]
    started = time.monotonic()
    with open(logs / f"{step}.log", "w") as log:
        process = subprocess.Popen(command, cwd=FOREIGN, env=environ, stdout=log, stderr=subprocess.STDOUT)
        try:
            process.wait(options.timeout)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
    return time.monotonic() - started


def results(step: str, logs: Path) -> dict[str, CaseResult]:
    """What a step's results say, by node id; nothing where it left none."""
    file = logs / f"{step}.json"
    return {case.nodeid: case for case in json_results.read(file).cases} if file.is_file() else {}


def shown(case: CaseResult | None) -> str:
    """A verdict, with its ratio where it has one."""
    if case is None:
        return "-"
    return case.verdict.value + (f" {100 * (case.ratio - 1):+.1f} %" if case.ratio else "")


def summaries(steps: dict[str, dict[str, CaseResult]]) -> list[str]:
    """How far processes of one case lie apart, and how its time moved, for each of the two clocks."""
    lines = []
    for clock in ("GPU", "host"):
        recorded = {
            node: case
            for node, case in steps["record"].items()
            if case.first and ("host" in case.first[0].timer) == (clock == "host")
        }
        if not recorded:
            continue
        medians = [[process.median_us for process in case.first] for case in recorded.values()]
        apart = sorted(100 * (max(one) / min(one) - 1) for one in medians)
        lines.append(
            f"timed by the {clock}: {len(recorded)} cases, processes apart by {', '.join(f'{x:.1f}' for x in apart)} %"
        )
        for step in ("unchanged", "slower"):
            cases = [case for node, case in steps[step].items() if node in recorded and case.ratio]
            moved = [100 * (case.ratio - 1) for case in cases if case.ratio]
            if moved:
                mean = sum(map(abs, moved)) / len(moved)
                verdicts = Counter(case.verdict.value for case in cases)
                said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
                lines.append(f"  {step}: {min(moved):+.1f} to {max(moved):+.1f} %, {mean:.1f} % on average; {said}")
    return lines


def main() -> int:
    """0 if everything was recorded, passed unchanged and was found slower."""
    options = arguments()
    options.logs.mkdir(parents=True, exist_ok=True)
    cases = [f"{file}::{test}" for file, tests in CASES.items() for test in tests]
    cases = [case for case in cases if options.only in case]
    environ = environment(options) if options.steps else {}
    for step in options.steps:
        print(f"{step}: {run(step, cases, options, environ):.0f} s", flush=True)
    steps = {step: results(step, options.logs) for step in STEPS}
    good = 0
    for case in cases:
        record, unchanged, slower = (steps[step].get(case) for step in STEPS)
        median = f"{record.median_us:.1f} us" if record and record.median_us else "-"
        print(case, median, *map(shown, (record, unchanged, slower)), sep="  ")
        passed = bool(record and unchanged and not record.fails and not unchanged.fails)
        good += bool(passed and slower and slower.verdict is Verdict.SLOWER)
    print(*summaries(steps), sep="\n")
    print(f"{good} of {len(cases)} recorded, passed unchanged and found when slower")
    return int(good < len(cases))


if __name__ == "__main__":
    sys.exit(main())
