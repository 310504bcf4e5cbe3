PYTHON ?= python

.PHONY: test docs lint types format

# All tests on every installed backend; KERAS_BACKEND=jax picks one.
test:
	$(PYTHON) -m tools.test_backends -q -n 2 --dist loadfile --no-loadscope-reorder --durations=30

# The documentation as a site, in site/index.html; a warning is an error.
docs:
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .
