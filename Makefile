PYTHON ?= python3
BIN = .venv/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test docs docs-text docs-browser lint clean

demo: .venv/examples.stamp
	$(BIN)/python examples/plot_quickstart.py

test: .venv/test.stamp
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered --cov-fail-under=92

lint: .venv/lint.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The site with its gallery, whose examples are run, two at a time, and with warnings as errors.
# docs-text leaves the examples unrun.
docs: .venv/docs.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

docs-text: .venv/docs.stamp
	$(BIN)/python -m sphinx -W --keep-going -b html -D plot_gallery=0 docs docs/_build/html

# The site in a headless Chromium; skipped where there is none.
docs-browser: docs .venv/test.stamp
	$(BIN)/python -m pytest tests/test_docs_browser.py

# torch comes first and pinned: a bare requirement may take a build with gigabytes of CUDA.
.venv/base.stamp: constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) torch
	touch $@

.venv/%.stamp: .venv/base.stamp pyproject.toml
	$(INSTALL) -e ".[$*]"
	touch $@

.venv/lint.stamp: .venv/base.stamp constraints.txt
	$(INSTALL) ruff
	touch $@

clean:
	rm -rf .venv docs/_build docs/auto_examples docs/reference docs/evidence
