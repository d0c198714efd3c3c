PYTHON ?= python3.11
TORCH ?= torch==2.13.0
BIN = .venv/bin
RUN_DIR ?= runs/pong-$(shell date +%Y%m%d-%H%M%S)
FRAMES ?= 500_000

.PHONY: setup train test test-slow test-browser chaos lint clean

setup: .venv/ready

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[dev,streams]"
	touch $@

train: setup
	$(BIN)/python launch.py train --game pong --task reverse_gvf --frames $(FRAMES) --run-dir $(RUN_DIR)
	@echo "look at it: $(BIN)/tensorboard --logdir $(RUN_DIR)"
	@echo "film a game: $(BIN)/python launch.py evaluate --run-dir $(RUN_DIR) --episodes 5 --video"

test: setup
	$(BIN)/python -m pytest

test-slow: setup
	$(BIN)/python -m pytest -m slow

test-browser: setup
	$(BIN)/python -m pytest -m browser -n 0 -rs

chaos: setup
	$(BIN)/python -m pytest tests/faults -m "slow or not slow" -n 0 -s
	$(BIN)/python -m studies.benchmark.soak --frames 3_000_000 --task none --torso shallow --out results/soak/none
	$(BIN)/python -m studies.benchmark.soak --frames 3_000_000 --task reverse_gvf --torso shallow --out results/soak/reverse_gvf

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
