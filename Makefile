# Everything here works on a machine that has Python 3.11 or newer, git and make.

export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := .venv
# Scripts and benchmarks that install engines and peers find it there, too.
export PATH := $(PATH):$(CURDIR)/.cache/uv/bin
UV := $(shell command -v uv 2>/dev/null || echo .cache/uv/bin/uv)
PY := .venv/bin/python
SETUP := .venv/.ready
COVERED := --cov=forebay.core --cov-branch --cov-fail-under=100 --cov-report=term-missing:skip-covered

.DEFAULT_GOAL := help

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

demo: $(SETUP) ## The whole story on this machine, on real engines: a storm without Forebay, then with it
	$(PY) -m forebay demo

test: $(SETUP) ## Set up, then run all tests; those of the core must cover it in full
	$(PY) -m pytest -q -n auto tests/core $(COVERED)
	$(PY) -m pytest -q -n auto tests/sim tests/control
	$(PY) -m pytest -q --ignore tests/core --ignore tests/sim --ignore tests/control

check: lint types layers docs ## Lint, types, layers, docs

lint: $(SETUP)
	.venv/bin/ruff check
	.venv/bin/ruff format --check

types: $(SETUP)
	.venv/bin/mypy

layers: $(SETUP)
	.venv/bin/lint-imports

docs: $(SETUP)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

test-vllm: $(SETUP) ## The engine tests against real vLLM (installs it: 2 GB, one minute to start)
	FOREBAY_VLLM=1 $(PY) -m pytest tests/engines/vllm

test-howto: $(SETUP) ## The how-tos for LlamaIndex, LiteLLM and Ray (installs them: 900 MB)
	FOREBAY_HOWTO=1 $(PY) -m pytest -q tests/howto/test_own_environments.py

bench-gateway: $(SETUP) ## CPU, memory and latency beside nginx, SMG, vllm-router and LiteLLM (installs them)
	$(PY) -m bench.gateway

bench-admission: $(SETUP) ## Cost of a decision
	$(PY) -m bench.admission

bench-library: $(SETUP) ## A slot beside a bare semaphore, a fan-out, the import
	$(PY) -m bench.library

bench-routing: $(SETUP) ## Cost of a routing decision over 1,000 endpoints, and how well they are used
	$(PY) -m bench.routing

bench-live: $(SETUP) ## A host more and a host less by editing the file under load
	$(PY) -m bench.live

bench-failover: $(SETUP) ## An embedder that goes away under load, and comes back (root: network namespaces)
	$(PY) -m bench.failover

bench-protection: $(SETUP) ## Chat under an embedding storm on the emulated GPU
	$(PY) -m bench.protection

bench-protection-sim: $(SETUP) ## Protection in the simulator, ten seeds, beside the best static split
	$(PY) -m bench.protection_sim

bench-protection-llama: $(SETUP) ## Protected chat beside embeddings on real llama.cpp
	$(PY) -m bench.protection_llama

bench-protection-vllm: $(SETUP) ## Protected chat beside bulk generation on real vLLM (installs it: 2 GB)
	$(PY) -m bench.protection_vllm

bench-protection-infinity: $(SETUP) ## Protected chat on real vLLM beside embeddings on real Infinity (installs both: 4 GB; root)
	$(PY) -m bench.protection_infinity

bench-demo: $(SETUP) ## The demo's comparison on real engines, recorded
	$(PY) -m bench.demo

bench-control: $(SETUP) ## Every limit law on every scenario, ten seeds (half an hour), beside the best static limit
	$(PY) -m bench.control

bench-hosts: $(SETUP) ## Hosts added, removed and failed, two models on one GPU, beside the best static limits
	$(PY) -m bench.control.hosts

bench-sim: $(SETUP) ## How fast the simulator is
	$(PY) -m bench.sim

bench-sim-fit: $(SETUP) ## The simulator against real llama.cpp: record, fit, replay
	$(PY) -m bench.sim_fit

goals: $(SETUP) ## Every goal with its last figure, what falls short first
	$(PY) -m bench.goals

clean: ## Remove what was built here
	rm -rf .venv .cache dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(SETUP): pyproject.toml uv.lock | $(UV)
	$(UV) sync --frozen --quiet --extra demo --python python3
	@touch $@

.cache/uv/bin/uv:
	python3 -m venv .cache/uv || { echo "make: python3 needs its venv module (Debian: apt-get install python3-venv)"; exit 1; }
	.cache/uv/bin/pip install --quiet uv

.PHONY: help demo test check lint types layers docs test-vllm test-howto bench-gateway bench-admission bench-library bench-routing bench-protection bench-protection-sim bench-protection-llama bench-protection-vllm bench-control bench-hosts bench-demo bench-sim bench-sim-fit bench-protection-infinity bench-live bench-failover goals clean
