# All targets set up what they need; `make demo` and `make test` are the two a newcomer runs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TREE   := .build/tree

.PHONY: demo test soak bench check setup tree clean

setup: $(STAMP)

$(STAMP): pyproject.toml scripts/install.sh
	PYTHON="$(PYTHON)" VENV="$(VENV)" bash scripts/install.sh
	@touch $(STAMP)

demo: setup
	$(BIN)/edgespec pull smollm2-135m
	$(BIN)/edgespec run --sources --draft-max 3 -n 100 "Repeat this line three times: The green heron waits by the old mill."

test: setup
	$(BIN)/edgespec pull smollm2-135m
	$(BIN)/python -m pytest

# The full counts of docs/results.md. Needs the real models of the test fixtures; some hours on two cores, two of them a steady load.
soak: setup
	$(BIN)/edgespec pull smollm2-135m
	$(BIN)/python -m pytest -m "soak or not soak"

# A first look, some minutes. Add options for more: docs/cli.md.
bench: setup
	$(BIN)/edgespec pull smollm2-135m
	$(BIN)/edgespec bench --prompts 3 -n 64

# tui/ and models/ are installed inside the package; the type checker and the import linter read one tree.
tree:
	@rm -rf $(TREE) && mkdir -p $(TREE)
	@cp -r edgespec $(TREE)/edgespec
	@cp -r tui models $(TREE)/edgespec/

check: setup tree
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd $(TREE) && PYTHONPATH=. ../../$(BIN)/mypy --cache-dir ../../.mypy_cache --config-file ../../pyproject.toml -p edgespec
	cd $(TREE) && ../../$(BIN)/lint-imports ../../pyproject.toml --no-cache

clean:
	rm -rf $(VENV) .build build *.egg-info
