#!/usr/bin/env bash
# Holds two images against each other on one GPU of a Slurm node that nothing else runs on. Words: docs/containers.md
#
#   sbatch slurm-compare.sh OLD.sif NEW.sif [pytest arguments]
#
#   ATTNPERF_VENDOR   amd (default) or nvidia
#   ATTNPERF_PYTHON   the Python that has pytest-attnperf, on a file system that the node sees (default .venv/bin/python)
#SBATCH --job-name=attnperf-images
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gres=gpu:1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=03:00:00
#SBATCH --output=attnperf-images-%j.log
set -euo pipefail

[ "$#" -ge 2 ] || {
    echo "usage: sbatch slurm-compare.sh OLD.sif NEW.sif [pytest arguments]" >&2
    exit 2
}
old=$1 new=$2
shift 2
# The submit folder, not the copy of this script that Slurm runs.
cd "${SLURM_SUBMIT_DIR:-.}"
exec "${ATTNPERF_PYTHON:-.venv/bin/python}" examples/containers/compare_images.py --runtime=apptainer \
    --vendor="${ATTNPERF_VENDOR:-amd}" --old="$old" --new="$new" -- \
    --attnperf-results=".attnperf/images-${SLURM_JOB_ID:-0}.json" "$@"
