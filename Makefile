# make help says what there is. CONTRIBUTING.md says more.

GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT     := mvdan.cc/gofumpt@v0.12.0

# The race detector needs a C compiler. Where there is none the tests run
# without it, and say so.
RACE ?= $(shell .ci/race)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

.PHONY: help build test test-long lint fmt cover demo benchmarks benchstat clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

build: ## bin/duetime, one static file
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/duetime ./cmd/duetime

test: ## all tests but the long ones; under 10 minutes, needs only Go
	@.ci/servers || test $$? = 3
	@test -n '$(RACE)' || echo 'without -race: no C compiler here (apt-get install gcc)'
	$(GO) test $(RACE) -timeout 9m ./...
	@test -z '$(RACE)' || echo 'and without -race, what is too heavy for it:'
	test -z '$(RACE)' || $(GO) test -timeout 9m ./store/diskstore
	test -z '$(RACE)' || $(GO) test -timeout 9m -run 'TestContract|TestConformanceCluster' ./store/remotestore ./store/redisstore

test-long: ## soak, chaos and millions of tasks as well; an hour or more
	@.ci/servers || test $$? = 3
	DUETIME_LONG=1 $(GO) test $(RACE) -timeout 3h ./...

lint: ## go vet, staticcheck, gofumpt
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	cd bench && $(GO) vet ./... && $(GO) build -o /dev/null ./...
	cd bench && $(GO) run $(STATICCHECK) ./...
	@out=$$($(GO) run $(GOFUMPT) -l .) || exit 1; \
	if [ -n "$$out" ]; then echo "not formatted (make fmt):"; echo "$$out"; exit 1; fi

fmt: ## format all Go files
	$(GO) run $(GOFUMPT) -w .

cover: ## which lines no test runs
	$(GO) test -timeout 9m -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -1

demo: ## the order-timeout scenario
	$(GO) run ./cmd/duetime demo

benchmarks: ## docs/benchmarks.md: duetime beside others; half an hour or more, on a machine that does nothing else
	cd bench && $(GO) run ./compare

benchstat: ## the inner parts beside the last release, as CI shows them
	@.ci/bench

clean: ## remove what make built
	rm -rf bin cover.out
