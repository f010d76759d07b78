# Every target sets itself up in .venv: a fresh clone needs only make and Python 3.11 or newer.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PINS   := constraints.txt
INPUTS := pyproject.toml $(PINS)
# -c holds every package, pip itself included, to its pinned version; two -q leave only errors.
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c $(PINS)
EDITABLE    := --build-constraint $(PINS) --editable
PYTEST      := $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo toy test test-slow test-all test-hosts lint format bench pages screenshots fuzz \
        docs constraints clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | \
	  while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

demo: $(VENV)/demo.stamp ## compare ways of training on a data set; report in build/demo
	@$(BIN)/hitrate compare car --out build/demo

toy: $(VENV)/demo.stamp ## train the toy example; table on screen, picture in build/toy
	@$(BIN)/python -m hitrate_lab.toy --out build/toy

test: lint ## lint, then the tests for every change: five minutes on two cores
	@$(PYTEST) -m 'not slow' --ignore tests/hosts

test-slow: $(VENV)/dev.stamp ## only the thorough tests, which `make test` leaves out
	@$(PYTEST) -m slow --ignore tests/hosts

test-all: lint ## lint, then every test, the thorough ones too; hosts have their own
	@$(PYTEST) --ignore tests/hosts

test-hosts: $(VENV)/hosts.stamp ## install transformers, Lightning and others, and test in them
	@$(PYTEST) tests/hosts tests/lab/datasets/test_encoders.py tests/lab/cli/test_encoder_option.py tests/lab/studies/text/test_fine_tuning.py

lint: $(VENV)/dev.stamp ## check format, style and types
	@$(BIN)/ruff format --check --quiet . || { echo "Run 'make format' to mend the format."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy

format: $(VENV)/dev.stamp ## rewrite the sources in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/dev.stamp ## measure speed and error; results in build/bench
	@$(BIN)/python benchmarks/run.py --out build/bench

pages: $(VENV)/dev.stamp ## write the tables and pictures of README and docs from committed results
	@$(BIN)/python -m hitrate_lab.pages

screenshots: $(VENV)/dev.stamp ## photograph two reports for README and docs; needs Chromium
	@$(BIN)/python -m hitrate_lab.pages.screenshots

# make fuzz TARGETS=model_folders CASES=10000 SEED=0, for one; each is a module of tests/fuzz.
fuzz: $(VENV)/dev.stamp ## hostile input until MINUTES or CASES are over, or LONG=1; see build/fuzz
	@cd tests && PYTHONPATH=. ../$(BIN)/python -m fuzz $(TARGETS) --out ../build/fuzz \
	  $(if $(MINUTES),--minutes $(MINUTES)) $(if $(CASES),--cases $(CASES)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(JOBS),--jobs $(JOBS)) $(if $(LONG),--long)

docs: $(VENV)/dev.stamp ## build the documentation into build/docs
	@$(BIN)/sphinx-build -q -W --keep-going docs build/docs
	@echo "Open build/docs/index.html"

constraints: ## pin the newest packages that work together (torch keeps its version)
	@rm -rf build/constraints && mkdir -p build/constraints
	@grep '^torch==' $(PINS) > build/constraints/torch.txt
	@$(PYTHON) -m venv build/constraints/venv
	@cd build/constraints && venv/bin/pip install -qq -c torch.txt --upgrade pip
	@build/constraints/venv/bin/pip install -qq -c build/constraints/torch.txt \
	  --group dev --group hosts --editable '.[all]' hatchling editables setuptools
	@build/constraints/venv/bin/pip install -qq -c build/constraints/torch.txt --no-deps \
	  --group hosts-alone
	@{ sed '/^[^#]/,$$d' $(PINS); \
	   build/constraints/venv/bin/pip freeze --all --exclude-editable | sed 's/+[a-z0-9.]*$$//'; \
	 } > build/constraints/new.txt
	@mv build/constraints/new.txt $(PINS)
	@rm -rf build/constraints

clean: ## remove .venv, build/ and caches
	@rm -rf $(VENV) build dist docs/generated .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: a step runs again only when the project's metadata or the pins have changed.

$(VENV)/pip.stamp: $(INPUTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "hitrate needs Python 3.11 or newer, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)"; \
	  echo "Name another one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) (needed once; torch is a large download) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) pip
	@touch $@

$(VENV)/demo.stamp: $(VENV)/pip.stamp
	@$(PIP_INSTALL) $(EDITABLE) '.[cli]' matplotlib
	@touch $@

$(VENV)/dev.stamp: $(VENV)/pip.stamp
	@$(PIP_INSTALL) $(EDITABLE) . --group dev
	@touch $@

$(VENV)/hosts.stamp: $(VENV)/dev.stamp
	@$(PIP_INSTALL) --group hosts
	@$(PIP_INSTALL) --no-deps --group hosts-alone
	@touch $@
