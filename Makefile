# `make demo` and `make test` do everything; each builds its environment the first time.
PYTHON ?= python3
INSTALL = -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEFINITION = pyproject.toml constraints.txt

.PHONY: demo test check core clean

demo: .venv/.core-ready
	.venv/bin/bot inspect humanoid --out runs/demo

test: check core
	.venv/bin/pytest

check: .venv/.dev-ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

# The package as a user gets it: built, installed without any extra, used from outside the source tree.
core: .venv-core/.ready
	.venv-core/bin/python $(INSTALL) --no-deps --force-reinstall .
	.venv-core/bin/python -I tests/core_only.py

.venv/.core-ready: $(DEFINITION)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; this is " + sys.version)'
	$(PYTHON) -m venv .venv
	.venv/bin/python $(INSTALL) -e .
	touch $@

.venv/.dev-ready: .venv/.core-ready
	.venv/bin/python $(INSTALL) -e '.[imitation,rl,deploy,dev]'
	touch $@

.venv-core/.ready: $(DEFINITION)
	$(PYTHON) -m venv .venv-core
	.venv-core/bin/python $(INSTALL) .
	touch $@

clean:
	rm -rf .venv .venv-core build dist runs
