#!/usr/bin/env bash
# Records a trace and counters of one backend with rocprofv3 (ROCm 6.3 and later). Counters are runs of their own, because
# kernels run one at a time under them; which answer which question: docs/profiling.md.
#
#   examples/rocm-attention/rocprof_commands.sh [BACKEND]      default hip.flash
#
#   SEQ_LEN, HEAD_DIM, NUM_HEADS   of the workload (default 512, 64 and 8)
#   COUNTERS   sets of counters, a run each, separated by commas (default: those that gfx90a, gfx94x and RDNA all have)
#   ATTNPERF   the command that runs a kernel alone (default .venv/bin/attnperf)
#   OUT        where profiles go (default examples/rocm-attention/results)
#   PRINT=1    print the commands instead
#
# No AMD GPU has run this for this project.
set -euo pipefail
cd "$(dirname "$0")/../.."
backend=${1:-hip.flash}
OUT=${OUT:-examples/rocm-attention/results}
seq_len=${SEQ_LEN:-512} head_dim=${HEAD_DIM:-64} heads=${NUM_HEADS:-8}
folder=$OUT/prefill-b1-s$seq_len-h$heads-d$head_dim-f16/$backend
program=("${ATTNPERF:-.venv/bin/attnperf}" kernel run "$backend" --seq-len "$seq_len" --head-dim "$head_dim"
    --num-heads "$heads" --calls 50 --warmup 10 --no-check)

record() { # NAME, OPTIONS
    local name=$1
    shift
    local command=(rocprofv3 "$@" --output-format csv -d "$folder/$name" -o run -- "${program[@]}")
    if [ "${PRINT:-}" = 1 ]; then echo "${command[*]}"; else "${command[@]}"; fi
}

[ "${PRINT:-}" = 1 ] || command -v rocprofv3 >/dev/null || {
    echo "rocprofv3 is not on the PATH: install ROCm 6.3 or later, or print the commands with PRINT=1" >&2
    exit 2
}
record trace --kernel-trace --stats
IFS=, read -ra sets <<<"${COUNTERS:-SQ_WAVES GRBM_GUI_ACTIVE,FETCH_SIZE,LDSBankConflict}"
for set in "${sets[@]}"; do
    # shellcheck disable=SC2086
    record "counters/${set%% *}" --pmc $set
done
