# Every target prepares what it needs: a fresh machine has only Python >= 3.11 and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# what the sandbox needs and no more: a fresh machine has it in half the time
PLAY   := .venv-sandbox
NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
CODE   := agent crds operator sandbox tests tools

.DEFAULT_GOAL := help
.PHONY: help sandbox venv check lint types imports generated test test-cluster lab lab-down bench generate format lock clean

help: ## Explain every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

sandbox: $(PLAY)/.ready ## A whole cluster in one process, until Ctrl-C (ARGS="--nodes 1")
	@$(PLAY)/bin/dracpu-sandbox up $(ARGS)

$(PLAY)/.ready: requirements/sandbox.txt pyproject.toml
	@$(NEW_ENOUGH)
	@echo "installing the sandbox into $(PLAY), once ..."
	@$(PYTHON) -m venv $(PLAY)
	@$(PLAY)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/sandbox.txt
	@$(PLAY)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

venv: $(READY) ## Create .venv with the pinned dependencies and this project
$(READY): requirements/dev.txt pyproject.toml
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

check: lint types imports generated ## Lint, types, import rules, generated files up to date

lint: $(READY) ## ruff: style and common mistakes
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: $(READY) ## mypy --strict
	$(BIN)/mypy $(CODE)

imports: $(READY) ## import-linter: the rooms' import rules
	$(BIN)/lint-imports

generated: $(READY) ## Fail when a generated file (CRDs, protobuf messages) is not what its source makes
	$(BIN)/python tools/generate.py --check

generate: $(READY) ## Write the CRDs and the protobuf messages anew
	$(BIN)/python tools/generate.py

test: $(READY) ## Everything that needs no root and no cluster
	$(BIN)/pytest -n auto $(ARGS)

# the build is not the tests' time: it takes ten minutes on a machine that has nothing yet
LAB = PYTHONPATH=tests/cluster $(BIN)/python -m lab
lab: $(READY) ## Build what the cluster tests run on: Kubernetes, containerd, runc, a kernel (needs root and Go)
	$(LAB) build

test-cluster: lab ## The real cluster: builds it when missing, needs root (ARGS=-k..., LAB_KEEP=1, LAB_REUSE=1)
	$(BIN)/pytest tests/cluster --durations 10 $(ARGS)

lab-down: $(READY) ## Stop a cluster that LAB_KEEP=1 kept
	$(LAB) down

bench: $(READY) ## Speed and memory, printed as tables
	$(BIN)/python -m pytest tests/bench -s --timeout 900 $(ARGS)

format: $(READY) ## Format the code and mend what ruff can mend
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

LOCK = $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
       --custom-compile-command "make lock" --quiet
lock: $(READY) ## Resolve requirements/*.txt from pyproject.toml
	for extra in agent operator sandbox dev; do $(LOCK) pyproject.toml --extra $$extra --output-file requirements/$$extra.txt; done
	echo hatchling | $(LOCK) - --constraint requirements/dev.txt --output-file requirements/build.txt

clean: ## Remove what the targets made here (the cluster's binaries stay in the user's cache)
	rm -rf $(VENV) $(PLAY) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
