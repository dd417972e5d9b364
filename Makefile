# `make demo` and `make test` do everything; each builds its environment the first time.
PYTHON ?= python3
INSTALL = -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEFINITION = pyproject.toml constraints.txt

.PHONY: demo test check core clean

demo: .venv/.core-ready
	.venv/bin/bot demo

test: check core
	.venv/bin/pytest

check: .venv/.dev-ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

# The package as a user gets it: built, installed without any extra, used from outside the source tree.
core: .venv/.dev-ready
	rm -rf build/wheel
	.venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	test -d .venv-core || $(PYTHON) -m venv .venv-core
	.venv-core/bin/python $(INSTALL) build/wheel/*.whl
	.venv-core/bin/python $(INSTALL) --no-deps --force-reinstall build/wheel/*.whl
	.venv-core/bin/python -I tests/core_only.py

.venv/.core-ready: $(DEFINITION)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; this is " + sys.version)'
	$(PYTHON) -m venv .venv
	@echo installing the core package: about a minute
	.venv/bin/python $(INSTALL) -e .
	touch $@

.venv/.dev-ready: .venv/.core-ready
	@echo installing everything that tests need: two or three minutes
	.venv/bin/python $(INSTALL) -e '.[imitation,rl,deploy,dev]'
	touch $@

clean:
	rm -rf .venv .venv-core build dist runs
