# ENC: `make` alone lists what can be done here.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

# Compiled tests are kept even where this is set: otherwise each worker compiles all of them in each run.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup quick test soak mutation check bench demo docs clean release lock

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with the locked dependencies

$(STAMP): requirements.lock pyproject.toml scripts/venv scripts/jars src/enc/dataview/lake/jars.py
	@scripts/venv "$(PYTHON)" "$(VENV)"
	@touch $@

quick: $(STAMP) ## run the fast tests: no process, Spark, browser, crash, document or sweep test
	@$(BIN)/python -m pytest -n 2 --dist worksteal --quick

test: $(STAMP) ## run all tests
	@scripts/test-packages
	@$(BIN)/python -m pytest -n 2 --dist worksteal

soak: $(STAMP) ## run the random sweeps TIMES as long (default 20)
	@ENC_SOAK=$(or $(TIMES),20) $(BIN)/python -m pytest -n 2 --dist worksteal -m sweep

mutation: $(STAMP) ## change MODULE in one place at a time; tests must fail (default: all listed modules)
	@$(BIN)/python -m scripts.mutate $(MODULE)

check: $(STAMP) ## ruff, mypy --strict, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(STAMP) ## measure speed, each figure beside its lower bound
	@$(BIN)/python benchmarks/run.py

demo: $(STAMP) ## a narrated tour with real processes; KEEP=1 leaves it running
	@$(BIN)/python examples/demo.py $(if $(KEEP),--keep) $(ARGS)

docs: $(STAMP) ## generate docs/commands.md and docs/api.md from the program
	@$(BIN)/python -m scripts.pages

clean: ## remove everything that was built
	@rm -rf "$(VENV)" build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

release: $(STAMP) ## build the distributions in dist/, install them elsewhere and try them
	@scripts/release

lock: ## pin the newest allowed dependencies into requirements.lock (needs uv)
	@uv pip compile --quiet --universal --generate-hashes --no-header --group dev --extra dataview \
		pyproject.toml -o requirements.lock
