#!/usr/bin/env bash
# Measures as a Slurm job array, a part of the cases per task, and judges them together on the node this is started
# from. Words: docs/ci.md
#
#   examples/ci/slurm-array.sh [BASE] [SHARDS]
#
#   BASE             the revision to compare with and whose baselines count (default origin/main)
#   SHARDS           number of parts (default 8); more than nodes, so that fast nodes take more of them
#   ATTNPERF_NODES   most tasks at once (default: SHARDS)
#   SLURM_ARGS       more arguments for sbatch, e.g. "--partition=mi300 --account=kernels"
#   ATTNPERF_GATE    shadow, warn or block (default block)
set -euo pipefail

base=${1:-origin/main}
shards=${2:-8}
out=$PWD/.attnperf/slurm-array

# sbatch runs this same file on the compute nodes.
if [ "${ATTNPERF_ON_NODE:-}" = 1 ]; then
    status=0
    .venv/bin/python -m pytest --attnperf --attnperf-shard=auto --attnperf-against="$base" \
        --attnperf-results="$out/$SLURM_ARRAY_TASK_ID.json" -m "not attnperf_code" suites/ || status=$?
    # 1: tests failed. Whether that counts is said on the login node.
    [ "$status" -le 1 ]
    exit
fi

[ -x .venv/bin/python ] || {
    echo "no .venv here: run make setup on a node with the GPU's torch first" >&2
    exit 2
}
mkdir -p "$out"
rm -f "$out"/*.json
read -ra more <<<"${SLURM_ARGS:-}"

# One whole GPU, and the whole node: another job on it would be in the times.
status=0
sbatch --wait --job-name=attnperf --array="0-$((shards - 1))%${ATTNPERF_NODES:-$shards}" --nodes=1 --ntasks=1 \
    --gpus-per-node=1 --exclusive --time=03:00:00 --output="$out/task-%a.log" --export=ALL,ATTNPERF_ON_NODE=1 \
    "${more[@]}" "$0" "$base" "$shards" || status=$?
shopt -s nullglob
results=("$out"/[0-9]*.json)
[ "${#results[@]}" -gt 0 ] || {
    echo "the tasks ended with status $status and left no results; see $out/task-*.log" >&2
    exit 2
}
# A part without results is found by the others' manifest. What fails here fails the gate, too.
.venv/bin/attnperf report "${results[@]}" --out "$out/joined.json" || [ $? -eq 1 ]
exec .venv/bin/attnperf gate --results "$out/joined.json" --against "$base" --mode "${ATTNPERF_GATE:-block}" --strict \
    --markdown "$out/summary.md" --junit "$out/junit.xml"
