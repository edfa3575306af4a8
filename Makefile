# Two commands do everything: `make demo` and `make test`. Both set up what they need and reuse what is there.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
READY := .venv/.ready
RUN := .venv/bin/
# Many tests wait for a server or a lease, so there may be more of them at once than cores.
WORKERS ?= 5

# Where it is set, each of a thousand processes would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check lint stress bench format lock clean
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## A pipeline on real lakeFS, Conductor and Spark, with bad input and killed executors
	@$(RUN)perago demo

test: lint ## Lint, types, import directions and all tests, real servers included
	@test "$$PERAGO_TEST_SERVERS" = skip || $(RUN)perago dev provision
	@$(RUN)pytest --numprocesses $(WORKERS) --dist loadscope

check: lint ## The quick checks: no servers, under a minute
	@$(RUN)pytest tests/unit

stress: $(READY) ## The long runs: 500 workflows under kills, the deep explorer, tests tried on broken code
	@PERAGO_STRESS=500 $(RUN)pytest --numprocesses 0 -s tests/e2e/test_many_workflows.py
	@PERAGO_EXPLORER=deep $(RUN)pytest --numprocesses 2 tests/explorer
	@$(RUN)python -m tests.mutations

bench: $(READY) ## Benchmarks; the latest table is kept in bench/RESULTS.md
	@$(RUN)python -m bench

lint: $(READY)
	@$(RUN)ruff check .
	@$(RUN)ruff format --check .
	@$(RUN)pyright
	@$(RUN)lint-imports

format: $(READY) ## Format the code and fix what can be fixed
	@$(RUN)ruff check --fix .
	@$(RUN)ruff format .

lock: $(UV) ## Choose dependency versions anew within pyproject.toml's ranges
	@$(UV) lock --upgrade
	@$(UV) export --quiet --all-extras --all-groups --no-emit-project --no-header --output-file requirements.lock

clean: ## Remove the virtual environment and tools of this checkout
	@rm -rf .venv .tools .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# Versions and hashes come from requirements.lock; --no-deps proves that it is complete.
$(READY): requirements.lock pyproject.toml Makefile $(UV)
	@echo "Setting up .venv"
	@$(UV) venv --quiet --allow-existing --python ">=3.11" .venv
	@$(UV) pip sync --python .venv/bin/python --require-hashes requirements.lock
	@$(UV) pip install --quiet --python .venv/bin/python --no-deps --editable .
	@touch $@

.tools/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: Perago needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Installing uv into .tools"
	@$(PYTHON) -m venv .tools \
	  || { rm -rf .tools; echo "error: this Python cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@.tools/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.8,<1" \
	  || { rm -rf .tools; echo "error: uv could not be downloaded; install it yourself and run this again" >&2; exit 1; }
