# Every target installs what it needs; a machine has to have only Python >= 3.11 and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# only the dependencies of the sandbox, which install in half the time
PLAY   := .venv-sandbox
NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
CODE   := agent crds operator sandbox tests tools

.DEFAULT_GOAL := help
.PHONY: help sandbox venv check lint types imports generated record test test-cluster lab lab-down bench bench-operator bench-claims generate format lock clean

help: ## Explain every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

sandbox: $(PLAY)/.ready ## Run a whole cluster in one process, until Ctrl-C (ARGS="--nodes 1")
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

check: lint types imports generated ## Check style, types, import rules and generated files

lint: $(READY) ## Check style and common mistakes with ruff
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: $(READY) ## Check types with mypy --strict
	$(BIN)/mypy $(CODE)

imports: $(READY) ## Check with import-linter which packages may import which
	$(BIN)/lint-imports

generated: $(READY) ## Check that the generated files (CRDs, protobuf messages) are up to date
	$(BIN)/python tools/generate.py --check

generate: $(READY) ## Generate the CRDs and the protobuf messages
	$(BIN)/python tools/generate.py

record: $(READY) ## Record what the sandbox and the tests keep of a real Kubernetes (ARGS=v1.37.1; needs Go and its binaries)
	PYTHONPATH=tests/support:tests/cluster $(BIN)/python tools/record.py $(ARGS)

test: $(READY) ## Run all tests that need neither root nor a cluster
	$(BIN)/pytest -n auto --dist worksteal $(ARGS)

# a target of its own, because the first build takes ten minutes
LAB = PYTHONPATH=tests/cluster $(BIN)/python -m lab
lab: $(READY) ## Build Kubernetes, containerd, runc and a kernel for the cluster tests (needs root and Go)
	$(LAB) build

test-cluster: lab ## Run the tests on a real cluster, as root (ARGS=-k..., LAB_KUBERNETES=v1.36.3, LAB_KEEP=1, LAB_REUSE=1)
	$(BIN)/pytest tests/cluster --durations 10 $(ARGS)

lab-down: $(READY) ## Stop a cluster that LAB_KEEP=1 kept
	$(LAB) down

bench: $(READY) ## Measure speed and memory, print tables
	$(BIN)/python -m pytest tests/bench -s --timeout 900 $(ARGS)

bench-operator: $(READY) ## Measure the operator on a real API server with up to 15,000 nodes (ARGS=--sizes=500,1500)
	PYTHONPATH=tests/support:tests/cluster:tests/bench $(BIN)/python -m fleet $(ARGS)

bench-claims: $(READY) ## Measure what following claims costs on a real API server (ARGS="--nodes=500 --claims=5000")
	PYTHONPATH=tests/support:tests/cluster:tests/bench $(BIN)/python -m fleet.claims $(ARGS)

format: $(READY) ## Format the code and fix what ruff can fix
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

LOCK = $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
       --custom-compile-command "make lock" --quiet
lock: $(READY) ## Resolve requirements/*.txt from pyproject.toml
	for extra in agent operator sandbox dev; do $(LOCK) pyproject.toml --extra $$extra --output-file requirements/$$extra.txt; done
	echo hatchling | $(LOCK) - --constraint requirements/dev.txt --output-file requirements/build.txt

clean: ## Remove what the targets created here; the cluster's programs stay in the user's cache
	rm -rf $(VENV) $(PLAY) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
