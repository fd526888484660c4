#!/usr/bin/env bash
# Measures on one GPU of a Slurm cluster and judges on the node this is started from. Words: docs/ci.md
#
#   examples/ci/slurm.sh [BASE]     BASE: the revision to compare with and whose baselines count (default origin/main)
#
#   SLURM_ARGS       more arguments for sbatch, e.g. "--partition=mi300 --account=kernels"
#   ATTNPERF_GATE    shadow, warn or block (default block: whoever starts this by hand wants to see the exit status)
set -euo pipefail

base=${1:-origin/main}
out=$PWD/.attnperf/slurm
results=$out/results.json

# sbatch runs this same file on the compute node.
if [ "${ATTNPERF_ON_NODE:-}" = 1 ]; then
    status=0
    .venv/bin/python -m pytest --attnperf --attnperf-against="$base" --attnperf-results="$results" \
        -m "not attnperf_code" suites/ || status=$?
    # 1: tests failed. Whether that counts is said on the login node.
    [ "$status" -le 1 ]
    exit
fi

[ -x .venv/bin/python ] || {
    echo "no .venv here: run make setup on a node with the GPU's torch first" >&2
    exit 2
}
mkdir -p "$out"
rm -f "$results"
read -ra more <<<"${SLURM_ARGS:-}"

# One whole GPU, and the whole node: another job on it would be in the times.
status=0
sbatch --wait --job-name=attnperf --nodes=1 --ntasks=1 --gpus-per-node=1 --exclusive --time=03:00:00 \
    --output="$out/job-%j.log" --export=ALL,ATTNPERF_ON_NODE=1 "${more[@]}" "$0" "$base" || status=$?
if [ ! -f "$results" ]; then
    echo "the job ended with status $status and left no results; see $out/job-*.log" >&2
    exit 2
fi
exec .venv/bin/attnperf gate --results "$results" --against "$base" --mode "${ATTNPERF_GATE:-block}" --strict \
    --markdown "$out/summary.md" --junit "$out/junit.xml"
