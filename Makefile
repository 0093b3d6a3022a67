# SPDX-License-Identifier: MIT
#
# The short way to CMake.  `make run` and `make test` also install what is missing (tools/setup.sh).
#
#   make              build/pleat and the libraries        make install      below PREFIX, /usr/local by default
#   make run          generate from the shipped model      make format       clang-format over all sources
#   make test         every test; see below                make fuzz         FUZZ_SECONDS=60 for each target
#   make check-long   test, and the full evaluation        make clean        remove build/
#   make check-device the GPU kernels' tests, on a GPU
#   make bench        attention, pages, kernels
#   make papers       docs/papers/: the papers' evaluations on the reference model; an hour or more
#
# `make test` takes 10 to 20 minutes on two cores.
# CMAKE_ARGS goes to cmake when build/ is made:  make CMAKE_ARGS=-DPLEAT_ONEDNN=off
PREFIX ?= /usr/local
CMAKE_ARGS ?=
FUZZ_SECONDS ?= 60
MODEL ?= models/pleat-28m-q8_0.gguf

.PHONY: all setup run test check-long check-device bench papers install format fuzz clean
.NOTPARALLEL:

all:
	@tools/build.sh build $(CMAKE_ARGS)

run:
	@tools/setup.sh run
	@tools/build.sh build -q $(CMAKE_ARGS)
	@echo "eval/demo.txt: pages of a novel with a number hidden in them, then the question for it"
	build/pleat run -m $(MODEL) --chat -f eval/demo.txt -n 64 --kv leankv:profile=models/pleat-28m-q8_0.leankv.json

test:
	@tools/setup.sh test
	@tools/test.sh

check-long:
	@tools/setup.sh test
	@tools/test.sh --long

check-device:
	@tools/test.sh device

bench: all
	build/pleat bench attn --kv f16 --kv k8v4 --kv k4v2
	build/pleat bench pages
	build/pleat bench codec
	@tools/bench.sh build

papers: all
	python3 bench/papers/leankv/run.py
	python3 bench/papers/article/run.py
	python3 bench/papers/spvllm/run.py
	python3 bench/papers/kvcrush/run.py
	python3 bench/papers/kvcomp/run.py

install: all
	@tools/install.sh build $(PREFIX)

format:
	@tools/format.sh

fuzz:
	@tools/setup.sh fuzz
	@tools/fuzz.sh $(FUZZ_SECONDS)

clean:
	rm -rf build
