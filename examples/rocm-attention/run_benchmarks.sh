#!/usr/bin/env bash
# Proves and times every step of the HIP ladder over sequence lengths, and prints a table of the steps for each length.
#
#   examples/rocm-attention/run_benchmarks.sh [LENGTH ...]     default 128 256 512 1024 2048 4096
#
#   HEAD_DIM, NUM_HEADS   of all of them (default 64 and 8)
#   FLAGS                 more options of pytest, e.g. "-k flash"
#   PYTHON                the interpreter that has pytest-attnperf and torch (default .venv/bin/python)
#   OUT                   where results go (default examples/rocm-attention/results)
#
# The workloads are not those of baselines: nothing is gated, and no case without a verdict fails the run, in CI
# neither. Without a GPU the steps are only proven, in the emulator.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-.venv/bin/python}
OUT=${OUT:-examples/rocm-attention/results}
[ $# -gt 0 ] || set -- 128 256 512 1024 2048 4096
mkdir -p "$OUT"

printf 's,d,h\n' >"$OUT/workloads.csv"
for length in "$@"; do
    printf '%s,%s,%s\n' "$length" "${HEAD_DIM:-64}" "${NUM_HEADS:-8}" >>"$OUT/workloads.csv"
done

status=0
# shellcheck disable=SC2086
"$PYTHON" -m pytest --attnperf --attnperf-workload="$OUT/workloads.csv" --attnperf-results="$OUT/results.json" \
    --no-attnperf-strict ${FLAGS:-} suites/test_hip_ladder.py || status=$?
# 1: a step is wrong, which the table shows, too.
[ "$status" -le 1 ] || exit "$status"
"$PYTHON" -m pytest_attnperf.cli report "$OUT/results.json" --by step || echo "no table: see the message above"
exit "$status"
