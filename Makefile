# make demo | serve | test | check | test-full | bench | soak; `make help` lists them all.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
RUNS := .venv/.runs
# Compiling every module that is installed takes ten seconds, and most are never imported.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Else every process of the tests would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo serve docs check format test test-engine test-browser test-clients test-full bench soak live-check calibrate drift rig gpu-day examples pages types openapi lock pin-images

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

setup: $(STAMP) ## make .venv with the `advisor` command in it

$(STAMP): pyproject.toml requirements-dev.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $(STAMP) $(RUNS)

$(RUNS): pyproject.toml requirements.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -r requirements.txt
	$(PIP) --no-deps 'psutil>=7' --editable .
	@touch $(RUNS)

demo: $(RUNS) ## the main job through the real API and worker, against a local Hub; checks itself
	scripts/count $(BIN)/python -m tests.demo

serve: $(RUNS) ## API, worker and embedded Valkey in one command, on port 8000
	$(BIN)/advisor serve

docs: setup ## the documentation as a site of files, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: setup ## format, lint, types, docs, known dangers in code and dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python scripts/openapi.py --check
	$(BIN)/python scripts/write_types.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m scripts.audit
	$(BIN)/python -m pytest -q -m 'not full' tests/test_docs.py tests/test_rooms.py

format: setup ## write the format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Three processes on two cores: a third of the time of tests of programs, hosts and streams is waiting. What `make check`
# tests of documents and imports is not tested here again.
test: setup ## the default run: no network, three to five minutes on two cores
	$(BIN)/python -m pytest -n 3 --dist worksteal -m 'not full' $(addprefix --ignore tests/,test_docs.py test_rooms.py)

test-engine: setup ## build llama.cpp's tools once, into a cache folder
	PYTHON=$(BIN)/python bash scripts/build_engine.sh

drift: setup ## what a source tree has that the known build has not: SOURCE=path [BEFORE=tree of the known build]
	$(BIN)/python -m rig.drift $(SOURCE) $(if $(BEFORE),--before $(BEFORE))

rig: setup ## build an engine on cards whose memory is only addresses: SOURCE=path or llama-cpp-python's .tar.gz
	$(BIN)/python -m rig.build $(SOURCE)

gpu-day: MINUTES = 30
gpu-day: setup ## what only a real card can tell, measured for MINUTES=30 into OUT=gpu-day; ENGINE_DIRS=folders of built engines, DRY_RUN=1: the plan
	$(BIN)/python -m rig.gpu_day --minutes $(MINUTES) --out $(or $(OUT),gpu-day) $(addprefix --engine-dir ,$(ENGINE_DIRS)) $(if $(DRY_RUN),--dry-run)

test-browser: setup ## fetch axe-core, by which tests in a browser check accessibility
	npm ci --prefix tests/browser --silent --no-audit --no-fund

test-clients: setup ## fetch what tests use of npm: a linter, generators of clients, types of Discord
	npm ci --prefix tests/clients --silent --no-audit --no-fund

test-full: test-engine test-browser test-clients ## all examples of all properties, PostgreSQL, Chromium, the built engine, 60 s of fuzzing, kills in the middle of things
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'full or hypothesis' --hypothesis-profile=thorough
	scripts/count $(BIN)/python -m bench.soak --seconds 30 --seed 1
	scripts/count $(BIN)/python -m bench.contract.payloads --seconds 30 --seed 1
	scripts/count $(BIN)/python -m bench.contract --examples 3 --seed 1

BENCHES := memory replay speed effects at_once nearby residuals quality words effort advice advise_cpu bounds headers \
	round_trip planner never_worse stability judgment worker_memory bots one_server board api
bench: setup ## every benchmark that docs quote, for hours; the last outputs are kept in bench/results/
	for name in $(BENCHES); do $(BIN)/python -m bench.$$name | tee bench/results/$$name.txt; done
	$(BIN)/python -m bench.speed --own | tee bench/results/speed_own.txt
	$(BIN)/python -m bench.api --postgres | tee bench/results/api_postgresql.txt
	$(BIN)/python -m bench.api --minutes 30 | tee bench/results/api_memory.txt
	for on in "" --postgres; do $(BIN)/python -m bench.costs $$on; done | tee bench/results/costs.txt
	for by in "" --postgres "--as ipv6" "--as accounts"; do $(BIN)/python -m bench.fairness $$by; done | tee bench/results/fairness.txt

SECONDS_OF_SOAK ?= 600
SEED ?= 1
MINUTES ?= 40
INPUTS ?= 1000000
EXAMPLES ?= 60
soak: setup ## kills and pauses for MINUTES=40, long fuzzing; SECONDS_OF_SOAK=600 INPUTS=1000000 EXAMPLES=60 SEED=1; outputs are kept in bench/results/
	$(BIN)/python -m bench.soak --seconds $(SECONDS_OF_SOAK) --seed $(SEED) | tee bench/results/soak.txt
	$(BIN)/python -m bench.contract.payloads --seconds $(SECONDS_OF_SOAK) --seed $(SEED) | tee bench/results/payloads.txt
	$(BIN)/python -m bench.contract --examples $(EXAMPLES) --seed $(SEED) | tee bench/results/schemathesis.txt
	$(BIN)/python -m bench.fuzz_headers --inputs $(INPUTS) --seed $(SEED) | tee bench/results/fuzz_headers.txt
	$(BIN)/python -m bench.chaos --minutes $(MINUTES) --seed $(SEED) | tee bench/results/chaos.txt

live-check: setup ## hold the real Hub to what the local one of the tests does; needs the network, never part of CI
	$(BIN)/python -m scripts.live_check

calibrate: setup ## fit the speed model to published runs: writes calibration.json, prints errors before and after
	$(BIN)/python -m bench.calibrate
	$(BIN)/python -m bench.published

examples: setup ## run the docs' commands, and write what they print into the pages that show it
	$(BIN)/python -m tests.doc_blocks.writing
	$(BIN)/python -m tests.bots.conversation

pages: setup ## write the tables and the plot of docs/speed.md from the calibration
	$(BIN)/python -m bench.pages

types: setup ## write the mainline rows of the type table from the gguf package
	$(BIN)/python scripts/write_types.py

openapi: setup ## write openapi/openapi.json from the app
	$(BIN)/python scripts/openapi.py

lock: setup ## write requirements*.txt from pyproject.toml 
	$(BIN)/uv pip compile pyproject.toml --extra server --extra postgres --no-header --no-emit-index-url --no-annotate --python-version 3.11 --generate-hashes -q -o requirements.txt
	$(BIN)/uv pip compile pyproject.toml --extra agent --group build --no-header --no-emit-index-url --no-annotate --python-version 3.11 --generate-hashes -q -o requirements-agent.txt
	$(BIN)/uv pip compile pyproject.toml --extra server --extra postgres --extra agent --group dev --no-header --no-emit-index-url --no-annotate --python-version 3.11 --generate-hashes -q -o requirements-dev.txt

pin-images: setup ## write the digests of their images into compose.yaml and the Dockerfile; needs Docker and the network
	$(BIN)/python -m scripts.pin_images
