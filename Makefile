# `make help` tells what there is. Every target installs what it misses (scripts/setup): build and demo what they need to
# compile and run; test what tests run, of which services are unpacked in target/tools and not installed.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export PATH := $(HOME)/.cargo/bin:$(PATH)
# Memory reserved on huge pages for DPDK's tables while `make bench` runs: enough for 16M names.
HUGE_MIB ?= 4096
# Further arguments, as in `make demo ARGS="--topology ring --switches 5"`.
ARGS ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
FIBULA := $(TARGET)/release/fibula
# The laboratory is a binary of its own, which fibula hands `bench`, `repro` and `filter hash-test` over to.
LAB := cargo build --release -p fibula-repro

# Of libfibula: where it is installed, and the directory that has it if it is built already. DESTDIR goes before PREFIX.
PREFIX ?= /usr/local
# Below PREFIX; Debian has lib/x86_64-linux-gnu.
LIBDIR ?= lib
DESTDIR ?=
BUILT ?=
# What strips the shared library; STRIP=true keeps its symbols.
STRIP ?= strip
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
SONAME := libfibula.so.$(firstword $(subst ., ,$(VERSION)))

# Which crates make lint and make test take: the default members, or all.
MEMBERS ?=
# Of make check: what changes are compared with.
BASE ?=

# Of make deep: all if none is named.
SUITES ?=

# Of a fuzz target.
SECONDS ?= 60
TARGETS ?= all

.PHONY: help demo test test-lab test-all test-apart check lint deny loom memory-check fuzz xdp dpdk guest bundle campaign bench record benchmarks repro deep neon click dashboard-test build build-lab lib install deb deb-test container-test wheel wheel-test clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

demo: ## The main job on this machine: controller, switches and hosts, real frames
	@scripts/setup demo
	cargo build --release -p fibula-cli
	@# Network namespaces need root; without it the demo runs in one process, and says so.
	@if [ "$$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then \
	  sudo $(FIBULA) demo $(ARGS); else $(FIBULA) demo $(ARGS); fi

build: ## The release binary, target/release/fibula
	@scripts/setup build
	cargo build --release -p fibula-cli

build-lab: build ## The laboratory beside it, for fibula bench, fibula repro and fibula filter hash-test
	$(LAB)

lib: ## libfibula for C programs: target/release/libfibula.so and .a
	@scripts/setup build
	cargo build --release -p fibula-capi

install: $(if $(BUILT),,lib) ## libfibula, its headers and fibula.pc under PREFIX (/usr/local), as in `make install DESTDIR=/tmp/root PREFIX=/usr`
	install -d $(DESTDIR)$(PREFIX)/$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 755 $(or $(BUILT),$(TARGET)/release)/libfibula.so $(DESTDIR)$(PREFIX)/$(LIBDIR)/libfibula.so.$(VERSION)
	$(STRIP) $(DESTDIR)$(PREFIX)/$(LIBDIR)/libfibula.so.$(VERSION)
	ln -sf libfibula.so.$(VERSION) $(DESTDIR)$(PREFIX)/$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(PREFIX)/$(LIBDIR)/libfibula.so
	install -m 644 $(or $(BUILT),$(TARGET)/release)/libfibula.a $(DESTDIR)$(PREFIX)/$(LIBDIR)
	install -m 644 c/include/fibula.h c/include/libfibula.h $(DESTDIR)$(PREFIX)/include
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' c/fibula.pc.in > $(DESTDIR)$(PREFIX)/$(LIBDIR)/pkgconfig/fibula.pc
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

deb: build-lab lib ## Debian packages in target/deb: fibula, fibula-lab, libfibula0, libfibula-dev (installs debhelper)
	@scripts/setup deb
	scripts/deb

deb-test: deb ## The packages in a clean root: installed, run by their units, upgraded, removed, purged; and the commands of the how-to on two machines (root; 4 minutes; installs mmdebstrap)
	@scripts/setup deb-test
	scripts/package-test
	scripts/install-test

container-test: deb ## The image of contrib/container, built of the package, with two switches that forward (root; 4 minutes; installs podman and mmdebstrap)
	@scripts/setup container-test
	scripts/container-test

wheel: ## The Python package: target/wheels/fibula-*.whl, for Linux and Python from 3.9 on
	@scripts/setup wheel
	scripts/wheel

wheel-test: wheel ## The wheel in new environments, under two Python versions where there are two: its tests, types, and rate
	cargo build --release -p fibula-cli
	scripts/wheel-test

check: ## Before each commit: formatting, clippy, and the unit tests of what changed since BASE (origin/main)
	@scripts/setup build
	scripts/check $(BASE)

lint: ## Formatting, clippy, and the rules on dependencies where cargo-deny is installed
	@scripts/setup build
	cargo fmt --all --check
	cargo clippy $(MEMBERS) --all-targets -- -D warnings
	@# A test that is not run holds nothing. Long ones have a short form, and a long one for make deep.
	@! grep -rnE '^ *#\[ *(cfg_attr\(.*, *)?ignore\b' crates --include='*.rs' || { echo "lint: no test may be ignored"; exit 1; }
	@! find crates -name '*.rs' | xargs wc -l | awk '$$2 != "total" && $$1 >= 800' | grep . || { echo "lint: split these files"; exit 1; }
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; \
	  else echo "lint: no cargo-deny here; make deny installs it. make test checks the same lists, but less closely."; fi

deny: ## Licences, sources, versions and security advisories of all dependencies (installs cargo-deny: 4 minutes)
	@scripts/setup build
	cargo deny --version 2>/dev/null || cargo install cargo-deny --locked --debug
	cargo deny check bans licenses sources
	@if cargo deny fetch db; then cargo deny check advisories; \
	  else echo "deny: the database of advisories cannot be fetched: advisories were not checked."; fi

# One seed, so that a rate that is beyond 3 sigma by chance fails no change; make deep draws its own.
test test-lab: export FIBULA_SEED ?= 1
test: lint loom ## Everything about the product: lint, the models of publication, golden vectors, all tests. Fails if a test cannot run here, unless FIBULA_ALLOW_SKIPS=1
	@scripts/setup test
	python3 vectors/check.py
	scripts/test $(MEMBERS)

test-lab: ## Clippy and the tests of the laboratory, its designs, and the fuzz targets
	@scripts/setup test
	cargo clippy -p fibula-papers -p fibula-repro -p fibula-fuzz --all-targets -- -D warnings
	scripts/test -p fibula-papers -p fibula-repro -p fibula-fuzz

# One after the other they would build what they share twice: plots and statistics turn on features of what the product uses.
test-all: ## What CI runs: make test and make test-lab, built once, and make test-apart
	$(MAKE) test MEMBERS=--workspace
	$(MAKE) test-apart

test-apart: ## What takes programs of its own: ports of DPDK, the committed programs for the kernel, the page in a browser (installs libdpdk, clang, chromium, node)
	@scripts/setup test
	@scripts/setup xdp
	@scripts/setup dashboard
	scripts/kernel-program --check
	cargo clippy -p fibula-netio -p fibula-dataplane -p fibula-switch --features fibula-switch/dpdk --lib --tests -- -D warnings
	cargo test -p fibula-netio --features dpdk --lib
	npm ci --prefix crates/controller/web/test
	npm run short --prefix crates/controller/web/test

loom: ## The models of publication to readers, and their mutants
	@scripts/setup build
	CARGO_TARGET_DIR=$(TARGET)/loom RUSTFLAGS="--cfg loom" cargo test -p fibula-lookup --test loom_publish --test loom_outside --test loom_cuckoo --release

memory-check: ## Tests of lookup's unsafe loops under Miri and AddressSanitizer, or valgrind (13 minutes); says which ran
	@scripts/setup build
	scripts/memory-check

# Goes on where the last one stopped: run it again.
campaign: ## Simulations, kills at named steps, flipped bits and fuzz targets in turn for HOURS, recorded for docs/reliability.md
	@test -n "$(HOURS)" || { echo "campaign: for how long? make campaign HOURS=4"; exit 1; }
	scripts/campaign $(HOURS)

# TARGETS names one of them; fuzz/README.md says what there is.
fuzz: ## Fuzz targets guided by coverage, SECONDS each (60), as in `make fuzz TARGETS=southbound SECONDS=600`
	scripts/fuzz $(TARGETS) $(SECONDS)

bench: ## The standard tables, DPDK's structures included (10 to 20 minutes)
	@scripts/setup bench
	cargo build --release -p fibula-cli
	$(LAB) --features dpdk
	scripts/with-huge-pages $(HUGE_MIB) scripts/bench $(FIBULA)

# MACHINE is the short name of this machine in the tables. Add ARGS="--set long" for what takes longer.
record: ## A record of this machine for docs/benchmarks.md, as in `make record MACHINE="Zen 5"`
	@scripts/setup bench
	cargo build --release -p fibula-cli
	$(LAB) --features dpdk
	scripts/with-huge-pages $(HUGE_MIB) $(FIBULA) bench record --machine "$(MACHINE)" $(ARGS)

benchmarks: ## Write the figures of all records into the documents that quote them
	@scripts/setup build
	$(LAB)
	$(FIBULA)-lab bench report

# Add ARGS=--full for the papers' sizes, meant for a night. What ran before is not run again: it goes on where it stopped.
repro: ## Every table and figure of the papers on this machine, repro-results/quick/report.html (some 15 minutes)
	@scripts/setup bench
	cargo build --release -p fibula-cli
	$(LAB) --features dpdk
	@test -d topologies || scripts/topologies || echo "Networks will be generated ones: scripts/topologies fetches real ones."
	@test -n "$${FIBULA_NAMES:-}" || scripts/real-names || echo "Some names will be made up: scripts/real-names fetches what they would be made from."
	@# A figure that fails does not keep the report from being made; its failure is the outcome.
	status=0; scripts/with-huge-pages $(if $(findstring --full,$(ARGS)),9000,$(HUGE_MIB)) $(FIBULA) repro all $(ARGS) || status=$$?; \
	  $(FIBULA) repro report $(ARGS); exit $$status

xdp: ## Lookups in the kernel: the switch's program, golden images, two hosts through examples/xdp (root; installs clang)
	@scripts/setup xdp
	scripts/kernel-program --check
	FIBULA_DEEP=1 cargo test -p fibula-dataplane --test kernel
	@for mutant in 'counters beside was_sent_to_trunk' 'entries entry it_reads_what_is_of'; do \
	  set -- $$mutant; what="$${3//_/ }"; \
	  scripts/kernel-program --mutant $$1 $(TARGET)/mutant.bpf; \
	  FIBULA_DEEP=1 FIBULA_KERNEL_MUTANT=$(abspath $(TARGET)/mutant.bpf) \
	    cargo test -q -p fibula-dataplane --test kernel -- $$2 > $(TARGET)/mutant.out 2>&1 || true; \
	  grep -m1 "$$what" $(TARGET)/mutant.out \
	    || { echo "the tests do not find a program without the check of $$1: $(TARGET)/mutant.out"; exit 1; }; \
	done
	cargo build --release -p fibula-cli
	examples/xdp/test

# The tests of ports need root; as another user they count as ignored.
dpdk: ## The release binary with ports of DPDK (driver = "dpdk"), and their tests (installs libdpdk)
	@scripts/setup dpdk
	cargo build --release -p fibula-cli --features dpdk
	cargo test -p fibula-netio --features dpdk --lib --test dpdk
	cargo test -p fibula-switch -p fibula-dataplane --features fibula-switch/dpdk --lib --test daemon --test drivers dpdk
	cargo test -p fibula-capi --test dpdk
	cargo test -p fibula-repro --features dpdk --test nodes
	$(FIBULA) demo --driver dpdk --topology ring --switches 4 --names 1000 --seconds 4

guest: ## Two guests of QEMU with virtio-net ping and talk TCP through two switches, with each driver (root; a minute; installs qemu-system-x86)
	@scripts/setup guest
	cargo build --release -p fibula-cli
	scripts/guest

bundle: ## A switch and Open vSwitch speak LACP over two cables, which are cut and mended (root; two minutes; unpacks Open vSwitch in target/tools)
	@scripts/setup bundle
	cargo build --release -p fibula-cli
	scripts/bundle-test

deep: ## Long suites (some four hours), a line of result each: 10^9 checked answers, fuzzing, the kernel, DPDK, guests, packages, container, wheel, the page, AArch64, Click (FIBULA_CLICK=DIR), make repro; SUITES names some of them
	scripts/deep $(SUITES)

# With a release build here (make build), a real controller with certificates is opened as well, and, as root, one with a million names and
# three switches on cables of the kernel.
# FIBULA_DASHBOARD_URL=http://127.0.0.1:4690 names a real controller for the tests that hold at any.
dashboard-test: ## The controller's page in a browser, against a controller that is made up (four minutes; installs chromium and node); pictures in target/dashboard
	@scripts/setup dashboard
	npm ci --prefix crates/controller/web/test
	FIBULA_DASHBOARD_URL=$(FIBULA_DASHBOARD_URL) FIBULA_PICTURES=$(abspath $(TARGET))/dashboard FIBULA=$(abspath $(wildcard $(FIBULA))) npm test --prefix crates/controller/web/test

# Vectors for AArch64 are tested where they run: on a machine that is emulated.
neon: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER := aarch64-linux-gnu-gcc
neon: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER := qemu-aarch64 -L /usr/aarch64-linux-gnu
neon: ## Clippy of the lookup structures and tests of their loops for AArch64, under QEMU (5 to 10 minutes)
	@scripts/setup neon
	cargo clippy -p fibula-lookup --target aarch64-unknown-linux-gnu --lib --tests -- -D warnings
	cargo test -p fibula-lookup --target aarch64-unknown-linux-gnu --lib -- flow line hash othello::tests::every_kernel processor
	cargo test -p fibula-lookup --target aarch64-unknown-linux-gnu --test structures -- flow line

# Without a tree, scripts/click says how to get one, before anything is built.
click: ## The Click elements against a Click tree: FIBULA_CLICK=DIR
	@test -d "$(FIBULA_CLICK)" || scripts/click "$(FIBULA_CLICK)"
	@scripts/setup build
	cargo build --release -p fibula-cli
	$(LAB)
	FIBULA=$(FIBULA) scripts/click "$(FIBULA_CLICK)"

clean: ## Removes what was built
	cargo clean
