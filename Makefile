# Every target sets up what it needs: python3 and make are enough.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/ready

.DEFAULT_GOAL := help
.PHONY: help serve test lint bench clean

help: ## show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (a minute the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

serve: $(READY) ## run leftoff (for now: look at the library and this machine)
	@$(BIN)/leftoff doctor

test: $(READY) ## run the tests
	@$(BIN)/python -m pytest

lint: $(READY) ## check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(READY) ## measure the engine, the cache and the eviction policies
	@$(BIN)/python -m bench.engine
	@$(BIN)/python -m bench.cache
	@$(BIN)/python -m bench.policies

clean: ## remove everything that the other targets made
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
