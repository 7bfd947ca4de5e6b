# Everything a newcomer needs. `make train` and `make test` set up .venv when it is missing.
# Arguments for train.py and the benchmarks go through ARGS: make train ARGS="--seed=1"

PYTHON ?= python3
BIN := .venv/bin
LOGDIR ?= runs
# One more than there are cores: some tests wait, for processes of their own.
TESTERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST = $(BIN)/python -m pytest --numprocesses=$(TESTERS) --dist=worksteal
BENCHMARKS ?= step_time memory loop_overhead start scale input_rate tpu_cycles

.PHONY: help setup setup-compile setup-bench train tensorboard test test-all lint format sample-quality judge bench clean

help:  ## lists the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

setup: .venv/.runtime .venv/.development .venv/.compile  ## installs everything, for training and for development

setup-compile: .venv/.compile  ## installs the TPU's compiler, for --mode=compile

setup-bench: .venv/.bench .venv/.compile  ## installs what the benchmarks compare with: PyTorch

train: .venv/.runtime  ## trains; on scikit-learn's digits by default, no network needed
	$(BIN)/python train.py $(ARGS)

tensorboard: .venv/.runtime  ## shows the runs under $(LOGDIR) at http://localhost:6006
	$(BIN)/tensorboard --logdir $(LOGDIR)

test: lint .venv/.compile  ## lint, types and the fast tests, in 10 minutes; ARGS go to pytest
	$(PYTEST) -m "not slow" $(ARGS)

test-all: lint .venv/.compile  ## lint, types and every test, as CI does, in 25 minutes; ARGS go to pytest
	$(PYTEST) $(ARGS)

lint: .venv/.development  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.development  ## fixes what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

sample-quality: .venv/.runtime  ## checks the samples of the runs under runs/ (train them first)
	$(BIN)/python -m benchmarks.sample_quality $(ARGS)

judge: sample-quality

bench: setup-bench  ## measures speed, an hour of it; one of it with BENCHMARKS=step_time
	@set -e; for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name $(ARGS); done

clean:  ## removes .venv and caches; never a run
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache build *.egg-info

# A stamp is newer than its requirements only after pip succeeded, so that an interrupted
# installation is taken up again.
.venv/.runtime: requirements.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

.venv/.compile: requirements-compile.txt .venv/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-compile.txt
	@touch $@

.venv/.bench: requirements-bench.txt .venv/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-bench.txt
	@touch $@

.venv/.development: requirements-dev.txt .venv/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@
