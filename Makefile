# PYTHON=python3.13 chooses the interpreter; without it the first of these that works is taken. Those that pyenv has
# installed without making them active count as well.
CANDIDATES = $(or $(PYTHON),python3.11 python3.12 python3.13 python3)
PYENV = $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions
INTERPRETERS = $(foreach name,$(CANDIDATES),$(name) $(wildcard $(PYENV)/*/bin/$(name)))
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check
RUN_DIR ?= runs/crazy_climber-$(shell date +%Y%m%d-%H%M%S)
FRAMES ?= 360_000
SEED ?= 1
SUPPORTED = import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
VERSION = import platform; print(platform.python_version())
FIND = for python in $(INTERPRETERS); do if $$python -c '$(SUPPORTED)' 2>/dev/null; then found=$$python; break; fi; done

.PHONY: setup lock train test test-slow test-browser chaos lint clean

setup: $(VENV)/ready
	@$(FIND); if [ -n "$(PYTHON)" ] && [ "$$($$found -c '$(VERSION)' 2>/dev/null)" != "$$($(BIN)/python -c '$(VERSION)')" ]; then \
	  echo "$(VENV) has Python $$($(BIN)/python -c '$(VERSION)'), not $(PYTHON): make clean first, or choose another VENV=DIR" >&2; exit 2; fi

$(VENV)/ready: pyproject.toml requirements.lock
	@$(FIND); if [ -z "$$found" ]; then \
	  echo "Python 3.11, 3.12 or 3.13 with venv is needed, and none of these is one: $(CANDIDATES); install one (apt install python3.11-venv, pyenv install 3.13) or name it: make setup PYTHON=/path/to/python" >&2; exit 2; fi; \
	echo "setting up $(VENV) with $$found (Python $$($$found -c '$(VERSION)'))"; \
	$$found -m venv $(VENV)
	$(PIP) install --quiet --constraint requirements.lock $(TORCH)
	$(PIP) install --quiet --constraint requirements.lock --editable ".[dev,reacher,streams]"
	touch $@

# Records what is installed now as what the next `make setup` installs; torch and its CUDA libraries are chosen by TORCH.
lock:
	$(PIP) freeze --exclude-editable | grep -Ev '^(torch|triton|nvidia-|cuda-|hindcast)|@' > requirements.lock

# One and a half to four minutes on two cores: a small network and batch, and the learning rate of a short run (docs/notes/atari.md).
train: setup
	$(BIN)/python launch.py train --game crazy_climber --task reverse_gvf --torso shallow --batch-size 4 --learning-rate 24e-4 \
	  --frames $(FRAMES) --seed $(SEED) --eval-episodes 5 --film --run-dir $(RUN_DIR)

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
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
