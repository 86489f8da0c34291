# Two commands: `make html` builds the documentation, `make test` runs the tests that a change needs.
# Each creates what it needs in .venv; only Python >= 3.10 and make are asked of the machine.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
COMMA := ,
SPHINXOPTS ?=
PYTEST_OPTS ?= -n auto --dist worksteal
MATRIX_OPTS ?=
HYPOTHESIS ?= many
WEEKLY_OPTS ?= -s weekly

# The version of an interpreter; empty if it is older than 3.10 or does not run.
version = $(shell $(1) -c 'import sys; v = sys.version_info; print("%d.%d" % v[:2] if v >= (3, 10) else "")' 2>/dev/null)

# `make PYTHON=python3.12 …` chooses the interpreter, and replaces an environment that has another.
ifeq ($(origin PYTHON),undefined)
PYTHON = $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python3.10 python,$(if $(call version,$(p)),$(p))))
else ifeq ($(call version,$(PYTHON)),)
$(error Python 3.10 or newer is needed; PYTHON=$(PYTHON) is older or does not run)
else ifneq ($(call version,$(PYTHON)),$(call version,$(BIN)/python))
.PHONY: $(VENV)/pyvenv.cfg
endif

.DEFAULT_GOAL := help
.PHONY: help html check test test-all screenshots matrix weekly upgrade accuracy oracle schema transcript messages dist lint format clean

help:  ## show this list
	@awk -F ':.*## +' '/^[a-z-]+:.*## /{printf "%-12s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

# requirements/*.txt say exactly what is installed on each Python that pyproject.toml lists; on another, its ranges do.
listed = grep -q ":: $$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')\"" pyproject.toml
# $(1) is such a file, $(2) the same as ranges, $(3) the same in words, with the time that it takes.
define install
@echo "Installing $(3)"
@if $(listed); then \
	$(PIP) --require-hashes --requirement $(1) && $(PIP) --no-deps --no-build-isolation --editable .; \
else \
	$(PIP) --upgrade --editable '$(2)'; \
fi
@touch $@
endef

# A new list of packages begins with an empty environment.
$(VENV)/pyvenv.cfg: requirements/package.txt requirements/development.txt
	@test -n "$(PYTHON)" || { echo "Python 3.10 or newer is needed; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { rm -f $@; exit 1; }
	@$(listed) || echo "$$($(BIN)/python --version) is not tested: it gets the newest packages that pyproject.toml allows"

$(BIN)/.package: $(VENV)/pyvenv.cfg pyproject.toml
	$(call install,requirements/package.txt,.[scripts],the package into $(VENV): about 15 s)

$(BIN)/.ready: $(BIN)/.package
	$(call install,requirements/development.txt,.[docs$(COMMA)test],what documentation and tests need: about 40 s)

html: $(BIN)/.ready  ## build the documentation into docs/_build/html
	@test -d docs/_build/html || echo "Building the pages: about 1 minute, most of it for the form on the page hardware"
	$(BIN)/python -m sphinx -j auto -b html $(SPHINXOPTS) docs docs/_build/html
	@echo "The pages are in docs/_build/html; see hardware.html and memory.html"

check: $(BIN)/.package  ## check the recorded runs and registries
	@$(BIN)/verl-resources check data

test: $(BIN)/.ready  ## run the tests that a change needs, ruff and mypy included: minutes
	$(BIN)/python -m pytest $(PYTEST_OPTS) -m 'not slow and not matrix'

test-all: $(BIN)/.ready  ## run these and the others: browsers, parallel builds, adoption, many examples
	$(BIN)/python -m pytest $(PYTEST_OPTS) -m 'not matrix' --hypothesis-profile=$(HYPOTHESIS)

screenshots: $(BIN)/.ready  ## pictures of the pages in every theme and width, to be looked at
	@rm -rf docs/_build/screenshots
	$(BIN)/python tests/browser/screenshots.py

matrix: $(BIN)/.ready  ## the supported versions and the built wheel, each in an environment of its own
	@mkdir -p .nox && rm -f .nox/report.json
	@$(BIN)/nox --report .nox/report.json $(MATRIX_OPTS); status=$$?; \
	$(BIN)/python tests/matrix/table.py .nox/report.json; exit $$status

weekly: $(BIN)/.ready  ## the newest packages, and the oldest with their newest dependencies; says which one fails
	@$(BIN)/nox $(WEEKLY_OPTS)

upgrade:  ## renew requirements/*.txt
	@$(PYTHON) -m venv build/upgrade
	@build/upgrade/bin/python -m pip install --quiet --disable-pip-version-check nox
	@build/upgrade/bin/nox --session upgrade

# The oracle has an environment of its own, since PyTorch is large. Where another index has its CPU build:
# make oracle ORACLE_PIP='--index-url https://download.pytorch.org/whl/cpu --extra-index-url https://pypi.org/simple'
ORACLE_PIP ?=

oracle: $(BIN)/.ready  ## trace training steps with PyTorch (an environment of its own) and compare the estimator
	$(PYTHON) -m venv .venv-oracle
	.venv-oracle/bin/python -m pip install --quiet --disable-pip-version-check $(ORACLE_PIP) -r tests/oracle/requirements.txt
	.venv-oracle/bin/python tests/oracle/trace.py
	$(BIN)/python tests/oracle/compare.py

accuracy: $(BIN)/.ready  ## write data/accuracy.yaml from the cases
	@$(BIN)/python tools/accuracy.py

schema: $(BIN)/.ready  ## write data/schema from the models
	$(BIN)/verl-resources schema --output data/schema

transcript: $(BIN)/.ready  ## record the two minutes of the page "Contributing a run"
	$(BIN)/python tools/transcript.py

messages: $(BIN)/.ready  ## bring the message catalogs up to date and compile them
	$(BIN)/python tools/messages.py

# The addresses in the metadata come from the remote `origin`, or from REPOSITORY=https://github.com/OWNER/NAME.
REPOSITORY ?=

dist: $(BIN)/.ready  ## build wheel and sdist into dist/, check them, and install the wheel
	@$(BIN)/python tools/distribution.py "$(REPOSITORY)" dist
	@rm -rf build/empty && $(PYTHON) -m venv build/empty
	@build/empty/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	@build/empty/bin/verl-resources --version

lint: $(BIN)/.ready  ## ruff and mypy alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(BIN)/.ready  ## let ruff put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove what was built
	rm -rf docs/_build dist build
