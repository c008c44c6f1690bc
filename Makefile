# The two commands of the README are `make demo` and `make test`; each sets up all it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin
MARK := .venv/installed

.PHONY: install demo test lint types unit browser bench clean

install: $(MARK)

$(MARK): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(MARK)

demo: install
	$(BIN)/headwise demo

test: lint types unit

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

unit: install browser
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

# Debian's chromium for the tests of pages, where it is missing and may be installed.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	  echo "*** NO BROWSER: chromium is missing and cannot be installed; the tests of pages are LEFT OUT ***"

bench: install
	$(BIN)/headwise bench train
	$(BIN)/headwise bench decode

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
