PYTHON ?= python

.PHONY: test lint format

# All tests on every installed backend; KERAS_BACKEND=jax picks one.
test:
	$(PYTHON) -m tools.test_backends -q -n 2 --dist loadfile --no-loadscope-reorder --durations=30

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .
