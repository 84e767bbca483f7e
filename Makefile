# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO ?= go
# Version of the programs; "unknown" without git.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# How long each fuzz target runs.
FUZZTIME ?= 20s
# Name, platform and file of the image of "make image".
IMAGE ?= localhost/qos-nri-plugin:dev
PLATFORM ?= linux/$(shell $(GO) env GOARCH)
IMAGE_FILE ?= bin/image.tar
# Registry, key and platforms of "make release". BUILDER is the URI of the builder that the provenance names.
REGISTRY ?=
KEY ?=
IMAGE_PLATFORMS ?= linux/amd64 linux/arm64
PLUGIN_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
BUILDER ?= https://github.com/qos-nri/qos-nri-plugin/blob/main/Makefile
# Time of everything in the image: that of the commit, so that the digest is reproducible.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
# Packages to test, e.g. make test PACKAGES=./pkg/rdt/...
PACKAGES ?= ./...
# Timeout of the end-to-end tests in VMs, and also of those on Kubernetes.
E2E_TIMEOUT ?= 60m
# Selects end-to-end tests by name, like go test -run.
E2E_RUN ?= .
# SHORT=1 leaves out the end-to-end tests that run each night only.
SHORT ?=
# How many times each end-to-end test runs.
E2E_COUNT ?= 1
# Commit with which "make mutants" compares.
BASE ?= main
# Duration and seed of a soak; seed 0 is random.
MINUTES ?= 5
SEED ?= 0
# Kind of RDT in the VM: intel or amd.
VENDOR ?= intel
# Duration of each measurement of the lab, and where its tables and pictures go.
SECONDS ?= 20
OUTPUT ?= bin/lab
# Factor by which the benchmark may miss its goals, and the page whose tables it replaces. QUICK=1 takes fewer samples.
TOLERANCE ?= 1
PAGE ?=
QUICK ?=
# With REAL=1, the demo uses this machine's resctrl and cgroups, the lab its disk and memory, and the benchmark also containerd. All need root.
REAL ?=

# Further modules with tests. Each has its own versions of dependencies. Those in SLOW_MODULES compile Helm, an API server, an OpenTelemetry
# collector, programs for other platforms, or the plugin once more with an older NRI.
TEST_MODULES := $(patsubst %/go.mod,%,$(wildcard test/*/go.mod)) tools/docs tools/house tools/image
SLOW_MODULES := test/chart test/deploy test/nri0123 test/otlp tools/image

# The race detector needs a C compiler. Without a compiler, tests run without the detector. The tests in SLOW_MODULES always run without the
# detector, because compiling for it takes minutes more. Tests of further modules run without the test cache, because the cache does not
# notice changes of files outside of a module, which the tests read.
RACE := $(if $(shell command -v "$$($(GO) env CC)"),-race)
# With the detector, each program waits for a second before it ends, unless this says otherwise. Tests start hundreds of programs.
export GORACE ?= atexit_sleep_ms=0

# Packages that are tested at once: two more than there are CPUs, because many tests wait. On two busy cores, the ten packages that wait
# most took 60 to 80 s instead of 120 to 130 s.
AT_ONCE := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))

# test_modules FLAGS,MODULES,PACKAGES: tests the packages of each module, and fails at the end if a module failed.
define test_modules
	@failed=; \
	for module in $(2); do \
	  [ "$$module" = . ] || fresh=-count=1; \
	  (set -x; $(GO) -C $$module test $(1) $${fresh:-} $(3)) || failed+=" $$module"; \
	done; \
	[ -z "$$failed" ] || { echo "failed in:$$failed" >&2; exit 1; }
endef

# Tools are built once, outside of the checkout. The directory of each set of tools is named after a hash of go.sum and Go's version.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/qos-nri-plugin
tools_dir = $(CACHE)/tools/$(1)-$(shell { $(GO) env GOVERSION; cat tools/$(1)/go.sum; $(2); } 2>/dev/null | sha256sum | cut -c1-12)
# protoc-gen-go has the version of the main module's protobuf library, which the generated code calls.
GENERATE_DIR = $(call tools_dir,generate,$(GO) list -m google.golang.org/protobuf)
GENERATE_CRD_DIR = $(call tools_dir,generate-crd,true)
LINT_DIR = $(call tools_dir,lint,true)
LINT = $(LINT_DIR)/golangci-lint
MUTANTS_DIR = $(call tools_dir,mutants,true)
VULNERABILITIES_DIR = $(call tools_dir,vulnerabilities,true)
PROMTOOL_DIR = $(call tools_dir,prometheus,true)

##@ Develop

.PHONY: help
help: ## Show this.
	@awk 'BEGIN { FS = ":.*## "; print "make TARGET [NAME=VALUE…]" } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Without the traces of gRPC the programs do not link html/template, which calls methods by their names. So the linker removes unused methods.
.PHONY: build
build: ## Build the programs, static, into bin/.
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/...

# The image has the static programs of the node, but not the kubectl plugin, and the licences of linked modules.
.PHONY: image
image: ## Build bin/image.tar, an OCI image of the node's programs; IMAGE=name:tag PLATFORM=linux/arm64 IMAGE_FILE=file.
	mkdir -p bin/$(PLATFORM)
	CGO_ENABLED=0 GOOS=$(firstword $(subst /, ,$(PLATFORM))) GOARCH=$(word 2,$(subst /, ,$(PLATFORM))) \
	  $(GO) build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '-s -w -X main.version=$(VERSION)' -o bin/$(PLATFORM)/ $(addprefix ./,$(wildcard cmd/qos-*))
	$(GO) -C tools/house run . -root "$(CURDIR)" -notices "$(CURDIR)/bin/third-party-licences.txt"
	$(GO) -C tools/image run . -output "$(abspath $(IMAGE_FILE))" -name '$(IMAGE)' -platform '$(PLATFORM)' \
	  -epoch '$(SOURCE_DATE_EPOCH)' -version '$(VERSION)' -revision "$$(git rev-parse HEAD 2>/dev/null || true)" \
	  -title qos-nri-plugin -source https://github.com/qos-nri/qos-nri-plugin -licenses Apache-2.0 \
	  -documents "$(CURDIR)/LICENSE,$(CURDIR)/bin/third-party-licences.txt" -entrypoint qos-nri-plugin \
	  $(addprefix "$(CURDIR)/bin/$(PLATFORM)"/,$(notdir $(wildcard cmd/qos-*)))

.PHONY: release
release: export VERSION := $(VERSION)
release: export REGISTRY := $(REGISTRY)
release: export KEY := $(KEY)
release: export IMAGE_PLATFORMS := $(IMAGE_PLATFORMS)
release: export PLUGIN_PLATFORMS := $(PLUGIN_PLATFORMS)
release: export BUILDER := $(BUILDER)
release: ## Build and publish the release of a tag; VERSION=v1.2.3 REGISTRY=registry.example/qos KEY=cosign.key.
	scripts/release.sh

# Without optimization and debug information the demo compiles in a third less time.
QUICKLY := -gcflags='all=-N -l -dwarf=false' -ldflags='-s -w'

.PHONY: demo
demo: ## Show what the plugin does, on any machine; REAL=1, as root: on this machine's resctrl and cgroups.
	$(GO) run $(QUICKLY) ./test/demo $(if $(REAL),--real)

.PHONY: docs
docs: ## Build bin/docs, the site of the documentation, and check its links.
	$(GO) -C tools/docs run . -root "$(CURDIR)" -output "$(CURDIR)/bin/docs"

.PHONY: generate
generate: $(GENERATE_DIR)/.built $(GENERATE_CRD_DIR)/.built ## Generate the node API's Go code, the CRDs and the deepcopy code.
	cd api && PATH="$(GENERATE_DIR):$$PATH" buf generate
	PATH="$(GENERATE_CRD_DIR):$$PATH" scripts/generate-crd.sh .

.PHONY: format
format: $(LINT_DIR)/.built ## Format all Go code.
	$(LINT) fmt
	@for module in $(TEST_MODULES); do (set -x; cd $$module; $(LINT) fmt); done

.PHONY: clean
clean: ## Remove what was built in the checkout.
	rm -rf bin cover.out

##@ Test

# The tag is that of "make build". The tests that build programs use the same flags, so that Go finds all packages in its cache.
.PHONY: test
test: ## Run the tests that need neither root nor long builds, fuzz seeds included; PACKAGES=./pkg/rdt/...
	@$(if $(RACE),,echo 'no C compiler: testing without the race detector')
	$(call test_modules,-timeout 30m -p $(AT_ONCE) $(RACE) -tags grpcnotrace,. $(if $(filter ./...,$(PACKAGES)),$(filter-out $(SLOW_MODULES),$(TEST_MODULES))),$(PACKAGES))

# The timeout is for each package. It includes cross-compilation with empty caches on a busy machine.
.PHONY: test-slow
test-slow: ## Run the tests with long builds: Helm, an API server, an OpenTelemetry collector, a release, an older NRI.
	$(call test_modules,-timeout 60m,$(SLOW_MODULES),./...)

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME=20s each, as many at once as there are CPUs.
	scripts/fuzz.sh $(FUZZTIME)

# This builds what is missing before the first test, so that no build slows tests down.
.PHONY: e2e-setup
e2e-setup: ## Build the kernel, the runtimes and Kubernetes for the end-to-end tests.
	test/e2e/vm/setup.sh $(if $(SHORT),short) >/dev/null
	[ "$$(id -u)" != 0 ] || test/e2e/kubernetes/setup.sh $(if $(SHORT),short) >/dev/null

# The two targets run one after the other, because a VM keeps one CPU busy, and runtimes and kubelets time out on a busy host.
.PHONY: e2e
e2e: e2e-setup ## Run the end-to-end tests, e2e-kubernetes and e2e-vm; SHORT=1 leaves out those that run each night.
	$(MAKE) --no-print-directory -k e2e-kubernetes e2e-vm

.PHONY: e2e-vm
e2e-vm: ## Run the tests in VMs with the real kernel and runtimes; E2E_RUN=NAME chooses, E2E_COUNT=N repeats.
	$(GO) test -tags e2e $(if $(SHORT),-short) -count=$(E2E_COUNT) -v -timeout $(E2E_TIMEOUT) -run '$(E2E_RUN)' ./test/e2e

.PHONY: e2e-kubernetes
e2e-kubernetes: ## Run the tests on a real Kubernetes, as root, on this machine, in namespaces of its own; E2E_RUN=NAME.
	$(GO) test -tags e2e $(if $(SHORT),-short) -count=$(E2E_COUNT) -v -timeout $(E2E_TIMEOUT) -run '$(E2E_RUN)' ./test/e2e/kubernetes

.PHONY: e2e-kubernetes-vm
e2e-kubernetes-vm: ## Run the tests on a real Kubernetes that have a VM with RDT as a node, as root.
	$(MAKE) --no-print-directory e2e-kubernetes E2E_RUN='TestVirtualNode|TestNodes'

.PHONY: vm
vm: build ## Open a shell in a VM with real resctrl, as the VM tests use it; VENDOR=amd.
	scripts/vm.sh $(VENDOR)

.PHONY: lab
lab: ## Measure the effect of classes, on a disk in a VM, or with REAL=1, as root, on this machine. SECONDS=20 OUTPUT=bin/lab.
	$(if $(REAL),$(GO) run ./test/lab/real -seconds $(SECONDS) -output '$(OUTPUT)', \
	  QOS_LAB_SECONDS=$(SECONDS) QOS_LAB_OUTPUT='$(abspath $(OUTPUT))' \
	  $(GO) test -tags e2e -count=1 -v -timeout $(E2E_TIMEOUT) -run TestLab ./test/e2e)

.PHONY: bench
bench: ## Measure hooks, reloads and memory, and fail if a goal is missed; REAL=1, as root: also containerd's creations. PAGE=docs/performance.md.
	$(GO) run ./test/bench -tolerance $(TOLERANCE) -page '$(PAGE)' \
	  $(if $(QUICK),-creations 100 -synchronizations 3 -reloads 3 -churned 300 -live 20 -many 100 -rest 10s)
	$(if $(REAL),QOS_BENCH_TOLERANCE=$(TOLERANCE) QOS_BENCH_CONTAINERS=1000 \
	  $(MAKE) --no-print-directory e2e-kubernetes E2E_RUN=TestCreationsTakeHardlyLongerWithThePlugin)

.PHONY: soak
soak: ## Test a simulated node with random actions; MINUTES=5, SEED=N repeats them.
	$(GO) run ./test/soak -minutes $(MINUTES) -seed $(SEED)

.PHONY: mutants
mutants: $(MUTANTS_DIR)/.built ## Change operators in the lines that differ from BASE=main, and print what no test notices.
	PATH="$(MUTANTS_DIR):$$PATH" scripts/mutants.sh '$(BASE)'

.PHONY: cover
cover: ## Measure test coverage by function, into cover.out and on the terminal.
	$(GO) test -coverpkg=./pkg/...,./internal/...,./cmd/... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out

##@ Verify

.PHONY: verify
verify: verify-modules verify-generated verify-house verify-vulnerabilities verify-alerts verify-format lint ## Check everything that is not a test.

.PHONY: lint
lint: $(LINT_DIR)/.built ## Run the linters of .golangci.yml, over the VM tests too, and vet.
	$(GO) vet ./...
	$(LINT) run --build-tags e2e,e2e_vm
	@for module in $(TEST_MODULES); do (set -x; cd $$module; $(LINT) run); done

.PHONY: verify-format
verify-format: $(LINT_DIR)/.built ## Check that all Go code is formatted (gofmt, goimports).
	$(LINT) fmt --diff
	@for module in $(TEST_MODULES); do (set -x; cd $$module; $(LINT) fmt --diff); done

.PHONY: verify-generated
verify-generated: $(GENERATE_DIR)/.built $(GENERATE_CRD_DIR)/.built ## Check the sources of generated code, and that the code is up to date.
	PATH="$(GENERATE_DIR):$(GENERATE_CRD_DIR):$$PATH" scripts/verify-generated.sh

.PHONY: verify-house
verify-house: ## Check file headers, file sizes, and the licences of linked modules.
	$(GO) -C tools/house run . -root "$(CURDIR)"

.PHONY: verify-vulnerabilities
verify-vulnerabilities: $(VULNERABILITIES_DIR)/.built ## Check the programs for known vulnerabilities, where the database can be reached.
	PATH="$(VULNERABILITIES_DIR):$$PATH" scripts/vulnerabilities.sh

.PHONY: verify-alerts
verify-alerts: $(PROMTOOL_DIR)/.built ## Check the alerts' syntax, and when they fire, with promtool.
	$(PROMTOOL_DIR)/promtool check rules deploy/monitoring/rules.yaml
	$(PROMTOOL_DIR)/promtool test rules test/monitoring/rules_test.yaml

.PHONY: verify-modules
verify-modules: ## Check that go.mod and go.sum are tidy, and that downloaded modules are unmodified.
	@for module in . $(TEST_MODULES); do (set -x; $(GO) -C $$module mod tidy -diff); done
	$(GO) mod verify

##@ Tools

.PHONY: tools
tools: $(GENERATE_DIR)/.built $(GENERATE_CRD_DIR)/.built $(LINT_DIR)/.built $(MUTANTS_DIR)/.built $(VULNERABILITIES_DIR)/.built $(PROMTOOL_DIR)/.built ## Build the tools now rather than when first needed (some minutes).

$(GENERATE_DIR)/.built:
	mkdir -p $(@D)
	$(GO) build -o $(@D)/ google.golang.org/protobuf/cmd/protoc-gen-go
	$(GO) -C tools/generate build -o $(@D)/ tool
	touch $@

$(GENERATE_CRD_DIR)/.built:
	mkdir -p $(@D)
	$(GO) -C tools/generate-crd build -o $(@D)/ tool
	touch $@

$(LINT_DIR)/.built:
	mkdir -p $(@D)
	$(GO) -C tools/lint build -o $(@D)/ tool
	touch $@

$(MUTANTS_DIR)/.built:
	mkdir -p $(@D)
	$(GO) -C tools/mutants build -o $(@D)/ tool
	touch $@

$(VULNERABILITIES_DIR)/.built:
	mkdir -p $(@D)
	$(GO) -C tools/vulnerabilities build -o $(@D)/ tool
	touch $@

# The build tags leave out Prometheus' service discovery for clouds, because cloud libraries are most of the code to compile.
$(PROMTOOL_DIR)/.built:
	mkdir -p $(@D)
	$(GO) -C tools/prometheus build -tags remove_all_sd,enable_kubernetes_sd -o $(@D)/ github.com/prometheus/prometheus/cmd/promtool
	touch $@
