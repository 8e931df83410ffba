# `make help` lists what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
LAB ?= demo
REPEAT ?= 1
BUSY ?= 0
KEEP ?=
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

# Four runs beside one another, as most tests wait most of the time: those that need no real parts, the boots of a
# virtual rack, those that wait for controllers or build images, and the others. 5 is "no such test here". What is marked
# `long` takes minutes by itself: `make test-long`.
# A run of pytest reads thousands of files, and so does each program that a test starts: what it has compiled is kept.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = env PYTHONPATH=$(CURDIR) $(VENV)/bin/python -m pytest --durations=20

.PHONY: help setup demo demo-shell demo-rollout demo-reimage demo-down demo-vpc test test-fast test-long attacks mutants fuzz chaos soak lint format golden bench docs package package-ansible chart requirements

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## Install what is missing: Debian packages and a virtual environment outside the checkout
	@bin/setup

demo: ## Boot a virtual rack of two servers, for real, until they are Ready nodes
	@bin/provisioner lab up --name $(LAB)

demo-shell: ## Open a shell in the demo, with kubectl and provisioner on its PATH
	@bin/provisioner lab shell --name $(LAB)

demo-rollout: ## Move the demo's servers to another image, one of them when its job has ended, and watch
	@bin/provisioner lab rollout --name $(LAB)

demo-reimage: ## Bring one server of the demo back on another image
	@bin/provisioner lab reimage --name $(LAB)

demo-down: ## End the demo; leaves no process, namespace or mount behind
	@bin/provisioner lab down --name $(LAB)

demo-vpc: ## Two tenants with the same addresses on virtual DPUs: what must work, and what must not; KEEP=1 leaves them
	@bin/setup --networks >/dev/null
	@bin/provisioner lab vpc --name $(if $(filter file,$(origin LAB)),vpc,$(LAB)) $(if $(KEEP),--keep)

test: lint ## Run all tests, the boot of a virtual rack among them; REPEAT=5 runs them five times, BUSY=2 beside two busy cores
	@bin/setup --tests >/dev/null
	@$(PYTHON) -m tests.prepare
	@ended=; logs=$$(mktemp -d); trap 'kill $$(jobs -p) 2>/dev/null; [[ $$ended = ????* ]] || tail -n 30 $$logs/*' EXIT; \
	  for each in $$(seq $(BUSY)); do while :; do :; done & done; \
	  for run in $$(seq $(REPEAT)); do echo "run $$run of $(REPEAT)"; \
	    nice -n 3 $(PYTEST) -m "pure and not long" $(TESTS) >$$logs/pure 2>&1 & pure=$$!; \
	    $(PYTEST) -m "machine and not long" $(TESTS) >$$logs/machine 2>&1 & machine=$$!; \
	    $(PYTEST) -m "waiting and not long" $(TESTS) >$$logs/waiting 2>&1 & waiting=$$!; \
	    $(PYTEST) -m "not pure and not machine and not waiting and not long" $(TESTS); ended=$$?; \
	    for part in waiting machine pure; do wait $${!part}; ended=$$ended$$?; cat $$logs/$$part; done; \
	    [[ $$ended = [05][05][05][05] && $$ended != 5555 ]] || exit 1; done

test-fast: SETUP = --python
test-fast: ## Run the tests that need no real parts and no root: 3 minutes
	@$(PYTHON) -m pytest -q -m "fast and not long" $(TESTS)

test-long: ## Run the tests that `make test` leaves out, as each takes minutes: an hour
	@bin/setup --tests >/dev/null
	@$(PYTHON) -m tests.prepare
	@$(PYTEST) -m long $(TESTS)

attacks: ## Run every attack of the threat model, and print attack, refused by, test and result; VM=1 also on a booting rack
	@bin/setup --tests >/dev/null
	@$(PYTHON) -m tests.prepare
	@$(PYTHON) -m tests.attacks $(if $(VM),--vm) $(TESTS)

mutants: ## Plant faults one at a time, and print which test finds each (FAULTS="join power": a part; TREE=… another checkout; AGAIN=1 forgets earlier results)
	@bin/setup --tests >/dev/null
	@$(PYTHON) -m tests.prepare
	@$(PYTHON) -m tests.mutants $(if $(TREE),--tree $(TREE)) $(if $(AGAIN),--again) $(if $(LIMIT_SECONDS),--seconds $(LIMIT_SECONDS)) $(FAULTS)

fuzz: SETUP = --python
fuzz: ## Try every reader of what strangers send for MINUTES (SEED=… repeats it; FUZZ=atheris: by coverage, installed beside)
	@$(if $(filter atheris,$(FUZZ)),$(VENV)/bin/pip install --quiet --target $(dir $(VENV))atheris atheris)
	@PYTHONPATH=$(CURDIR):$(dir $(VENV))atheris $(VENV)/bin/python -m tests.fuzz --minutes $(MINUTES) \
	  $(if $(SEED),--seed $(SEED)) $(if $(filter atheris,$(FUZZ)),--engine atheris) $(TARGETS)

chaos: ## Kill executor and rollout at every effect, with every trouble, and try histories at random; takes hours
	@CHAOS=long $(PYTHON) -m pytest -x -q tests/maintenance/chaos tests/rollout/chaos $(TESTS)

soak: ## Boot a virtual rack under random kills, hung backends and hostile packets (SEED=… repeats one); then a server behind a virtual DPU, the GPU driver built twice, VRFs and EVPN
	@bin/setup --tests >/dev/null
	@$(PYTHON) -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))
	@$(PYTHON) -m tests.soak.behind_a_dpu
	@$(PYTHON) -m tests.soak.driver_twice
	@ISOLATION=whole $(PYTHON) -m pytest -q tests/network/vrf
	@ROUTES=both $(PYTHON) -m pytest -q -k EVPN tests/network/control/test_with_real_agents.py tests/network/control/test_bgpd_away.py tests/network/isolation

lint: ## Run ruff, mypy and the import contracts
	@$(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check . && \
	  $(PYTHON) -m mypy && PYTHONPATH=$(CURDIR) $(VENV)/bin/lint-imports --no-cache

format: ## Format the code
	@$(PYTHON) -m ruff format . && $(PYTHON) -m ruff check --fix .

golden: ## Write the golden files anew; read the diff before you commit it
	@GOLDEN=write $(PYTHON) -m pytest -q tests -k golden

chart: SETUP = --python
chart: ## Write anew what the Helm chart has from elsewhere: kinds, rights, alerts, dashboards
	@$(PYTHON) -m charts.write

bench: ## Measure against peers and bounds in the same run; writes tests/benchmarks/RESULTS.md
	@bin/setup --benchmarks >/dev/null
	@$(PYTHON) -m tests.benchmarks $(BENCH)

package: ## Make what is installed, in dist/: wheel, container images, chart; the same bytes from the same files
	@$(PYTHON) -m provisioner.packages $(if $(MIRROR),--mirror $(MIRROR)) $(foreach machine,$(MACHINES),--machine $(machine))

package-ansible: SETUP = --python
package-ansible: ## Make the Ansible collection, in dist/
	@mkdir -p dist && $(VENV)/bin/ansible-galaxy collection build --force --output-path dist ansible

docs: SETUP = --python
docs: ## Build the documentation's site into dist/site; every broken link is an error
	@$(PYTHON) -m mkdocs build --quiet --config-file website/mkdocs.yml

requirements: ## Resolve and hash the pinned requirements anew
	@for set in runtime development; do \
	  extra=$$([ $$set = development ] && echo --all-extras --all-build-deps); \
	  $(VENV)/bin/pip-compile -q --upgrade --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	    --strip-extras --no-annotate --allow-unsafe $$extra -o requirements/$$set.txt pyproject.toml || exit 1; done
