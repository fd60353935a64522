# make demo · make test · make check: each sets up what it needs of .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LIGHT := $(VENV)/.light# dpaudit alone: enough for the demo
READY := $(VENV)/.ready# with every extra, and what development needs
ENVS := $(or $(DPAUDIT_ENVS),.envs)
CUDA := $(or $(GPU),$(BIN)/python)
CIFAR := vgg19-bn resnet50 mobilenet-v2

unexport PYTHONDONTWRITEBYTECODE # else every start compiles dpaudit anew, and the suite starts many

.PHONY: help setup envs demo test check lint types doctests browser pages docs format slow wheels golden mutants portable bench gpu clean evidence evidence-status size

help: ## What there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

setup: $(READY) ## Make .venv and install everything into it

WANTED = import sys; sys.version_info >= (3, 11) or sys.exit("python=%d.%d: dpaudit needs Python 3.11 or newer; make PYTHON=/path/to/python3.11" % sys.version_info[:2])
VERSION = import sys; print("%d.%d" % sys.version_info[:2])
MADE = import pip, sys; print("%d.%d" % sys.version_info[:2])
comma := ,
INSTALL_LOG := $(VENV)/install.log
define install
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '$(1)' 2>$(INSTALL_LOG) || { \
		grep ^ERROR $(INSTALL_LOG); grep -q 'connection broken' $(INSTALL_LOG) && echo 'The package index (PyPI) does not respond: pip needs a network.'; \
		echo 'pip could not install dpaudit: $(INSTALL_LOG) has the details. The same command tries again.'; exit 1; } >&2
	@touch $@
endef

ifneq ($(shell $(BIN)/python -c '' 2>/dev/null && echo runs),runs)
.PHONY: $(LIGHT) # the Python that .venv was made with is gone, or .venv is
endif

$(LIGHT): pyproject.toml constraints.txt
	@$(PYTHON) -c '$(WANTED)'
	@test "$$($(BIN)/python -c '$(MADE)' 2>/dev/null)" = "$$($(PYTHON) -c '$(VERSION)')" || { \
		echo "Making $(VENV) with Python $$($(PYTHON) -c '$(VERSION)') ..."; $(PYTHON) -m venv --clear $(VENV); }
	@echo "Installing dpaudit into $(VENV): 0.6 GB, about a minute ..."
	$(call install,.)

$(READY): $(LIGHT)
	@echo "Installing torch, libraries and tools into $(VENV): 2.7 GB, with torch for CUDA 6.5 GB; a few minutes ..."
	$(call install,.[all$(comma)dev])

LISTS := studies/dpaudit_studies/environments
envs: $(patsubst %,$(ENVS)/%/.ready,$(or $(ONLY),$(patsubst $(LISTS)/%.txt,%,$(wildcard $(LISTS)/*.txt)))) ## Environments of libraries that cannot live in .venv (ONLY='NAME …'; MBI=, RECIPES=: checkouts that two of them need)

$(ENVS)/%/.ready: $(LISTS)/%.txt # a list that says --no-deps is complete but for what torch needs
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check pip $(shell grep ^torch== $<)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(shell grep -om1 -e --no-deps $<) --requirement $<
	$(if $(findstring /mbi/,$@),git -C "$(or $(MBI),MBI=CHECKOUT)" archive c4c90e1 mechanisms | tar -x --strip 1 -C $(@D)/lib/python3.*/site-packages)
	touch $@

demo: $(LIGHT) ## The whole story on real data, offline, in a minute
	@echo "Running the demo ..."
	@$(BIN)/dpaudit demo --out dpaudit-demo

test: $(READY) ## The test suite
	$(BIN)/pytest -n 2 --dist worksteal

check: $(READY) ## Lint, format, types, import contracts, doctests, the wheel, the documents and what they tell a reader to type
	$(MAKE) --no-print-directory --jobs 2 --output-sync pages lint types docs doctests browser

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

doctests: $(READY)
	$(BIN)/pytest --doctest-modules --ignore-glob="*/environments/*" --ignore-glob="*_studies/replay/*/*" dpaudit attacks/dpaudit_attacks mitigations/dpaudit_mitigations extensions studies

browser: $(READY)
	$(BIN)/pytest -m 'browser and not slow' tests/dpaudit/render tests/docs

pages: $(READY)
	$(BIN)/pytest -n 2 --dist loadgroup -m packaging tests/packaging

docs: $(READY) ## The documentation as a site, from disk and offline; a warning is an error
	$(BIN)/sphinx-build -E -a -W --keep-going -q -j 2 -c docs -d docs/_build/doctrees . docs/_build/html
	@echo docs/_build/html/index.html

format: $(READY) ## Format, and fix what can be fixed mechanically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

slow: $(READY) ## Tests that take minutes, and 10,000 hostile inputs at every door (hours)
	$(BIN)/pytest -m slow --hypothesis-profile thorough
	DPAUDIT_FUZZ=10000 $(BIN)/pytest -o timeout=7200 tests/hostile

wheels: $(READY) ## Wheel and sdist, built here, in empty environments of each Python from 3.11 to 3.14, or of one: PY=3.12 (minutes each)
	$(BIN)/pytest -m slow -rs tests/packaging/test_distributions.py $(if $(PY),-k $(PY))

golden: $(READY) ## Are the results as they were? 88 seeded commands compared with stored numbers (three minutes)
	$(BIN)/python tests/golden.py

mutants: $(READY) ## Realistic mistakes, one at a time: does a test see each? (half an hour)
	$(BIN)/python tests/mutants.py

portable: $(READY) ## The numerical tests on other BLAS kernels, instruction sets, threads, locale and home
	$(BIN)/python tests/portable.py

bench: $(READY) ## Time and memory of the main commands
	for name in commands noise attacks local dpsgd store scale rotation two_servers two_party_batch secure_aggregation joint_seeds verifiable_counts; do $(BIN)/python benchmarks/$$name.py || exit; done

gpu: $(if $(GPU),,$(READY)) ## On a CUDA machine, in a git checkout: tests, training, gpm-table2, gpm-table3, benchmarks (GPU=python3: your own environment)
	$(CUDA) -m pytest -m gpu
	for model in $(CIFAR); do $(CUDA) -m dpaudit train $$model --device cuda --resume || exit; done
	rm -f docs/studies/results/gpm-table3/evidence.json # its networks are trained now
	PYTHONPATH=docs/studies $(CUDA) -m evidence run gpm-table2 gpm-table3
	mkdir -p docs/studies/results/gpu && $(CUDA) benchmarks/noise.py --device cuda > docs/studies/results/gpu/bench_noise.txt && cat docs/studies/results/gpu/bench_noise.txt

EVIDENCE = PYTHONPATH=docs/studies $(BIN)/python -m evidence
evidence: $(READY) ## Run every study whose result is stale, cheapest first (ONLY='NAME …', HOURS=: begin none later; go on with the same command)
	$(EVIDENCE) run $(ONLY) $(if $(HOURS),--hours $(HOURS))

evidence-status: $(READY) ## Which results are of another state of the code, and why
	@$(EVIDENCE) status $(ONLY)

size: ## Lines and files of Python in each room
	@git ls-files '*.py' | awk -F/ '{room = $$1 == "extensions" ? $$1 "/" $$2 : $$1; while ((getline line < $$0) > 0) lines[room]++; close($$0); files[room]++} \
		END {for (room in files) print lines[room], files[room], room}' | sort -k3 | column -t

clean: ## Remove what make made
	rm -rf $(VENV) .envs dist build docs/_build dpaudit-demo runs
