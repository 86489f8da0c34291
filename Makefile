# Two commands: `make html` builds the documentation, `make test` runs the tests that a change needs.
# Each creates what it needs in .venv; only Python >= 3.10 and make are asked of the machine.

VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
COMMA := ,
SPHINXOPTS ?=
PYTEST_OPTS ?= -n auto --dist worksteal
MATRIX_OPTS ?=
HYPOTHESIS ?= many
WEEKLY ?= -s weekly

# The first interpreter that is new enough; `make PYTHON=python3.12 …` overrules.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python3.10 python,\
	$(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 && echo $(p))))

.DEFAULT_GOAL := help
.PHONY: help html check test test-all screenshots measure matrix weekly upgrade benchmark accuracy oracle schema transcript messages dist lint format clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*##/\1\t/p' $(MAKEFILE_LIST) | expand -t 12

# requirements/*.txt say exactly what is installed on each Python that pyproject.toml lists; another Python gets what its
# ranges allow. $(1) is such a file, $(2) the same as ranges, $(3) how long it takes.
define install
@if $(BIN)/python -c 'import sys; sys.exit(":: %d.%d\"" % sys.version_info[:2] not in open("pyproject.toml").read())'; then \
	echo "Installing $(1) into $(VENV): about $(3)"; \
	$(PIP) --require-hashes --requirement $(1) && $(PIP) --no-deps --no-build-isolation --editable .; \
else \
	echo "$$($(BIN)/python --version) is not tested. Installing the newest packages that pyproject.toml allows into $(VENV): about $(3)"; \
	$(PIP) --editable '$(2)'; \
fi
@touch $@
endef

# A new list of packages begins with an empty environment.
$(VENV)/pyvenv.cfg: requirements/package.txt requirements/development.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	echo "Python 3.10 or newer is needed$(if $(PYTHON), and $(PYTHON) is not). Name one with: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)

$(BIN)/.package: $(VENV)/pyvenv.cfg pyproject.toml
	$(call install,requirements/package.txt,.,15 s)

$(BIN)/.ready: $(BIN)/.package
	$(call install,requirements/development.txt,.[docs$(COMMA)completion$(COMMA)test],40 s)

html: $(BIN)/.ready  ## build the documentation into docs/_build/html
	@echo "Building the pages. The first time, the form on the page hardware takes a minute of reading without a new line."
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

measure: html  ## how long the pages are, and how long 500 runs take to filter in a browser
	$(BIN)/python tests/browser/measure.py

matrix: $(BIN)/.ready  ## the supported versions and the built wheel, each in an environment of its own
	@mkdir -p .nox && rm -f .nox/report.json
	@$(BIN)/nox --report .nox/report.json $(MATRIX_OPTS); status=$$?; \
	$(BIN)/python tests/matrix/table.py .nox/report.json; exit $$status

weekly: $(BIN)/.ready  ## the newest packages, and the oldest with their newest dependencies; says which one fails
	@$(BIN)/nox $(WEEKLY)

upgrade: $(BIN)/.ready  ## renew requirements/*.txt
	@$(BIN)/nox --session upgrade
	@git diff --stat requirements

# Other ways to the same tables have an environment of their own; BENCHMARK_OPTS=--quick leaves out 10,000 runs.
BENCHMARK_OPTS ?=

.venv-benchmark/.ready: tests/benchmarks/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-benchmark
	.venv-benchmark/bin/python -m pip install --quiet --disable-pip-version-check -r $< --editable .
	@touch $@

benchmark: .venv-benchmark/.ready $(BIN)/.ready  ## write docs/benchmarks.json and print what the page Speed shows
	.venv-benchmark/bin/python tests/benchmarks/compare.py $(BENCHMARK_OPTS)
	$(BIN)/python tests/benchmarks/estimates.py

# The oracle has an environment of its own, since PyTorch is large. Where another index has its CPU build:
# make oracle ORACLE_PIP='--index-url https://download.pytorch.org/whl/cpu --extra-index-url https://pypi.org/simple'
ORACLE_PIP ?=

oracle: $(BIN)/.ready  ## trace training steps with PyTorch (an environment of its own) and compare the estimator
	$(PYTHON) -m venv .venv-oracle
	.venv-oracle/bin/python -m pip install --quiet --disable-pip-version-check $(ORACLE_PIP) -r tests/oracle/requirements.txt
	.venv-oracle/bin/python tests/oracle/trace.py
	$(BIN)/python tests/oracle/compare.py

accuracy: $(BIN)/.ready  ## write data/accuracy.yaml from the cases
	@$(BIN)/verl-resources backtest --data data --record data/accuracy.yaml

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
