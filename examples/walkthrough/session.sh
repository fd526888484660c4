#!/usr/bin/env bash
# A terminal session on real kernels: clean, slower by a known amount, wrong in three ways, and accepted by updating.
# Run from the repository root, on a GPU or a CPU. Exits non-zero when a step does not end as it must.
#
#   PYTHON    the interpreter that has pytest-attnperf and torch (default .venv/bin/python)
#   SLOW      one call in SLOW runs twice (default 4: +25 %)
#   FLAGS     more options, e.g. --attnperf-threshold=25 on a shared CPU
set -uo pipefail
PYTHON=${PYTHON:-.venv/bin/python}
SLOW=${SLOW:-4}
FLAGS=${FLAGS:-}
STORE=.attnperf/walkthrough
rm -rf "$STORE"
failed=0

step() { # TITLE, SABOTAGE, EXPECTED STATUS, OPTIONS
    printf '\n## %s\n\n$ %spytest %s %s examples/walkthrough\n' "$1" "${2:+ATTNPERF_SABOTAGE=$2 }" "$4" "$FLAGS"
    # shellcheck disable=SC2086
    ATTNPERF_SABOTAGE=$2 "$PYTHON" -m pytest --no-header --attnperf-baselines="$STORE" $4 $FLAGS examples/walkthrough
    local status=$?
    printf '(exit status %s)\n' "$status"
    [ "$status" = "$3" ] || { printf 'expected %s\n' "$3"; failed=1; }
}

step 'Store a baseline, in seven fresh processes' '' 0 --update-baselines
step 'Unchanged code passes' '' 0 '--attnperf --attnperf-strict'
step "One call in $SLOW runs twice: slower" "slow:$SLOW" 1 --attnperf
step 'A wrong value' wrong 1 --attnperf
step 'NaN in one row' nan 1 --attnperf
step 'Nothing written' nothing 1 --attnperf
step 'The slower code is accepted' "slow:$SLOW" 0 '--update-baselines --attnperf-accept=wanted'
step 'And passes' "slow:$SLOW" 0 '--attnperf --attnperf-strict'
exit "$failed"
