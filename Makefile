# `make demo` and `make test` do everything; each builds its environment the first time.
PYTHON ?= python3
INSTALL = -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEFINITION = pyproject.toml constraints.txt

.PHONY: demo test check wheel core robot clean

demo: .venv/.core-ready
	.venv/bin/bot demo

test: check core robot
	OMP_NUM_THREADS=1 .venv/bin/pytest -m 'not alone' --numprocesses auto --maxprocesses 8 --dist loadfile
	.venv/bin/pytest -m alone $$(grep -rl --include='*.py' 'mark\.alone' tests)

check: .venv/.dev-ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

# The wheel, and its software bill of materials in CycloneDX.
wheel: .venv/.dev-ready
	rm -rf build/wheel
	.venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	.venv/bin/python tools/dependencies.py sbom build/wheel/*.whl

# The package as a user gets it: built, installed without any extra, used from outside the source tree.
core: wheel
	test -d .venv-core || $(PYTHON) -m venv .venv-core
	.venv-core/bin/python $(INSTALL) build/wheel/*.whl
	.venv-core/bin/python $(INSTALL) --no-deps --force-reinstall build/wheel/*.whl
	.venv-core/bin/python -I tests/core_only.py

# The package as a robot's computer gets it: without its dependencies, with NumPy and ONNX Runtime.
robot: wheel
	rm -rf build/robot
	.venv/bin/python tests/robot_export.py build/robot
	test -d .venv-robot || $(PYTHON) -m venv .venv-robot
	.venv-robot/bin/python $(INSTALL) -r requirements-robot.txt
	.venv-robot/bin/python $(INSTALL) --no-deps --force-reinstall build/wheel/*.whl
	.venv-robot/bin/python -I tests/robot_only.py build/robot

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
	rm -rf .venv .venv-core .venv-robot build dist runs
