# `make train` and `make test` create .venv if it does not exist. A TPU needs tensorflow-tpu, which must
# not be installed together with tensorflow, and a libtpu other than that of --mode=compile. Its
# environment is therefore a folder of its own, .venv-tpu, which `make setup-tpu` creates.
# ARGS passes arguments to train.py, pytest and the benchmarks: make train ARGS="--seed=1"

PYTHON ?= python3
BIN := .venv/bin
# The environment that runs programs: that of a TPU if ARGS contains --tpu, or if no other exists.
USE_TPU := $(filter --tpu% -tpu%,$(ARGS))$(if $(wildcard .venv/.runtime),,$(wildcard .venv-tpu/.runtime))
RUN := $(if $(USE_TPU),.venv-tpu,.venv)
DOCTOR = $(or $(wildcard $(RUN)/bin/python),$(PYTHON))
LOGDIR ?= runs
TESTERS ?= $(shell getconf _NPROCESSORS_ONLN)
# One more, because many slow tests wait for other processes.
test-slow test-all: TESTERS := $(shell expr $(TESTERS) + 1)
PYTEST = $(BIN)/python -m pytest --numprocesses=$(TESTERS) --dist=worksteal
BENCHMARKS ?= step_time memory loop_overhead start scale input_rate tpu_cycles tpu_loop

DOCUMENTED = wgan_gp wgan_gp.config wgan_gp.training.hooks wgan_gp.writers.writer losses models

.PHONY: help setup setup-tpu setup-compile setup-bench train doctor tensorboard test test-slow test-all lint format docs sample-quality judge bench clean

help:  ## lists the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

setup: .venv/.runtime .venv/.development .venv/.compile  ## installs everything for training and development

setup-tpu: .venv-tpu/.runtime  ## installs tensorflow-tpu into .venv-tpu, for training on a TPU

setup-compile: .venv/.compile  ## installs the TPU's compiler for --mode=compile

setup-bench: .venv/.bench .venv/.compile  ## installs PyTorch, which the benchmarks compare with

train: $(RUN)/.runtime  ## trains, by default on scikit-learn's digits; needs no network
	$(RUN)/bin/python train.py $(ARGS)

# Nothing is installed: it also checks an environment that is incomplete or not in .venv.
doctor:  ## checks the installation, the TPU and the buckets; ARGS="--tpu=NAME --model_dir=..."
	@$(DOCTOR) -c "import absl" 2>/dev/null || \
		{ echo "error: nothing is installed — run make setup, or make setup-tpu on a TPU VM" >&2; exit 2; }
	@$(DOCTOR) train.py --mode=doctor $(ARGS)

# These programs leave the chips of a TPU VM to training, because one process at a time can use them.
tensorboard sample-quality: export TPU_LOAD_LIBRARY := 0

tensorboard: $(RUN)/.runtime  ## shows the runs under $(LOGDIR) at http://localhost:6006
	$(RUN)/bin/tensorboard --logdir $(LOGDIR)

test: lint .venv/.compile  ## lint and the fast tests, in about 5 minutes; ARGS go to pytest
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: .venv/.development .venv/.compile .venv/.extras  ## the tests that `make test` leaves out
	$(PYTEST) -m slow $(ARGS)

test-all: lint .venv/.compile .venv/.extras  ## lint and all tests, in about 25 minutes
	$(PYTEST) $(ARGS)

lint: .venv/.development  ## style, types and the layers of wgan_gp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.development  ## fixes style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

sample-quality: $(RUN)/.runtime  ## checks the samples of the runs under runs/ (train them first)
	$(RUN)/bin/python -m benchmarks.sample_quality $(ARGS)

judge: sample-quality

docs: .venv/.development  ## writes the API reference to build/api/index.html
	$(BIN)/python -m pdoc --docformat google --output-directory build/api $(DOCUMENTED)

bench: setup-bench  ## measures speed for an hour; BENCHMARKS=step_time runs one benchmark
	@set -e; for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name $(ARGS); done

clean:  ## removes .venv, .venv-tpu and caches, but no runs
	rm -rf .venv .venv-tpu .mypy_cache .pytest_cache .ruff_cache build *.egg-info

# A stamp is newer than its requirements only after pip has succeeded, so an interrupted installation
# is repeated.
.venv/.runtime: requirements.txt requirements-base.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

.venv-tpu/.runtime: requirements-tpu.txt requirements-base.txt
	$(PYTHON) -m venv .venv-tpu
	.venv-tpu/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-tpu.txt
	@touch $@

.venv/.compile: requirements-compile.txt .venv/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-compile.txt
	@touch $@

.venv/.extras: requirements-extras.txt .venv/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-extras.txt
	@touch $@

.venv/.bench: requirements-bench.txt .venv/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-bench.txt
	@touch $@

.venv/.development: requirements-dev.txt .venv/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@
