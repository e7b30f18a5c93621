# Two commands matter: `make demo` and `make test`. Each sets up what it needs from python3 and make alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(PYTHON) -m tools.setup.run
# Three workers on two cores: much of the suite waits, for time-outs it provokes itself.
# Node and Java may come from the virtual environment or the system: `run` puts the chosen ones on PATH.

.DEFAULT_GOAL := help
.PHONY: help setup demo check test forge lint separate simulate chaos fuzz bench bench-quick tpcds docs synth sbom lock clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## virtual environment, locked dependencies, Node, Java, Spark's jars (seconds when done already)
	@$(PYTHON) -m tools.setup

demo: setup ## the lake at work in the embedded cloud
	@$(RUN) strandline demo $(ARGS)

check: lint ## lint, types, unit and property tests: for the minute between two edits
	@$(RUN) pytest -n 2 tests/unit tests/property $(ARGS)

test: lint separate ## lint, types, import rules and all tests
	@$(RUN) pytest -n 3 $(ARGS)

forge: setup ## N forgeries of leaves, feeds, maps, proofs, attestations and statistics (200,000): none may be believed
	@STRANDLINE_FORGERIES=$(or $(N),200000) $(RUN) pytest -n 0 -q tests/property/changes/test_forgeries.py tests/property/changes/test_forged_rows.py tests/property/timeline/test_forged_proofs.py $(ARGS)

lint: setup ## ruff, mypy, import-linter
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) lint-imports --no-cache

SEEDS ?= 0:1000
simulate: setup ## the whole lake in one thread, with faults: SEEDS=0:1000 or one seed, ARGS=--trace
	@PYTHONHASHSEED=0 $(RUN) python -m tests.simulation --seeds $(SEEDS) $(ARGS)

chaos: setup ## a lake with writers whose functions are killed and frozen for six minutes: nothing is lost, all is back in 30 s
	@$(RUN) python -m tests.chaos $(ARGS)

separate: setup ## LocalStack and TPC-DS's generator, in environments of their own: tests use them
	@$(PYTHON) -m tools.setup.separate

tpcds: setup ## all 99 queries of TPC-DS at SCALE (0.01), in DuckDB and on Spark: the tests take a sample
	@STRANDLINE_TPCDS=all STRANDLINE_TPCDS_SCALE=$(or $(SCALE),0.01) $(RUN) pytest -n 0 -q tests/contract/query/test_tpcds.py tests/spark/test_tpcds.py $(ARGS)

bench: setup ## every figure, as a ratio against a peer in the same run; writes bench/RESULTS.md
	@$(RUN) python -m bench $(ARGS)

docs: setup ## docs/reference, written anew from the code
	@$(RUN) python -m tools.reference

bench-quick: setup ## smaller sizes, in minutes: a first look, kept apart from the real figures
	@$(RUN) python -m bench --quick $(ARGS)

synth: setup ## the CloudFormation templates of the stacks, into cdk.out/
	@$(RUN) python -m infra.app

fuzz: setup ## mutated inputs to everything that reads strangers' bytes, for ten minutes; keeps what fails
	@$(RUN) python -m tests.fuzz $(ARGS)

sbom: setup ## a CycloneDX bill of materials for each image, into build/sbom/, and the licences
	@$(RUN) python -m tools.sbom

lock: setup ## resolve pyproject.toml anew into requirements/*.lock
	@$(RUN) python -m tools.lock

clean: ## remove everything that set-up made
	rm -rf $(VENV) build cdk.out .mypy_cache .ruff_cache .pytest_cache .hypothesis
