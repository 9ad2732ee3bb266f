# Each target is one command a newcomer could type.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.release=$(VERSION)

.PHONY: build dev cluster test test-stock race sim mutants robustness fuzz bench lint help

build: ## build bin/zlockd and bin/zlock
	go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

dev: ## run one server in memory on 127.0.0.1:2181
	go run -ldflags '$(LDFLAGS)' ./cmd/zlockd --dev

cluster: build ## run three local servers until interrupted
	sh test/cluster.sh

test: ## vet and run all tests that need nothing but Go
	go vet ./...
	go test -count=1 -timeout 15m ./... # anew: some tests build the programs themselves, which go's cache does not see

race: ## the same under the race detector
	go test -race -timeout 30m ./...

test-stock: build ## run the stock clients and the real ZooKeeper against zlockd (installs them when root)
	sh test/stock/install.sh
	ZLOCKD_REQUIRE_STOCK=1 go test -timeout 20m -tags stock ./test/stock/... ./test/member/... ./test/golden/... ./test/oracle/... ./test/zkreal/...

sim: ## simulate whole clusters under faults, in virtual time
	go test -timeout 60m ./test/sim/... -run Sim -sim.hours 2 -v

mutants: ## plant bugs in the server and see that the tests catch them
	go test -timeout 60m ./test/mutants -mutants.all -v

fuzz: ## fuzz every decoder for 30 seconds each
	sh test/fuzz.sh 30s

bench: build ## measure against ZooKeeper in one interleaved run
	go run ./test/bench

lint: ## what CI checks besides tests
	test -z "$$(gofmt -l .)"
	go vet ./...

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14
