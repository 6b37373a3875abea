PYTHON ?= python3
VENV ?= .venv
RESULTS ?= results
DIST ?= dist

ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
RUN := $(BIN)/python -m
STAMP := $(VENV)/.installed

EXPERIMENTS := $(sort $(wildcard experiments/*.toml))

.DEFAULT_GOAL := help
.PHONY: help install format check test test-slow test-all smoke compare reproduce wheel clean

help: ## Show this list
	@$(PYTHON) -c "import re; [print(f'{name:10} {text}') for name, text in re.findall(r'(?m)^([a-z-]+):.*?## (.*)', open('Makefile', encoding='utf-8').read())]"

install: $(STAMP) ## Make .venv with everything at the versions of constraints.txt

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) pip install --constraint constraints.txt --editable ".[dev]"
	@$(PYTHON) -c "import pathlib; pathlib.Path('$(STAMP)').touch()"

format: $(STAMP) ## Format the code
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

check: $(STAMP) ## Formatting, lint, types
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy

test: $(STAMP) ## All tests but the slow ones
	$(RUN) pytest -m "not slow"

test-slow: $(STAMP) ## The slow tests only
	$(RUN) pytest -m slow

test-all: $(STAMP) ## All tests
	$(RUN) pytest

smoke: $(STAMP) ## The whole comparison at toy size, under a minute; its numbers mean nothing
	$(RUN) mlmclm compare --smoke --output $(RESULTS)/smoke

compare: $(STAMP) ## The default comparison: tiny, both objectives, three seeds
	$(RUN) mlmclm compare

reproduce: $(STAMP) $(EXPERIMENTS:experiments/%.toml=reproduce-%) ## Every experiment in experiments/

reproduce-%: experiments/%.toml $(STAMP)
	$(RUN) mlmclm compare $< --output $(RESULTS)/$*

wheel: clean $(STAMP) ## Build dist/*.whl
	$(RUN) pip wheel --no-deps --wheel-dir $(DIST) .

clean: ## Remove what was built; keeps .venv, runs and results
	@$(PYTHON) -c "import shutil, pathlib; [shutil.rmtree(path) for pattern in ('build', 'dist', '*.egg-info', '.*_cache') for path in pathlib.Path().glob(pattern)]"
