# `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
LAB ?= demo
REPEAT ?= 1
BUSY ?= 0
KEEP ?=
BASE ?= main
MINUTES ?= 10
FUZZ ?=
VM ?=
MIRROR ?=
MACHINES ?=
FAULTS ?=
TREE ?=
AGAIN ?=
LIMIT_SECONDS ?=
VENV = $(shell bin/setup $(SETUP))
PYTHON = PYTHONPATH=$(CURDIR) $(VENV)/bin/python

# A run of pytest reads thousands of files, and so does each program that a test starts: what it has compiled is kept.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = env PYTHONPATH=$(CURDIR) $(VENV)/bin/python -m pytest --durations=20

.PHONY: help setup demo demo-shell demo-rollout demo-reimage demo-down demo-vpc test test-fast test-changed test-long attacks mutants fuzz chaos soak lint format golden bench docs package package-ansible chart requirements

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## Install what is missing: Debian packages and a virtual environment outside the checkout
	@bin/setup

demo: ## Boot a virtual rack of two servers until both are Ready nodes
	@bin/lab up --name $(LAB)

demo-shell: ## Open a shell in the demo, with kubectl and provisioner on its PATH
	@bin/lab shell --name $(LAB)

demo-rollout: ## Move the demo's servers to another image (one of them waits for its job) and show the progress
	@bin/lab rollout --name $(LAB)

demo-reimage: ## Reimage one server of the demo when its job has ended
	@bin/lab reimage --name $(LAB)

demo-down: ## Stop the demo, and remove its processes, namespaces and mounts
	@bin/lab down --name $(LAB)

demo-vpc: ## Test the isolation of two tenants with the same addresses on virtual DPUs; KEEP=1 leaves it running
	@bin/setup --networks >/dev/null
	@bin/lab vpc --name $(if $(filter file,$(origin LAB)),vpc,$(LAB)) $(if $(KEEP),--keep)

test: lint ## Run all tests, the boot of a virtual rack among them; REPEAT=5 runs them five times, BUSY=2 beside two busy cores
	@bin/setup --tests >/dev/null
	@$(PYTHON) -m tests.prepare
	@$(PYTHON) -m tests.suite --repeat $(REPEAT) --busy $(BUSY) $(if $(ASSERTIONS),--assertions) $(TESTS)

test-fast: SETUP = --python
test-fast: ## Run the tests that need no real parts, no root and no seconds: 2 minutes
	@$(PYTHON) -m pytest -q --numprocesses 3 -m "fast and not long" $(TESTS)

test-long: ## Run the tests that `make test` leaves out, as each takes minutes: an hour
	@bin/setup --tests >/dev/null
	@$(PYTHON) -m tests.prepare
	@$(PYTEST) -m long $(TESTS)

attacks: ## Run every attack of the threat model, and print attack, refused by, test and result; VM=1 also on a booting rack
	@bin/setup --tests >/dev/null
	@$(PYTHON) -m tests.prepare
	@$(PYTHON) -m tests.attacks $(if $(VM),--vm) $(TESTS)

mutants: ## Plant faults one at a time, and print which test finds each (FAULTS="join power": a part; BRANCHES=1: those derived from the source; TREE=… another checkout; AGAIN=1 forgets earlier results)
	@bin/setup --tests >/dev/null
	@$(PYTHON) -m tests.prepare
	@$(PYTHON) -m tests.mutants $(if $(BRANCHES),--branches) $(if $(TREE),--tree $(TREE)) $(if $(AGAIN),--again) $(if $(LIMIT_SECONDS),--seconds $(LIMIT_SECONDS)) $(FAULTS)

fuzz: SETUP = --python
fuzz: ## Try every property at random, then every reader of what strangers send for MINUTES (SEED=… repeats it; FUZZ=atheris: by coverage, installed beside)
	@$(if $(filter atheris,$(FUZZ)),$(VENV)/bin/pip install --quiet --target $(dir $(VENV))atheris atheris)
	@$(if $(TARGETS)$(FUZZ),,$(PYTHON) -m pytest -q -m "hypothesis and fast and not long" --hypothesis-profile=random \
	  $(if $(SEED),--hypothesis-seed=$(SEED)))
	@PYTHONPATH=$(CURDIR):$(dir $(VENV))atheris $(VENV)/bin/python -m tests.fuzz --minutes $(MINUTES) \
	  $(if $(SEED),--seed $(SEED)) $(if $(filter atheris,$(FUZZ)),--engine atheris) $(TARGETS)

chaos: ## Kill executor and rollout at every effect, with every trouble, and try histories at random; takes hours
	@CHAOS=long $(PYTHON) -m pytest -x -q tests/maintenance/chaos tests/rollout/chaos $(TESTS)

soak: ## Boot a virtual rack under random kills, hung backends and hostile packets (SEED=… repeats a run); then test a server behind a virtual DPU, two builds of the GPU driver, VRFs and EVPN
	@bin/setup --tests >/dev/null
	@$(PYTHON) -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))
	@$(PYTHON) -m tests.soak.behind_a_dpu
	@$(PYTHON) -m tests.soak.driver_twice
	@ISOLATION=whole $(PYTHON) -m pytest -q tests/network/vrf
	@ROUTES=both $(PYTHON) -m pytest -q -k EVPN tests/network/control/test_with_real_agents.py tests/network/control/test_bgpd_away.py tests/network/isolation

test-changed: SETUP = --python
test-changed: ## Run the tests that the changes since the branch BASE affect
	@$(PYTHON) -m tests.changed --base $(BASE)

lint: ## Run ruff, mypy and the import contracts
	@$(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check . && \
	  $(PYTHON) -m mypy && PYTHONPATH=$(CURDIR) $(VENV)/bin/lint-imports --no-cache

format: ## Format the code
	@$(PYTHON) -m ruff format . && $(PYTHON) -m ruff check --fix .

golden: ## Rewrite the golden files; read the diff before you commit it
	@GOLDEN=write $(PYTHON) -m pytest -q tests -k golden

chart: SETUP = --python
chart: ## Generate the CRDs, roles, alerts and dashboards of the Helm chart
	@$(PYTHON) -m charts.write

bench: ## Measure against peers and bounds in the same run, on an idle machine; writes tests/benchmarks/RESULTS.md
	@bin/setup --benchmarks >/dev/null
	@$(PYTHON) -m tests.benchmarks $(BENCH)

package: ## Build the wheel, the container images and the chart into dist/, reproducibly
	@$(PYTHON) -m artefacts $(if $(MIRROR),--mirror $(MIRROR)) $(foreach machine,$(MACHINES),--machine $(machine))

package-ansible: SETUP = --python
package-ansible: ## Build the Ansible collection into dist/
	@mkdir -p dist && $(VENV)/bin/ansible-galaxy collection build --force --output-path dist ansible

docs: SETUP = --python
docs: ## Build the documentation site into dist/site; a broken link is an error
	@$(PYTHON) -m mkdocs build --quiet --config-file website/mkdocs.yml

requirements: ## Update the pinned requirements and their hashes
	@for set in runtime development; do \
	  extra=$$([ $$set = development ] && echo --all-extras --all-build-deps); \
	  $(VENV)/bin/pip-compile -q --upgrade --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	    --strip-extras --no-annotate --allow-unsafe $$extra -o requirements/$$set.txt pyproject.toml || exit 1; done
