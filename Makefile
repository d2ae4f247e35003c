# Every target sets up .venv, with uv if it is installed, else with venv and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_READY := $(VENV)/.demo
TEST_READY := $(VENV)/.test
DOCS_READY := $(VENV)/.docs
READY := $(VENV)/.ready

PEERS_VENV := .venv-peers
PEERS_READY := $(PEERS_VENV)/.ready
GUARDS_VENV := .venv-guards
GUARDS_READY := $(GUARDS_VENV)/.ready
LOWEST_VENV := .venv-lowest
LOWEST_READY := $(LOWEST_VENV)/.ready
# The oldest releases have wheels for the oldest Python only.
LOWEST_PYTHON ?= $(shell command -v python3.11 || echo $(PYTHON))
KAFKA := .kafka
KAFKA_READY := $(KAFKA)/.ready
COLLECTOR := .collector
COLLECTOR_READY := $(COLLECTOR)/otelcol
COLLECTOR_BUILDER := go.opentelemetry.io/collector/cmd/builder@v0.161.0
LLM_VENV := .venv-llm
LLM_READY := $(LLM_VENV)/.ready
# llama.cpp for processors from 2013 on; a native build may use instructions that the processor lacks.
LLAMA_CMAKE ?= -DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON

.PHONY: help demo demo-llm test test-all test-rest test-fleet test-collector test-lowest test-frameworks test-coding-agents coverage check check-code check-types check-docs docs docs-serve bench bench-instructions bench-peers bench-guards evidence soak dashboards dashboards-types dashboards-preview backends format clean

help:
	@echo "make demo    five agents live: one solves, one loops and is stopped, its twin is not, ..."
	@echo "make demo-llm  a real small language model loops, is nudged, then stopped (builds llama.cpp)"
	@echo "make test    the tests of a few minutes, on every core"
	@echo "make test-all  all tests: slow ones, and those with Prometheus, Kafka and a browser"
	@echo "make test-rest  the tests of test-all that make test omits"
	@echo "make test-fleet  faults of brokers, networks and workers on a cluster of three Kafka brokers"
	@echo "make test-collector  the Collector's configurations, in a Collector that is built first (Go)"
	@echo "make test-lowest  the tests that depend on versions, with the lowest ones in pyproject.toml"
	@echo "make test-frameworks  agents of six frameworks, traced live (downloads them: about 3 GB)"
	@echo "make test-coding-agents  real coding agents with a scripted model, through their hooks (npm)"
	@echo "make coverage  which lines all tests run"
	@echo "make check   ruff, mypy --strict, import rules, prose, the site, the workflow file"
	@echo "make docs    the documentation as a site, in build/site"
	@echo "make docs-serve  the same on http://127.0.0.1:8000, built again when a page changes"
	@echo "make bench   what tidegauge costs, as ratios with their targets"
	@echo "make bench-peers  the same for other tracers, in a separate environment, into docs/performance.md"
	@echo "make bench-guards  the preset beside other guards, in a separate environment: docs/compared.md"
	@echo "make evidence  what the preset stops in recorded runs: DATA=FOLDER"
	@echo "make bench-instructions  costs in instructions (valgrind), which other load does not change, into the docs"
	@echo "make soak    tidegauge serve at half its speed, then under traffic without end: is its memory bounded?"
	@echo "make dashboards  generate Grafana dashboards and Prometheus rules from the catalog"
	@echo "make dashboards-types  check them against Grafana's schema (npm)"
	@echo "make dashboards-preview  draw them with Grafana's libraries over a real Prometheus (npm, chromium)"
	@echo "make backends  traces in Phoenix and MLflow, with pictures (downloads them; chromium)"
	@echo "make format  format the code with ruff"
	@echo "make clean   remove .venv and caches"

# install(EXTRAS): install tidegauge with extras into .venv; create .venv if it is missing. Python compiles
# what is imported; uv and pip need not compile everything.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "tidegauge needs Python 3.11 or newer: make PYTHON=python3.12" >&2; exit 2; }
	@if command -v uv >/dev/null 2>&1; then \
	  { [ -x $(BIN)/python ] || uv venv --quiet \
	      --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV); } && \
	  uv pip install --quiet --python $(BIN)/python -e '.[$(1)]'; \
	else \
	  { [ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV); } && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[$(1)]'; \
	fi
	@touch $@
endef

INPUTS := pyproject.toml src/tidegauge/_version.py

$(DEMO_READY): $(INPUTS)
	$(call install,demo)

$(TEST_READY): $(INPUTS)
	$(call install,test)
	@touch $(DEMO_READY)

$(DOCS_READY): $(INPUTS)
	$(call install,docs)

$(READY): $(INPUTS)
	$(call install,dev)
	@touch $(DEMO_READY) $(TEST_READY) $(DOCS_READY)

demo: $(DEMO_READY)
	@$(BIN)/tidegauge demo $(ARGS)

$(LLM_READY): examples/local_model/requirements.txt
	@echo "setting up $(LLM_VENV): compiling llama.cpp once takes minutes"
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --clear --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(LLM_VENV) && \
	  CMAKE_ARGS="$(LLAMA_CMAKE)" uv pip install --quiet --python $(LLM_VENV)/bin/python -e '.[demo]' -r $<; \
	else \
	  $(PYTHON) -m venv --clear $(LLM_VENV) && \
	  CMAKE_ARGS="$(LLAMA_CMAKE)" $(LLM_VENV)/bin/python -m pip install --quiet -e '.[demo]' -r $<; \
	fi
	@touch $@

demo-llm: $(LLM_READY)
	@$(LLM_VENV)/bin/python examples/local_model/run.py $(ARGS)

# Each process computes in one thread. Tests start hundreds of them: they find compiled files, whatever
# the shell says.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
# A worker per core and one more, because tests wait for processes and servers. A worker runs all tests
# of a file; tests/hostile is spread over all of them.
PARALLEL := --dist loadfile --numprocesses $$($(PYTHON) -c 'import os; print(os.cpu_count() + 1)')
PYTEST := $(TEST_ENV) $(BIN)/pytest $(PARALLEL) --no-loadscope-reorder
QUICK := end_to_end or not (slow or system)

test: $(TEST_READY)
	@$(PYTEST) -m "$(QUICK)" $(ARGS)

test-all: test test-rest

test-rest: $(READY) $(KAFKA_READY)
	@$(PYTEST) -m "not ($(QUICK))" $(ARGS)

# Apache Kafka, from Maven Central. Without Java or Maven there is none, and its tests are skipped.
$(KAFKA_READY): tests/kafka/pom.xml
	@rm -rf $(KAFKA)
	@if command -v java >/dev/null 2>&1 && command -v mvn >/dev/null 2>&1; then \
	  echo "downloading Apache Kafka into $(KAFKA) (50 MB)" && \
	  mvn --batch-mode --quiet -Dstyle.color=never --file $< \
	    dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(KAFKA) && touch $@; \
	fi

test-fleet: $(READY) $(KAFKA_READY)
	@TIDEGAUGE_FLEET=1 $(BIN)/pytest tests/fleet_faults $(ARGS)

# Built by go itself, because the builder would first download modules that nothing needs.
$(COLLECTOR_READY): tests/collector/builder.yaml
	@echo "building an OpenTelemetry Collector in $(COLLECTOR): takes ten minutes"
	@GOBIN=$(CURDIR)/$(COLLECTOR) go install $(COLLECTOR_BUILDER)
	@$(COLLECTOR)/builder --config $< --skip-compilation
	@cd $(COLLECTOR)/source && go build -mod=mod -trimpath -ldflags="-s -w" -o $(CURDIR)/$@ .
	@touch $@

test-collector: $(READY) $(KAFKA_READY) $(COLLECTOR_READY)
	@TIDEGAUGE_COLLECTOR=1 $(BIN)/pytest tests/collector $(ARGS)

test-frameworks: $(READY)
	@TIDEGAUGE_FRAMEWORKS=1 $(BIN)/pytest tests/frameworks $(ARGS)

test-coding-agents: $(READY)
	@TIDEGAUGE_CODING_AGENTS=1 $(BIN)/pytest tests/coding_agents $(ARGS)

# Not in CI: coverage has a lock that stays held if an exception of another thread arrives in it.
coverage: $(READY)
	@$(PYTEST) --cov --cov-report=term $(ARGS)

# Only uv can resolve the lowest versions; if it is missing, pip installs it into the environment.
$(LOWEST_READY): pyproject.toml src/tidegauge/_version.py
	@$(LOWEST_PYTHON) -m venv --clear $(LOWEST_VENV)
	@uv=$$(command -v uv) || { \
	  $(LOWEST_VENV)/bin/python -m pip install --quiet uv && uv=$(LOWEST_VENV)/bin/uv; } && \
	$$uv pip install --quiet --compile-bytecode --python $(LOWEST_VENV)/bin/python \
	  --resolution lowest-direct -e '.[test-lowest]'
	@touch $@

# What depends most on versions: stopping agents, and sending measurements.
LOWEST_TESTS := $(addprefix tests/integration/test_,$(addsuffix .py,langchain_cases langchain_faults \
  langchain_global langchain_middleware langchain_resume langchain_runs langchain_stop \
  langchain_subagents otlp otlp_metrics))

test-lowest: $(LOWEST_READY)
	@TIDEGAUGE_LOWEST=1 $(TEST_ENV) $(LOWEST_VENV)/bin/python -m pytest \
	  $(PARALLEL) --hypothesis-profile=dev -m "not slow" -q -p no:cacheprovider \
	  tests/unit tests/properties src $(LOWEST_TESTS) $(ARGS)

# The variable silences an advertisement.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

check: check-code check-types check-docs

check-code: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell *.md docs src tests examples benchmarks dashboards
	$(BIN)/proselint check --config docs/_site/proselint.json *.md $$(find docs examples -name '*.md')
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

check-types: $(READY)
	$(BIN)/mypy

# Their code blocks are tests.
check-docs: $(READY)
	$(MKDOCS) build

docs: $(DOCS_READY)
	@$(MKDOCS) build

docs-serve: $(DOCS_READY)
	@$(MKDOCS) serve --dev-addr 127.0.0.1:8000

bench: $(READY)
	@$(BIN)/python -m benchmarks $(ARGS)

# install_beside(VENV,TIDEGAUGE,REQUIREMENTS): install it and others into a separate environment.
define install_beside
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --clear --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(1) && \
	  uv pip install --quiet --python $(1)/bin/python -e '$(2)' -r $(3); \
	else \
	  $(PYTHON) -m venv --clear $(1) && \
	  $(1)/bin/python -m pip install --quiet -e '$(2)' -r $(3); \
	fi
	@touch $@
endef

$(PEERS_READY): benchmarks/peers/requirements.txt pyproject.toml
	@echo "setting up $(PEERS_VENV): other tracers, for comparison only"
	$(call install_beside,$(PEERS_VENV),.[demo],$<)

$(GUARDS_READY): benchmarks/guards/requirements.txt pyproject.toml
	@echo "setting up $(GUARDS_VENV): other guards, for comparison only"
	$(call install_beside,$(GUARDS_VENV),.,$<)

bench-peers: $(PEERS_READY)
	@$(PEERS_VENV)/bin/python -m benchmarks.peers $(ARGS)

bench-guards: $(GUARDS_READY)
	@TIDEGAUGE_DATA=$(DATA) $(GUARDS_VENV)/bin/python -W ignore -m benchmarks.guards $(ARGS)

bench-instructions: $(READY)
	@$(BIN)/python -m benchmarks.peers.instructions $(or $(ARGS),--write)

# TIDEGAUGE_DATA is the folder that tests read.
DATA ?= $(or $(TIDEGAUGE_DATA),../shared/data)

evidence: $(READY)
	@$(BIN)/python -m benchmarks preset $(DATA)

soak: $(READY)
	@$(BIN)/python -m benchmarks soak $(ARGS)

dashboards: $(READY)
	@$(BIN)/python -m dashboards

dashboards-types:
	@cd dashboards/schema && npm install --no-package-lock --silent && npm run --silent check

dashboards-preview: $(READY)
	@cd dashboards/preview && npm install --no-package-lock --silent && npm run --silent build
	@$(BIN)/python dashboards/preview/preview.py $(ARGS)
	@$(BIN)/python docs/images/shown.py dashboard-fleet dashboard-run dashboard-diagnosis

backends: $(READY)
	@$(BIN)/python examples/backends/look.py $(ARGS)
	@$(BIN)/python docs/images/shown.py phoenix mlflow

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build $(VENV) $(PEERS_VENV) $(GUARDS_VENV) $(LOWEST_VENV) $(LLM_VENV) .venv-frameworks .coding-agents .backends $(KAFKA) $(COLLECTOR) .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
