# Each target does all of its own set-up and is quick the second time.
VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip install --quiet --disable-pip-version-check
READY := $(VENV)/.ready
ARCHIVE := $(VENV)/.archive

.PHONY: help setup java demo unit unit-all lint test dist bench bench-quick faults fuzz clean
.PHONY: test-setup test-packages kerberos jars other-python
.DEFAULT_GOAL := help

help:
	@echo "make setup        what the program needs: Java, and Python packages in $(VENV)"
	@echo "make demo         mirror between two real Kafka clusters on this machine, and compare both sides"
	@echo "make unit         ruff and the unit tests (about a minute): after every change"
	@echo "make unit-all     the unit tests on every Python from 3.11 to 3.13 that this machine has"
	@echo "make lint         ruff, mypy --strict, and the imports between packages"
	@echo "make test         lint, and every test (about 20 minutes on 2 cores); ARGS=... goes to pytest instead"
	@echo "make dist         wheel and source distribution, into dist/"
	@echo "make bench        side by side with both Java MirrorMakers, five times (about an hour; ARGS=\"--rest --minutes N\")"
	@echo "make bench-quick  the same with few records, once (about 8 minutes)"
	@echo "make faults       kill, freeze and restart mirrors and brokers under load, and count every record (about an hour)"
	@echo "make fuzz         give damaged answers of brokers to the code that uses them (an hour; ARGS=\"--minutes N\")"
	@echo "make clean        remove everything that was set up here"

setup: java $(READY) $(ARCHIVE)

# Spark needs Java 17 or newer.
java:
	@sh scripts/packages.sh $(VENV) java

$(PYTHON):
	@sh scripts/venv.sh $(VENV)

$(READY): pyproject.toml | $(PYTHON)
	@echo "installing dependencies into $(VENV) (a minute or two, once)" >&2
	@$(PIP) --editable '.[dev]'
	@touch $@

# An archive of Spark's classes takes seconds off every start of Spark. Everything works without it.
$(ARCHIVE): $(READY) | java
	@$(PYTHON) -m mirrormaker.spark.archive_builder || echo "going on without an archive of Spark's classes" >&2
	@touch $@

demo: setup
	$(PYTHON) -m mirrormaker.cli demo $(ARGS)

# One unit test asks Java itself how it reads a properties file.
unit: java $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/pytest tests/unit -n 2 -q $(ARGS)

unit-all: java $(READY)
	@sh scripts/pythons.sh $(VENV) all

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo

# The steps of the set-up wait for the network, mostly, so they run at the same time as each other and as lint.
test:
	@$(MAKE) --no-print-directory -j 8 test-setup lint
ifdef ARGS
	$(VENV)/bin/pytest $(ARGS)
else
	@sh scripts/test.sh $(VENV)
endif

test-setup: $(ARCHIVE) test-packages kerberos jars other-python

# After java: apt-get runs once at a time.
test-packages: java
	@sh scripts/packages.sh $(VENV) browser promtool kerberos

kerberos: $(READY) test-packages
	@sh scripts/kerberos.sh $(VENV)

# After $(READY): the Ivy that downloads Kafka comes with PySpark.
jars: $(READY)
	@sh scripts/jars.sh $(VENV)

# After $(READY), whose downloads it finds in pip's cache, and after the packages that gssapi is compiled with.
other-python: $(READY) test-packages
	@sh scripts/pythons.sh $(VENV) newest install

dist: $(READY)
	$(PYTHON) -m build

bench: setup
	$(PYTHON) -m bench $(ARGS)

bench-quick: setup
	$(PYTHON) -m bench --quick $(ARGS)

faults: setup
	$(PYTHON) -m faults $(ARGS)

fuzz: $(READY)
	$(PYTHON) -m fuzz $(ARGS)

clean:
	rm -rf $(VENV) .venv-3.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
