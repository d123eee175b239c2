# make demo   sets up and runs the main job (ARGS=--once ends when it has settled)
# make test   sets up and passes the tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test slow lint types real e2e e2e-control bench soak web look pictures clean

demo: $(VENV)/.installed
	$(BIN)/dray demo $(ARGS)

test: $(VENV)/.dev
	$(BIN)/pytest -m "not real and not slow" -n auto $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks

types: $(VENV)/.dev
	$(BIN)/mypy

# Thousands of random clusters, on all cores.
slow: $(VENV)/.dev
	$(BIN)/pytest -m "slow and not real" --ignore tests/web -n auto --timeout 900 $(ARGS)

# One after the other: they measure out what the upstream programs get of the machine.
real: $(VENV)/.dev
	$(BIN)/pytest -m real --timeout 900 $(ARGS)

# Random scenarios on all cores; ARGS="--count 1000", "--seed 7" and others are in tests/simulate/soak.py
soak: $(VENV)/.dev
	$(BIN)/python -m tests.simulate.soak $(ARGS)

e2e: $(VENV)/.dev
	$(BIN)/pytest tests/real/test_e2e_specs.py $(ARGS)

# The same specs on a real kube-apiserver with Dray's scheduler, controllers and nodes; ARGS="--only sig-auth --lanes 2"
e2e-control: $(VENV)/.dev
	$(BIN)/python -m tests.real.e2e_control $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(ARGS)

# The page: from web/ into src/dray/web/assets, for those who change it. Needs node and npm.
web: web/node_modules
	cd web && npx tsc --noEmit -p . && node build.mjs

# Tests that use the page in Chromium (apt-get install chromium). pictures: and put what they see into docs/pictures.
look: $(VENV)/.page
	$(BIN)/pytest tests/web -m slow --timeout 300 $(ARGS)

pictures: $(VENV)/.page
	DRAY_PICTURES=1 $(BIN)/pytest tests/web/test_pictures.py -n 0 -k shows --timeout 300

$(VENV)/.page: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[page]'
	@touch $@

web/node_modules: web/package-lock.json
	cd web && npm ci --no-audit --no-fund --silent
	@touch $@

$(VENV)/.installed: pyproject.toml
	@echo "Setting up $(VENV); the first time this takes a minute …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@echo "Adding the tools for tests to $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
