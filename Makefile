# Every target that needs Python creates `.venv` first if it is missing, incomplete, copied from
# another folder, or older than pyproject.toml or constraints.txt.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# The first of these that runs and is new enough; `make PYTHON=/path/to/python3.12 quick` overrides.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.11 python3; do \
	"$$python" -c '$(NEW_ENOUGH)' 2>/dev/null && { echo "$$python"; break; }; done)

BIN := .venv/bin
# Errors only; `make PIP_FLAGS=--verbose env` prints more.
PIP_FLAGS ?= -qq
PIP := $(BIN)/python -m pip --disable-pip-version-check install $(PIP_FLAGS) -c constraints.txt
# Written last, with the folder it was created in: console scripts and the editable install hold
# absolute paths, so a copied `.venv` would run the code of the original.
STAMP := .venv/.complete

.PHONY: help env quick full site test slow chaos isolated mutation lint format types imports cards docs \
	audits transcripts claims libraries reproduction findings benchmarks timings tutorial lock clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '  make %-11s %s\n' "$$name" "$$text"; done

env: $(STAMP) ## create or update .venv and nothing else

ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif
$(STAMP): pyproject.toml constraints.txt
	@if [ -z '$(PYTHON)' ] || ! '$(PYTHON)' -c '$(NEW_ENOUGH)'; then \
		echo "Python 3.11 or newer is needed, but $(if $(PYTHON),'$(PYTHON)' is not,neither python3.11 nor python3 is)." >&2; \
		echo "Install it, or name one: make PYTHON=/path/to/python3.11 $(or $(MAKECMDGOALS),env)" >&2; \
		exit 1; \
	fi
	@if [ "$$(cat $(STAMP) 2>/dev/null)" != '$(CURDIR)' ]; then \
		echo 'Creating .venv (once; some minutes, about 2.5 GB) ...'; \
		'$(PYTHON)' -m venv --clear .venv; \
	else \
		echo 'Updating .venv: pyproject.toml or constraints.txt changed ...'; \
	fi
	@rm -f $(STAMP)
	@echo '  1/2 torch'; $(PIP) torch
	@echo '  2/2 the other dependencies and this package'; $(PIP) -e '.[dev]'
	@echo '$(CURDIR)' >$(STAMP)

# $(1): the grid. With failed cells (exit code 1) the leaderboard is still written, and lists them;
# after invalid input (2) or an interrupt there is nothing to show.
define run_grid
	@status=0; $(BIN)/bench run --grid $(1) --out runs/$(1) || status=$$?; \
	[ $$status -le 1 ] || exit $$status; \
	$(BIN)/bench leaderboard runs/$(1) -o site || exit $$?; \
	echo; \
	echo 'Leaderboard:  site/index.html'; \
	echo 'Every run:    $(BIN)/bench ui runs/$(1)'; \
	[ $$status -eq 0 ] || echo 'Some cells failed: see the summary above.' >&2; \
	exit $$status
endef

quick: $(STAMP) ## a small grid from data to leaderboard, in a few minutes
	$(call run_grid,quick)

full: $(STAMP) ## the full grid; hours. The same command again resumes it
	$(call run_grid,full)

site: $(STAMP) ## the public site of the newest published version, from the committed results alone
	$(BIN)/bench leaderboard published --public -o site

benchmarks: $(STAMP) ## speed, as ratios against a named alternative measured in the same run
	@for file in benchmarks/*.py; do OMP_NUM_THREADS=1 $(BIN)/python "$$file" || exit $$?; done

# One CPU and one thread, since the table holds processor times. Every method on every dataset of
# the full grid, at the ends of its sizes and at two epsilons; methods whose environment cannot be
# built are skipped and later guessed. What is in runs/timings already is not run again: after a
# change that makes scores or fits faster, remove it first.
TIMED = $(BIN)/bench run --grid full --seeds 0 --out runs/timings --no-mlflow --cpus 1
timings: $(STAMP) ## the timings that `bench run --dry-run --estimate` uses; an hour of one core
	OMP_NUM_THREADS=1 $(TIMED) --ipc 50,1000 --eps 1 || [ $$? -eq 1 ]
	OMP_NUM_THREADS=1 $(TIMED) --ipc 50 --eps 10 || [ $$? -eq 1 ]
	$(BIN)/python -m bench.engine.timing_table runs/timings -o bench/engine/timings.csv

# Bare pytest: `python -m pytest` would put the root on sys.path, where `datasets` is our folder.
# One thread per process: several torch processes at default threads slow each other down 30 times.
# Bytecode is written also where the shell forbids it: tests start hundreds of Python processes.
PYTEST_SETTINGS := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
PYTEST := $(PYTEST_SETTINGS) $(BIN)/pytest
# One more than the machines of CI have cores: many tests wait for processes to start and to end.
WORKERS ?= 3

# Methods with separate environments are tested afterwards, if these can be built.
test: $(STAMP) ## all tests but the slow ones; ARGS='-k ledger' passes options on
	$(PYTEST) -n $(WORKERS) --dist loadscope $(ARGS)
	@if [ -n "$(ARGS)" ]; then exit 0; fi; \
	if $(BIN)/bench env build; then $(MAKE) --no-print-directory isolated; \
	else echo 'The environment above cannot be built: tests that need it were left out.' >&2; fi

slow: $(STAMP) ## the slow tests
	$(PYTEST) -m slow $(ARGS)

chaos: $(STAMP) ## a run that is killed, gets a full disk and loses its folder; some minutes
	$(PYTEST) -s -m chaos $(ARGS)

isolated: $(STAMP) ## the tests of methods with a separate environment, which is built first
	$(BIN)/bench env build
	$(PYTEST) -m isolated tests/environments
	$(PYTEST_SETTINGS) "$$($(BIN)/bench env python smartnoise)" -P -m pytest -n 2 -m isolated \
		tests/contract tests/methods tests/privacy $(ARGS)

mutation: $(STAMP) ## plants faults and counts those that tests notice: docs/mutation.md; hours, resumes
	nice -n 19 $(BIN)/python .ci/mutation $(ARGS)

lint: $(STAMP) ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP) ## fix the style where a tool can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP) ## types, on the installed wheel
	.ci/with_wheel.sh types

imports: $(STAMP) ## direction of imports, on the installed wheel
	.ci/with_wheel.sh imports

cards: $(STAMP) ## the cards of the documentation, from the plugins
	$(BIN)/python -m bench.plugins.cards docs

# Sequentially on one CPU, since the number of trials follows from the speed of one. Exit code 1
# means that something is refuted, which is a result.
AUDIT = $(BIN)/bench audit --eps 1 --quick --minutes 2 --out runs/audits --cpus 1
# Transcripts of the methods with a proof. Those of the second line have quick parameters: slow fits
# would be repeated for every canary, and what they do after the last noisy answer is not attacked.
TRANSCRIPT = $(BIN)/bench audit --attack transcript --trials 100000 --out runs/audits --cpus 1
AT_DEFAULTS = ldpdc,dpmix,random-subsampling-dp,fedavg-dp,fedavg-client-dp,marginals,noisy-tree,dp-sgd
AT_QUICK = dp-merf,fdd-cf,dp-hp,fdd,private-teacher-dc,pate-ctgan-sound,federated-anomaly,ndpdc
# The kernel's selections and counts of coded columns: tables only.
OF_TABLES = privsyn,mst-kernel,rap,aim-kernel,privbayes,gem,tab-pe,private-gsd
OF_IMAGES = ndpdc-dos,dp-ntk,dp-kernel
THREE = --dataset breast-cancer,gbsg2,digits
transcripts: $(STAMP) ## attack the kernel's answers to every method with a proof: docs/transcripts.md; an hour
	for eps in 1 8; do \
		$(TRANSCRIPT) --methods $(AT_DEFAULTS) $(THREE) --eps $$eps || [ $$? -eq 1 ] || exit 2; \
		$(TRANSCRIPT) --methods $(AT_QUICK) --quick $(THREE) --eps $$eps || [ $$? -eq 1 ] || exit 2; \
		$(TRANSCRIPT) --methods fdd-fedavg --quick --parameters tuning=private \
			--dataset breast-cancer --eps $$eps || [ $$? -eq 1 ] || exit 2; \
		$(TRANSCRIPT) --methods $(OF_TABLES) --quick --dataset breast-cancer,worst-case --eps $$eps \
			|| [ $$? -eq 1 ] || exit 2; \
		$(TRANSCRIPT) --methods $(OF_IMAGES) --quick --dataset digits --eps $$eps \
			|| [ $$? -eq 1 ] || exit 2; \
		$(TRANSCRIPT) --methods dp-kernel --quick --dataset breast-cancer --eps $$eps \
			|| [ $$? -eq 1 ] || exit 2; \
		$(TRANSCRIPT) --methods mst,mwem,aim --quick --trials 4000 \
			--dataset worst-case --eps $$eps || [ $$? -eq 1 ] || exit 2; \
	done
	$(BIN)/bench audit --table runs/audits --attack transcript --keep docs/audits/transcripts
	test -f docs/audits/transcripts/soundness.json || OMP_NUM_THREADS=1 \
		$(BIN)/python -m bench.audit.soundness docs/audits/transcripts/soundness.json
	$(BIN)/bench audit --table docs/audits/transcripts --page docs/transcripts.md

audits: $(STAMP) ## attack every shipped method, then `make claims`: docs/audits.md; 2 hours more
	$(MAKE) --no-print-directory transcripts
	$(AUDIT) all --dataset breast-cancer,gbsg2,digits || [ $$? -eq 1 ]
	$(AUDIT) --methods zero-order-dc --parameters accounting=published --dataset breast-cancer,gbsg2 \
		|| [ $$? -eq 1 ]
	$(AUDIT) --methods zero-order-dc --parameters standardise=rows --dataset breast-cancer || [ $$? -eq 1 ]
	$(AUDIT) --methods zero-order-dc --parameters follow_up=public --dataset gbsg2 || [ $$? -eq 1 ]
	$(AUDIT) --methods fdd-fedavg --parameters tuning=private --dataset breast-cancer || [ $$? -eq 1 ]
	$(AUDIT) --methods private-teacher-dc --parameters teacher=additive --dataset breast-cancer \
		|| [ $$? -eq 1 ]
	# pate-gan needs a thousand rows.
	$(AUDIT) --methods pate-gan --dataset actg175 || [ $$? -eq 1 ]
	$(MAKE) --no-print-directory claims
	$(BIN)/bench audit --table runs/audits --page docs/audits.md

# With the settings of the papers. The results are kept in docs/audits/, where the page comes from.
claims: $(STAMP) ## attack published claims: docs/claims.md; 4 hours of one core, only what is missing
	$(BIN)/bench audit --claims docs/audits/claims.toml --out runs/audits --cpus 1 || [ $$? -eq 1 ]
	$(BIN)/bench audit --table runs/audits --keep docs/audits
	$(BIN)/bench audit --table docs/audits --claims docs/audits/claims.toml --page docs/claims.md

# One environment per library. A result in docs/audits/libraries is kept; remove it to repeat it.
libraries: $(STAMP) ## attack libraries as their documentation calls them: docs/audits-libraries.md; an hour
	OMP_NUM_THREADS=1 $(BIN)/python -m bench.audit.libraries run
	$(BIN)/python -m bench.audit.libraries page

# Exit code 1 of `bench fill --check DOCUMENT` says which line was edited by hand.
DOCUMENTS = docs/reproduction.md docs/private-teacher.md docs/methods/index.md docs/datasets/real-data.md \
	docs/field.md docs/tuning.md
reproduction: $(STAMP) ## the tables of the documentation, from the results in docs/results
	$(BIN)/bench fill $(DOCUMENTS)

# The figures first: the report names those that there are.
findings: $(STAMP) ## docs/findings.md with its figures, and the badges, from the newest published version
	rm -rf docs/findings
	$(BIN)/bench plot published all --public -o docs/findings
	$(BIN)/bench fill docs/findings.md
	$(BIN)/python .ci/badges.py

docs: $(STAMP) ## documentation, into build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'Documentation: build/docs/index.html'

tutorial: $(STAMP) ## execute docs/tutorial.ipynb and store what it prints; a test compares
	$(BIN)/python .ci/tutorial.py

lock: $(STAMP) ## requirements.lock, the hashes of what constraints.txt names; needs an index, minutes
	$(BIN)/python .ci/lock.py

clean: ## remove build products; .venv and the results in runs/ stay
	rm -rf build site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find bench methods datasets metrics leaderboard tests -name __pycache__ -prune -exec rm -rf {} +
