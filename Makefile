# What run.py does not do alone. Each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test slow lint types real e2e e2e-control bench soak web look pictures clean

demo:
	@$(PYTHON) run.py demo $(ARGS)

test:
	@$(PYTHON) run.py test $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check run.py src tests benchmarks
	$(BIN)/ruff format --check run.py src tests benchmarks

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

$(VENV)/.page: pyproject.toml
	@$(PYTHON) run.py set-up dev page

web/node_modules: web/package-lock.json
	cd web && npm ci --no-audit --no-fund --silent
	@touch $@

$(VENV)/.dev: pyproject.toml
	@$(PYTHON) run.py set-up dev

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
