# Every target sets up what it needs: python3 and make are enough.
PYTHON  ?= python3
BIN     := .venv/bin
# Python compiles what it imports; to compile all the rest as well takes more than a quarter of the installation.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt
READY   := .venv/ready
DEV     := .venv/ready-dev

.DEFAULT_GOAL := help
.PHONY: proofs mutants clients help serve chat demo test coverage lint lint-types lint-style lint-page vendor bench simulate wheel release-check engine-check image ways formula clean

help: ## show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (the first time only)"
	@$(INSTALL) --editable .
	@touch $@

$(DEV): $(READY)
	@echo "installing what tests and checks need"
	@$(INSTALL) --editable '.[dev]'
	@touch $@

serve: $(READY) ## run the server: the model that comes with leftoff, or MODEL=path.gguf
	@$(BIN)/leftoff serve $(MODEL)

chat: $(READY) ## talk to the model in this terminal; MODEL=path.gguf for another
	@$(BIN)/leftoff chat $(MODEL)

demo: $(READY) ## see what the cache does, off against on
	@$(BIN)/leftoff demo $(MODEL)

test: $(DEV) ## run the tests
	@$(BIN)/python -m pytest

# The whole suite takes about twice as long as `make test` when it is measured. The floor comes from a part of it: without
# tests/engine, tests/behaviour and the tests in tests/ itself, 94.1 % of leftoff/ was run. To measure some folders only:
#   make coverage TESTS="tests/cache tests/chat" FLOOR=0
TESTS ?= tests
coverage: $(DEV) ## run the tests and print how much of leftoff/ they run; fails below the floor in pyproject.toml
	@$(BIN)/python -m pytest --cov --cov-report=term $(if $(FLOOR),--cov-fail-under=$(FLOOR)) $(TESTS)

# mypy takes nearly all of the time, on one core: the rest is checked beside it.
lint: $(DEV) ## check style and types
	@$(MAKE) --no-print-directory -j2 lint-types lint-style lint-page

lint-style: $(DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

lint-types: $(DEV)
	@$(BIN)/mypy

NODE := lab/page/node_modules
$(NODE)/ready: lab/page/package.json
	@npm install --prefix lab/page --no-package-lock --no-audit --no-fund --silent && touch $@ || echo "npm could not install them"

lint-page: $(if $(shell command -v npm),$(NODE)/ready) ## check style and types of the page, where npm is there
	@if [ ! -e $(NODE)/ready ]; then echo "leftoff/page is not checked: it takes npm, and what lab/page/package.json names"; else \
		$(NODE)/.bin/biome check --config-path=lab/page leftoff/page && $(NODE)/.bin/tsc -p lab/page; fi

vendor: $(READY) ## fetch the libraries of the page again, at the versions in lab/page/vendor.py; needs npm
	@$(BIN)/python -m lab.page.vendor

bench: $(DEV) ## measure the engine, the cache, the eviction policies, drafts and the server
	@$(BIN)/python -m lab.speed.engine
	@$(BIN)/python -m lab.speed.cache
	@$(BIN)/python -m lab.speed.policies
	@$(BIN)/python -m lab.speed.grammar
	@$(BIN)/python -m lab.speed.restart
	@$(BIN)/python -m lab.speed.long
	@if command -v redis-server >/dev/null; then $(BIN)/python -m lab.speed.router; else echo "no redis-server: the router is not measured"; fi
	@$(BIN)/python -m lab.speed.drafts
	@$(BIN)/python -m lab.speed.server leftoff/models/leftoff-tiny-q8_0.gguf

simulate: $(DEV) ## play a trace of real agents against the cache's policies and those of others
	@$(BIN)/python -m lab.simulate

proofs: $(DEV) ## the slow proofs: 500 histories, with and without drafts, 20,000 sampled tokens, tool loops of 50 turns, 200 kills of the disk store and of the server, failures of all parts of a fleet, ten minutes of soak, 10,000 mutated requests, 500 schemas
	@$(BIN)/python -m tests.behaviour.histories embedded 500 --deterministic
	@$(BIN)/python -m tests.behaviour.histories embedded 500 --batch 32 --ubatch 32
	@$(BIN)/python -m tests.behaviour.histories embedded 500 --drafts --noise --batch 32 --ubatch 32
	@$(BIN)/python -m tests.drafts.distribution 20000
	@$(BIN)/python -m tests.drafts.greedy 100
	@$(BIN)/python -m tests.behaviour.tool_loop 50
	@$(BIN)/python -m tests.disk.kill_loop 200
	@$(BIN)/python -m tests.store.kill_loop 100
	@$(BIN)/python -m tests.store.prove
	@$(BIN)/python -m tests.cluster.prove
	@$(BIN)/python -m tests.behaviour.kill_server 200
	@$(BIN)/python -m tests.behaviour.soak --minutes 10
	@$(BIN)/python -m tests.behaviour.mutated 10000
	@LEFTOFF_FULL=1 $(BIN)/python -m pytest tests/grammar/test_schema_random.py
	@$(BIN)/python -m lab.page.speed

SEED ?= 1
SAMPLE ?= 300
mutants: $(DEV) ## change the code in 300 places, one at a time, and list the changes that no test finds; SEED= and SAMPLE= pick them
	@$(BIN)/python -m lab.mutants --seed $(SEED) --sample $(SAMPLE)

clients: $(DEV) ## play real clients from npm and PyPI against a server, and write docs/clients.md; needs npm and the network
	@$(BIN)/python -m lab.clients --markdown docs/clients.md

wheel: $(DEV) ## build the wheel and the source archive into dist/
	@rm -rf dist && $(BIN)/python -m build

release-check: wheel ## try them in empty environments: pip, uvx, pipx, every Python that is there; needs the network
	@$(BIN)/python -m lab.release

# The models are made with the library of the package: not every build can make one from metadata alone.
ENGINE := build/engine
engine-check: $(DEV) ## install the prebuilt CPU engine from the network, and run the tests of tests/engine/memory on it
	@rm -rf $(ENGINE) && mkdir -p $(ENGINE)
	@$(BIN)/python -m tests.factory $(ENGINE)/models
	@XDG_DATA_HOME=$(ENGINE)/data $(BIN)/leftoff engine install cpu
	@LEFTOFF_LIBLLAMA=$$(ls $(ENGINE)/data/leftoff/engines/cpu/libllama.v* $(ENGINE)/data/leftoff/engines/cpu/xllamacpp* 2>/dev/null) \
		LEFTOFF_TEST_MODELS=$(ENGINE)/models $(BIN)/python -m pytest tests/engine/memory
	@XDG_DATA_HOME=$(ENGINE)/data $(BIN)/leftoff engine remove cpu

TARGET ?= cpu
image: $(READY) ## build the image of deploy/Dockerfile by docker, podman or buildah, and play it; TARGET=cuda or vulkan, BASE=image
	@$(BIN)/python -m lab.start.image --target $(TARGET) $(if $(BASE),--base $(BASE))

ways: wheel ## time the ways to start, each in a fresh container with python3 and nothing else; BASE=image
	@$(BIN)/python -m lab.start.ways $(if $(BASE),--base $(BASE))

formula: wheel ## write the Homebrew formula of the source archive in dist/ to build/leftoff.rb
	@mkdir -p build && $(BIN)/python -m lab.start.formula deploy/homebrew.rb dist > build/leftoff.rb

clean: ## remove everything that the other targets made
	rm -rf $(NODE) .venv build dist *.egg-info .mypy_cache .coverage .pytest_cache .ruff_cache .hypothesis
