# Every target sets up .venv by itself, with uv when it is installed, else with venv and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test check bench format clean

help:
	@echo "make demo    five agents live: one solves, one loops and is stopped, its twin is not, ..."
	@echo "make test    all tests, with coverage"
	@echo "make check   ruff, mypy --strict, import rules, docs"
	@echo "make bench   what tidegauge costs, as ratios beside their marks"
	@echo "make format  put the code into ruff's form"
	@echo "make clean   remove .venv and caches"

$(READY): pyproject.toml src/tidegauge/_version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "tidegauge needs Python 3.11 or newer: make PYTHON=python3.12" >&2; exit 2; }
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --clear --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python -e '.[dev]'; \
	else \
	  $(PYTHON) -m venv --clear $(VENV) && $(BIN)/python -m pip install --quiet -e '.[dev]'; \
	fi
	@touch $@

demo: $(READY)
	@$(BIN)/tidegauge demo $(ARGS)

test: $(READY)
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q docs README.md tests/unit/test_docs.py

bench: $(READY)
	@$(BIN)/python -m benchmarks $(ARGS)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
