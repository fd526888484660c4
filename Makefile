# `make attnperf` and `make test` each set everything up and run; nothing else needs to be installed first.
#
#   PYTHON=...   the interpreter to build on; a torch it can import is used as it is (default python3)
#   ARGS=...     more arguments for pytest, e.g. make attnperf ARGS="-k d256 -rs"

# Without bytecode files every worker compiles the plugin again, which triples its start.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
ARGS ?=

# What `make nightly` does with the code objects beside comparing them: it executes each by an interpreter.
EXECUTE ?= --attnperf-execute

# What `make kernels` builds, and where to; KERNEL=hip.flash for one kernel only.
ARCH ?= gfx942
KERNEL ?=
OUT ?= build/kernels

VENV := .venv
RUN := $(VENV)/bin/python -m
STAMP := $(VENV)/.setup-complete
STYLE := $(RUN) ruff check . && $(RUN) ruff format --check .
TYPES := $(RUN) mypy --strict

# Without a GPU a demonstration runs, usually on a few cores shared with others, where the same code differs by tens of
# per cent between two processes. There the gate looks for gross changes only (twice as slow), and a case that cannot be
# decided does not fail.
CPU_FLAGS ?= --attnperf-threshold=100 --no-attnperf-strict --attnperf-benchmark=off examples/demo

# In file order, for reproducible runs; tests of random order ask for it in runs of their own. Each of two processes
# collects and runs its own files (tests/shares.py); with ARGS="-n 4" it is xdist as ever.
SHARES := --dist each --tx popen//env:TEST_SHARE=1/2 --tx popen//env:TEST_SHARE=2/2
TEST_FLAGS ?= -p no:randomly $(if $(filter -n%,$(ARGS)),,$(SHARES))

.PHONY: help setup attnperf prove nightly baselines kernels test soak matrix images lint clean

help:
	@echo "make attnperf   prove, measure and gate the suites, or a demonstration without a GPU (ARGS=... goes to pytest)"
	@echo "make prove      every backend right on some of the suites, every code object; nothing is timed"
	@echo "make nightly    every case of the suites, and code objects for every architecture, executed (EXECUTE= does not)"
	@echo "make baselines  compare what is stored with the suites: nothing stale, orphaned or missing"
	@echo "make kernels    compile the HIP kernels into objects (ARCH=..., KERNEL=..., OUT=...)"
	@echo "make test       lint, types and this project's own tests"
	@echo "make soak       the tests that are too long for 'make test' (20 minutes and more)"
	@echo "make matrix     the wheel on other Pythons and versions of what is needed (ARGS=--smoke: small projects only)"
	@echo "make images     the pictures of docs/images, from the reports themselves (needs chromium)"
	@echo "make lint       ruff and mypy only"
	@echo "make setup      only make .venv (PYTHON=... chooses the interpreter)"
	@echo "make clean      remove .venv and caches; measurements under .attnperf/ stay"

setup: $(STAMP)
	@echo "ready: $(VENV)/bin/python"

$(STAMP): pyproject.toml Makefile .ci/setup
	@PYTHON="$(PYTHON)" .ci/setup
	@touch $@

# What stands below the demonstration's tables.
NEXT = next: a kernel of your own, docs/add-to-your-repo.md; every case of the suites, make nightly; a GPU times them all
# torch is asked, which takes seconds to import, where there is a GPU at all.
HAS_GPU = import os, sys; from pytest_attnperf.environment.gpu_tokens import has_gpu; \
	sys.exit(not has_gpu(os.environ)[0] or not __import__("torch").cuda.is_available())
NO_GPU = ! $(VENV)/bin/python -c '$(HAS_GPU)'

attnperf: $(STAMP)
	@what=suites/; next=; \
	if $(NO_GPU); then \
		echo "no GPU that torch can use: a demonstration"; what='$(CPU_FLAGS)'; next='$(NEXT)'; \
	fi; \
	(set -x; $(RUN) pytest --attnperf --attnperf-record-local $$what $(ARGS)); status=$$?; \
	[ -z "$$next" ] || echo "$$next"; exit $$status

prove: $(STAMP)
	@set -x; $(RUN) pytest -n 2 --attnperf-arch=all suites/ $(ARGS)

nightly: $(STAMP)
	@how='--attnperf --attnperf-record-local'; \
	if $(NO_GPU); then echo "no GPU that torch can use: cases are proven, and not timed"; how='-n 2'; fi; \
	set -x; $(RUN) pytest $$how --attnperf-tier=nightly --attnperf-arch=all $(EXECUTE) suites/ $(ARGS)

baselines: $(STAMP)
	@set -x; $(RUN) pytest_attnperf.cli baselines check $(ARGS)

kernels: $(STAMP)
	$(RUN) pytest_attnperf.cli kernel build --arch "$(ARCH)" $(if $(KERNEL),--kernel "$(KERNEL)") --out "$(OUT)"

# Two test processes with a torch thread pool each would share the cores of a small machine four ways.
test soak: export OMP_NUM_THREADS = 1

# mypy keeps one core busy for half a minute: it runs beside the tests, and what it says is printed below theirs.
test: $(STAMP)
	$(STYLE)
	@said=$$(mktemp); $(TYPES) >"$$said" 2>&1 & types=$$!; status=0; \
	(set -x; $(RUN) pytest tests/ -m "not soak" $(TEST_FLAGS) $(ARGS)) || status=$$?; \
	wait $$types || status=$$?; \
	echo "mypy --strict:"; cat "$$said"; rm -f "$$said"; exit $$status

soak: $(STAMP)
	$(RUN) pytest tests/ -m soak -p no:randomly $(ARGS)

matrix: $(STAMP)
	$(VENV)/bin/python .ci/matrix.py $(ARGS)

images: $(STAMP)
	$(VENV)/bin/python docs/make_images.py

lint: $(STAMP)
	$(STYLE)
	$(TYPES)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
