# make demo | test | lint | types | bench | prove | mutants
#
# Needs make and Python 3.11 or newer, nothing else. Everything is installed into $(VENV).
#   make test ARGS="tests/unit -k queue"             arguments for the tool behind the target
#   make test PYTHON=python3.12 VENV=.venv312        another interpreter, in a venv of its own

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

# An interpreter that was asked for by name is used or refused. The default may fall back on these.
ifeq ($(origin PYTHON),file)
CANDIDATES = $(PYTHON) python3.13 python3.12 python3.11
else
CANDIDATES = $(PYTHON)
endif

RUN = $(VENV)/bin/python
PIP = $(RUN) -m pip --quiet --disable-pip-version-check

.PHONY: demo test lint types bench prove prove-agents prove-disk mutants same-python
.DEFAULT_GOAL := test

demo: $(VENV)/.installed-demo
	$(VENV)/bin/indelible model fetch
	$(VENV)/bin/indelible demo $(ARGS)

# Two processes, each with whole files, since the tests of one share what was costly to make.
test: $(VENV)/.installed-dev
	$(RUN) -m pytest -n 2 --dist loadfile $(ARGS)

lint: $(VENV)/.installed-dev
	$(RUN) -m ruff check $(ARGS)
	$(RUN) -m ruff format --check $(ARGS)

types: $(VENV)/.installed-dev
	$(RUN) -m mypy
	$(RUN) -m pyright --pythonpath $(RUN)

bench: $(VENV)/.installed-dev
	$(RUN) bench/run.py $(ARGS)

# Every point of every example and of the researcher, and every power cut, I/O fault and flipped byte; takes some minutes.
# With -j2 --output-sync=target both halves run at once.
prove: prove-agents prove-disk

prove-agents: $(VENV)/.installed-dev
	$(RUN) -m indelible prove --full $(ARGS) examples/sync_tool_agent.py "Compare tea suppliers"
	$(RUN) -m indelible prove --full $(ARGS) examples/async_gather_agent.py "rain wind"
	$(RUN) -m indelible prove --full $(ARGS) examples/payments_agent.py "A-1 A-2"
	$(RUN) -m indelible prove --full $(ARGS) --model scripted --corpus tests/prove/corpus \
	  "What does the price of tea depend on?"

prove-disk: $(VENV)/.installed-dev
	INDELIBLE_FULL_SWEEPS=1 $(RUN) -m pytest tests/crash/test_power_loss.py tests/crash/test_io_faults.py \
	  tests/crash/test_bit_rot.py tests/crash/test_kill_sweep_stores.py tests/simulation/test_sweep_stores.py

# Every planted fault, and what catches it; words in ARGS choose some.
mutants: $(VENV)/.installed-dev
	$(RUN) -m tests.mutants $(ARGS)

$(VENV)/.installed-demo: pyproject.toml $(RUN) | same-python
	$(PIP) install --editable '.[local]'
	@touch $@

# The dev extra contains the local one, so this installation serves the demo as well.
$(VENV)/.installed-dev: pyproject.toml $(RUN) | same-python
	$(PIP) install --editable '.[dev]'
	@touch $(VENV)/.installed-demo $@

# A command can exist and yet not run (a version manager's shim does that), so each candidate is run.
$(RUN):
	@found=; bare=; \
	for py in $(CANDIDATES); do \
	  "$$py" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  "$$py" -c 'import ensurepip, venv' 2>/dev/null || { bare="$$bare $$py"; continue; }; \
	  found=$$py; break; \
	done; \
	if [ -z "$$found" ] && [ -n "$$bare" ]; then \
	  echo "make:$$bare cannot make a virtual environment; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; \
	elif [ -z "$$found" ]; then \
	  echo "make: Python 3.11 or newer is needed; none of these is that: $(CANDIDATES). Name one: make PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	"$$found" -m venv --clear '$(VENV)' || { rm -rf '$(VENV)'; exit 1; }

# An existing venv keeps the Python it was made with; say so when another one was asked for.
same-python: $(RUN)
ifneq ($(origin PYTHON),file)
	@want=$$("$(PYTHON)" -c 'import sys; print(*sys.version_info[:2], sep=".")') && \
	have=$$($(RUN) -c 'import sys; print(*sys.version_info[:2], sep=".")') && \
	if [ "$$want" != "$$have" ]; then \
	  echo "make: $(VENV) holds Python $$have, $(PYTHON) is $$want; add VENV=.venv$$want" >&2; exit 1; \
	fi
endif
