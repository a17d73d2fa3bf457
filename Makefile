# Everything runs in .venv, which is made once and again only when pyproject.toml or constraints.txt change.
PYTHON ?= python3
BIN := .venv/bin
FILES := pyproject.toml constraints.txt

.PHONY: demo test test-long coverage docs slow benchmarks clean

demo: .venv/.installed
	$(BIN)/glassformer demo

test: .venv/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 -m "not slow and not long"

test-long: .venv/.installed-dev  # every command of the README and docs/, the wheel, several processes
	$(BIN)/pytest -n 2 -m long

coverage: .venv/.installed-dev
	$(BIN)/pytest -n 2 -m "not slow" --cov

docs: .venv/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

slow: .venv/.installed-dev
	$(BIN)/pytest -m slow

benchmarks: .venv/.installed-dev  # SHORT=--short for a few minutes; PEERS for other toolkits: see benchmarks/everything.py
	$(BIN)/python benchmarks/everything.py $(SHORT) $(PEERS)

clean:
	rm -rf .venv build dist site

.venv/bin/python:
	$(PYTHON) -m venv .venv

# torch alone and pinned first: asked for by a range, pip would fetch the CUDA build.
.venv/.installed: .venv/bin/python $(FILES)
	$(BIN)/pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
