# SPDX-License-Identifier: Apache-2.0
#
# A thin front for meson and the scripts in tools/.  `make help` lists what there is.

BUILD ?= build
PYTHON ?= /usr/bin/python3
DESTDIR ?=
PREFIX ?= /usr/local

.DEFAULT_GOAL := build
.PHONY: help setup build demo test bench soak crash mutants prove fuzz chroot install clean

help:
	@echo "make setup     install the Debian packages that build, demo and test need (only what is missing)"
	@echo "make build     build/semel and build/shop (the default)"
	@echo "make demo      set up, build, and watch retries become safe"
	@echo "make test      set up, then the whole suite: gcc, clang, sanitizers, valgrind, fuzzers, system tests"
	@echo "make bench     measure"
	@echo "make soak      10 minutes of gateways under faults, relays in storms, the whole story, the simulator, for long; crash: kill at every system call boundary"
	@echo "make mutants   take each rule out of the code and see which test dies"
	@echo "make prove     check the models"
	@echo "make fuzz      fuzz each target for FUZZ_SECONDS (600)"
	@echo "make chroot    demo and test in a bare Debian 12, then again without a network (root)"
	@echo "make install   into PREFIX (/usr/local), below DESTDIR"
	@echo "make clean     remove the build folders"

setup:
	tools/setup build demo test

build: $(BUILD)/build.ninja
	meson compile -C $(BUILD)
	@ln -sfn src/cmd/semel $(BUILD)/semel
	@ln -sfn examples/shop/shop $(BUILD)/shop
	@ln -sfn examples/payd/payd $(BUILD)/payd
	@ln -sfn examples/billing/billing $(BUILD)/billing
	@ls $(BUILD)/src/cmd/semel $(BUILD)/examples/shop/shop >/dev/null
	@echo "built $(BUILD)/semel and $(BUILD)/shop"

$(BUILD)/build.ninja:
	meson setup $(BUILD) --prefix $(PREFIX)

demo:
	tools/setup build demo
	$(MAKE) --no-print-directory build
	examples/shop/demo

test:
	tools/setup build demo test
	tools/test-all

# A target whose script is not written yet says so instead of doing nothing.
run = @test -x $(1) || { echo "make $@: $(firstword $(1)) is not there yet"; exit 1; }; exec $(1) $(2)

bench:
	tools/setup build test bench
	$(call run,bench/run)

soak: build
	$(call run,tests/system/soak)
	$(call run,tests/sim/soak)

crash: build
	tests/crash/run --all
	tests/crash/relay --all
	tests/crash/relay_sqlite --all
	$(call run,tests/crash/consume,--all)

mutants: build
	$(call run,tools/mutants)

prove: build
	$(call run,tools/prove)

fuzz:
	tools/setup build test
	$(call run,fuzz/run,$(or $(FUZZ_SECONDS),600))

chroot:
	tools/setup chroot
	tools/chroot-check

install: build
	DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD) build-test
