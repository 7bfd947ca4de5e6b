# `make train` and `make test` create .venv if it does not exist. With --tpu=local, `make train` also
# installs jax and libtpu there, as `make setup-tpu` does. TensorFlow's own TPU runtime needs
# tensorflow-tpu, which must not be installed together with tensorflow, and another libtpu. It is
# therefore in a folder of its own, .venv-tensorflow-tpu.
# ARGS passes arguments to train.py, pytest and the benchmarks: make train ARGS="--seed=1"

PYTHON ?= python3
BIN := .venv/bin
# What programs need: jax for the TPU of this machine, tensorflow-tpu for another TPU or with
# --runtime=tensorflow, and else TensorFlow. tensorflow-tpu is also used if only it is installed.
LOCAL := $(filter --tpu=local -tpu=local,$(subst -tpu local,-tpu=local,$(ARGS)))
REMOTE := $(if $(LOCAL),,$(filter --tpu% -tpu%,$(ARGS)))
STAMP := $(if $(LOCAL),.venv/.tpu,.venv/.runtime)
OTHER := .venv-tensorflow-tpu/.runtime
ONLY_OTHER := $(if $(filter %-runtime=pjrt,$(ARGS))$(wildcard $(STAMP)),,$(wildcard $(OTHER)))
OF_TENSORFLOW := $(and $(LOCAL),$(filter %-runtime=tensorflow,$(ARGS)))
NEEDED := $(if $(REMOTE)$(OF_TENSORFLOW)$(ONLY_OTHER),$(OTHER),$(STAMP))
RUN := $(patsubst %/,%,$(dir $(NEEDED)))
DOCTOR = $(or $(wildcard $(RUN)/bin/python),$(PYTHON))
LOGDIR ?= runs
TESTERS ?= $(shell getconf _NPROCESSORS_ONLN)
# One more, because many slow tests wait for other processes.
test-slow test-all: TESTERS := $(shell expr $(TESTERS) + 1)
PYTEST = $(BIN)/python -m pytest --numprocesses=$(TESTERS) --dist=worksteal
BENCHMARKS ?= step_time memory loop_overhead compilers start scale input_rate tpu_cycles tpu_loop

.PHONY: help setup setup-tpu setup-gpu setup-tensorflow-tpu setup-compile setup-bench train doctor tensorboard test test-slow test-all lint format flags docs sample-quality judge bench clean

help:  ## lists the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 22

setup: .venv/.runtime .venv/.development .venv/.compile  ## installs everything for training and development

setup-tpu: .venv/.tpu  ## installs TensorFlow, jax and libtpu, for training on a TPU VM

setup-gpu: .venv/.gpu  ## installs TensorFlow and jax with CUDA, for training on NVIDIA GPUs

setup-tensorflow-tpu: $(OTHER)  ## installs tensorflow-tpu, for --tpu=NAME and its strategies

setup-compile: .venv/.compile  ## installs the TPU's compiler for --mode=compile

setup-bench: .venv/.bench .venv/.compile  ## installs PyTorch, which the benchmarks compare with

train: $(NEEDED)  ## trains, by default on scikit-learn's digits; needs no network
	$(RUN)/bin/python train.py $(ARGS)

# Nothing is installed: it also checks an environment that is incomplete or not in .venv.
doctor:  ## checks the installation, the TPU and the buckets; ARGS="--tpu=NAME --model_dir=..."
	@$(DOCTOR) -c "import absl" 2>/dev/null || \
		{ echo "error: nothing is installed — run make setup, make setup-tpu or make setup-gpu" >&2; exit 2; }
	@$(DOCTOR) train.py --mode=doctor $(ARGS)

# These programs leave the chips of a TPU VM to training, because one process at a time can use them.
tensorboard sample-quality: export TPU_LOAD_LIBRARY := 0

tensorboard: $(NEEDED)  ## shows the runs under $(LOGDIR) at http://localhost:6006
	$(RUN)/bin/tensorboard --logdir $(LOGDIR)

test: lint .venv/.compile  ## lint and the fast tests, in about 5 minutes; ARGS go to pytest
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: .venv/.development .venv/.compile .venv/.extras  ## the tests that `make test` leaves out
	$(PYTEST) -m slow $(ARGS)

test-all: lint .venv/.compile .venv/.extras  ## lint and all tests, in about 30 minutes
	$(PYTEST) $(ARGS)

lint: .venv/.development  ## style, types and the layers of wgan_gp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.development  ## fixes style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

sample-quality: $(NEEDED)  ## checks the samples of the runs under runs/ (train them first)
	$(RUN)/bin/python -m benchmarks.sample_quality $(ARGS)

judge: sample-quality

flags: .venv/.development  ## writes docs/flags.md
	$(BIN)/python -c "import flags; print(flags.reference(), end='')" > docs/flags.md

docs: export NO_MKDOCS_2_WARNING := 1
docs: .venv/.development  ## writes the documentation as a site to build/site/index.html
	$(BIN)/python -m mkdocs build $(ARGS)

bench: setup-bench  ## measures speed for two hours; BENCHMARKS=step_time runs one benchmark
	@set -e; for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name $(ARGS); done

clean:  ## removes the environments and caches, but no runs
	rm -rf .venv .venv-tensorflow-tpu .mypy_cache .pytest_cache .ruff_cache build *.egg-info

# A stamp is newer than its requirements only after pip has succeeded, so an interrupted installation
# is repeated.
.venv/.runtime: requirements.txt requirements-base.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(OTHER): requirements-tensorflow-tpu.txt requirements-base.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# jax requires a later Python than the rest.
HAS_JAX = $(BIN)/python -c "import sys; sys.exit(sys.version_info < (3, 11) and 'error: jax requires \
	Python 3.11 or later — run make clean, and add PYTHON=python3.11 to this command')"

.venv/.tpu: requirements-compile.txt

.venv/.tpu .venv/.gpu: .venv/.%: requirements-%.txt .venv/.runtime
	@$(HAS_JAX)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-$*.txt
	@touch $@

.venv/.compile: requirements-compile.txt .venv/.runtime
	@$(HAS_JAX)
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
