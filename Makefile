# Everything a newcomer needs: `make lab` and `make test` set up what they use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: env lab test demo demo-session lint types walls unit clean

env: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "mtplab needs Python 3.10 or newer; run make PYTHON=python3.11 env"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[pipeline,runtime,dev]'
	@touch $@

lab: env
	@$(BIN)/mtplab lab --or-standin

demo: env
	@$(BIN)/mtplab run --standin $(or $(SCENARIO),normal)

# Records the session that is shipped: everything but the raw logs, which only repeat it.
demo-session: env
	@set -e; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	MTPLAB_SESSIONS="$$work" $(BIN)/mtplab run --standin gpu-partial || test $$? = 3; \
	rm -rf sessions/demo; mkdir -p sessions/demo; \
	cp "$$work"/*/session.json "$$work"/*/events.jsonl sessions/demo/

test: lint types walls unit

lint: env
	$(BIN)/ruff check .

types: env
	$(BIN)/mypy

walls: env
	$(BIN)/lint-imports

unit: env
	$(BIN)/python -m pytest -n 2 --dist loadfile --ignore tests/ui --ignore tests/e2e
	# Terminals are forked: not from a process in which another test has started a converter's threads.
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/ui
	$(BIN)/python -m pytest tests/e2e

clean:
	rm -rf $(VENV) build dist *.egg-info
