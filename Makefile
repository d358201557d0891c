# Everything a contributor runs. Each target makes .venv by itself when that is missing or stale;
# needed beforehand: Python 3.11 or newer, git and make (and Go for `e2e` and `bench`).
PYTHON ?= python3
KUBERNETES ?= 1.36
ARGS ?=

BIN := .venv/bin
READY := .venv/ready
CONTROL_PLANE := tests/e2e/controlplane/build.py
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export VIRTUAL_ENV := $(CURDIR)/.venv
# Compiled once and kept: else every test process, of which there are hundreds, compiles us anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help ready demo test lint types e2e bench crds charts docs pictures growth site lock format clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

ready: $(READY)

$(READY): requirements.lock pyproject.toml $(wildcard providers/*/pyproject.toml providers/*/simulated/pyproject.toml)
	@.ci/bootstrap $(PYTHON)

demo: $(READY) ## Watch pods become nodes and go again, on a cluster inside this machine
	@$(BIN)/karpenter demo $(ARGS)

test: $(READY) ## Run the unit, repository and packaging tests
	KARPENTER_PROPERTY_EXAMPLES=$${KARPENTER_PROPERTY_EXAMPLES:-/10} \
		KARPENTER_RECORDED_EXAMPLES=$${KARPENTER_RECORDED_EXAMPLES-/10} \
		$(BIN)/pytest --workers 4 $(ARGS)

lint: $(READY) ## Check style, formatting and the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: $(READY) ## Format the code and repair what can be repaired by rule
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# A larger young generation takes a sixth off the CPU time of pyright.
types: $(READY) ## Check the types
	NODE_OPTIONS="$${NODE_OPTIONS:---max-semi-space-size=64}" $(BIN)/pyright

e2e: $(READY) ## Run the scenarios on the embedded and on a real control plane (KUBERNETES=1.36)
	@$(BIN)/python $(CONTROL_PLANE) $(KUBERNETES)
	@$(BIN)/python tests/charts/build_helm.py
	$(BIN)/pytest -m e2e tests/e2e tests/sim --kubernetes $(KUBERNETES) $(ARGS)

bench: $(READY) ## Measure scale-up on a real control plane (KUBERNETES=1.36)
	@$(BIN)/python $(CONTROL_PLANE) $(KUBERNETES)
	$(BIN)/python benchmarks/scale_up.py --kubernetes $(KUBERNETES) $(ARGS)

crds: $(READY) ## Write crds/ from the models
	$(BIN)/karpenter crds --provider kwok --output-dir crds
	$(BIN)/karpenter crds --provider aws --output-dir crds
	$(BIN)/karpenter crds --provider alibabacloud --output-dir crds
	$(BIN)/karpenter crds --provider azure --output-dir crds

charts: $(READY) ## Write the parts of charts/ that follow from the code
	$(BIN)/python -m charts.generate --write

docs: $(READY) ## Write the generated parts of the documentation and check the rest
	$(BIN)/python docs/check.py --write

pictures: $(READY) ## Write the pictures of top, the dashboard and reports from a real run (Chromium)
	$(BIN)/python -m tests.dashboard.install
	$(BIN)/python -m tests.dashboard.pictures

growth: $(READY) ## Measure how the CPU time of passes grows with the cluster, and draw it (1 min)
	$(BIN)/python -m benchmarks.passes --write

site: $(READY) ## Write the documentation as a site to build/site, to be opened in a browser
	$(BIN)/sphinx-build -q -n -W --keep-going docs build/site

lock: $(READY) ## Choose the versions of all dependencies anew (network)
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --generate-hashes \
		--no-emit-index-url --custom-compile-command "make lock" --python-version 3.11 \
		--quiet --output-file requirements.lock $(ARGS)

clean: ## Remove what was made here, .venv too
	rm -rf .venv dist build .pytest_cache .ruff_cache .import_linter_cache .hypothesis
