# Each target does its own set-up: a virtual environment with what constraints.txt pins.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo demo-paper test test-slow test-cpus fuzz crash check bench clean

# As if on another CPU: one set of instructions less at a time.
OTHER_CPUS := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2

# A file's tests in one process: what they share is made once.
SPREAD := -n 2 --dist loadfile

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (about a minute, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(STAMP)
	$(BIN)/stssad demo

demo-paper: $(STAMP)
	$(BIN)/stssad demo --paper

test: $(STAMP)
	$(BIN)/python -m pytest $(SPREAD) -m "not slow"

test-slow: $(STAMP)
	$(BIN)/python -m pytest $(SPREAD) -m slow

test-cpus: $(STAMP)
	@for cpu in $(OTHER_CPUS); do \
	  echo "as if on another CPU: $$cpu"; \
	  env $$cpu $(BIN)/python -m pytest $(SPREAD) -q -m "bit_identical and not slow" || exit 1; \
	done

fuzz: $(STAMP)
	$(BIN)/python tests/fuzzing.py --cases 5000

crash: $(STAMP)
	$(BIN)/python tests/crashing.py --moments 20

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[speed]"
	$(BIN)/python benchmarks/suite.py
	$(BIN)/python benchmarks/complexity.py

clean:
	rm -rf $(VENV) build dist *.egg-info
