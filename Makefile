# Each target does all of its own set-up and is quick the second time.
VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
ARCHIVE := $(VENV)/.archive

.PHONY: demo test lint bench bench-quick faults clean setup java
.DEFAULT_GOAL := help

help:
	@echo "make demo         mirror between two real Kafka clusters on this machine, and compare both sides"
	@echo "make test         lint, and run every test"
	@echo "make lint         ruff and mypy --strict"
	@echo "make bench        side by side with both Java MirrorMakers (about an hour)"
	@echo "make bench-quick  the same in about 5 minutes"
	@echo "make faults       kill, freeze and restart mirrors and brokers under load, and count every record (about an hour)"
	@echo "make clean        remove everything that was set up here"

setup: java $(READY) $(ARCHIVE)

# Spark needs Java 17 or newer; it is installed where that can be done without asking.
java:
	@sh scripts/java.sh

$(READY): pyproject.toml
	@sh scripts/venv.sh $(VENV)
	@touch $(READY)

# Takes seconds off every start of Spark; where it cannot be made, everything works without it.
$(ARCHIVE): $(READY)
	@$(PYTHON) -m mirrormaker.spark.class_archive || echo "going on without it" >&2
	@touch $(ARCHIVE)

demo: setup
	$(PYTHON) -m mirrormaker.cli demo $(ARGS)

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# What some tests need and are skipped without: a browser and promtool, a KDC. Kafka's jars come meanwhile.
test: setup
	@sh scripts/kafkas.sh $(VENV) & fetching=$$!; sh scripts/tools.sh $(VENV); sh scripts/kerberos.sh $(VENV); \
	$(MAKE) --no-print-directory lint; linted=$$?; wait $$fetching; exit $$linted
# Two at a time, file by file; then those that measure, which want the machine for themselves.
ifdef ARGS
	$(VENV)/bin/pytest $(ARGS)
else
	$(VENV)/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not alone"
	$(VENV)/bin/pytest -m alone
endif

bench: setup
	$(PYTHON) -m bench $(ARGS)

bench-quick: setup
	$(PYTHON) -m bench --quick $(ARGS)

faults: setup
	$(PYTHON) -m faults $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
