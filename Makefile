# Each target is one command a newcomer could type.

ifndef VERSION
VERSION := $(shell sh deploy/version.sh)
endif
ARCH ?= amd64
DEB := dist/zlockd_$(subst -,~,$(VERSION))-1_$(ARCH).deb
PREFIX ?= /usr/local
DIST ?= dist
LDFLAGS := -X github.com/zlockd/zlockd/cmd/internal/release.set=$(VERSION)

# Built by the go command, so that nothing else needs to be installed.
LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: go abuse build kerberos deb deb-check deb-test dist dist-test image image-test install dev cluster test test-all test-long test-stock test-apps test-soak race sim sim-long sim-repeat sim-shrink races farm mutants mutants-random robustness fuzz bench rivals ways lint sign vulncheck help

build: go ## build bin/zlockd and bin/zlock
	CGO_ENABLED=0 go build -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

go:
	@command -v go >/dev/null || { echo "this needs Go $$(awk '$$1 == "go" {print $$2}' go.mod) or newer: https://go.dev/dl" >&2; exit 1; }

kerberos: go ## build bin/zlockd-kerberos: zlockd with Kerberos, a module of its own
	CGO_ENABLED=0 go -C server/sasl/kerberos build -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o $(CURDIR)/bin/ ./cmd/zlockd-kerberos

dist: ## build release archives for all systems below dist/, with checksums
	sh deploy/dist.sh $(VERSION) dist

dist-test: ## build the archives in two directories and compare them byte by byte
	sh deploy/same.sh $(VERSION)

deb: ## build the Debian package below dist/ (ARCH=amd64)
	sh deploy/dist.sh $(VERSION) dist linux/$(ARCH)
	sh deploy/deb/build.sh $(VERSION) $(ARCH) dist

deb-check: deb ## look at the package: lintian, its files, its units as systemd reads and rates them
	sh deploy/deb/check.sh $(DEB)

deb-test: deb ## install, upgrade, remove and purge it under a systemd of its own (root, debootstrap, lintian)
	sh deploy/deb/test.sh $(DEB) $(ROOT)

install: ## install both programs below PREFIX (default /usr/local)
	CGO_ENABLED=0 go build -trimpath -tags 'nethttpomithttp2,$(TAGS)' -ldflags '-s -w $(LDFLAGS)' -o bin/ ./cmd/...
	install -D -m 0755 bin/zlockd $(DESTDIR)$(PREFIX)/bin/zlockd
	install -D -m 0755 bin/zlock $(DESTDIR)$(PREFIX)/bin/zlock

dev: build ## run one server in memory on 127.0.0.1:2181
	@exec bin/zlockd --dev

cluster: build ## run three local servers until interrupted
	@exec sh test/cluster.sh

test: ## vet, and the tests that need nothing but Go, in about two minutes
	@sh test/run.sh -short

test-all: ## those and the slow ones: servers as processes, long simulations, planted bugs
	@sh test/run.sh -timeout 20m

test-long: ## what make test-all has more than make test: the packages whose tests -short changes, without it
	@sh test/run.sh -long -timeout 20m

test-stock: build kerberos ## run the stock clients and the real ZooKeeper against zlockd, with Kerberos (installs them when root)
	sh test/stock/install.sh
	ZLTEST_REQUIRE_STOCK=1 go test -timeout 10m -count 1 -tags stock ./test/proc -run 'ZkCli|ZooKeeper|Kazoo|ThereAndBack'
	go -C server/sasl/kerberos test -count 1 ./...
	go -C test/bench/rivals test -count 1 ./...
	ZLTEST_REQUIRE_STOCK=1 go test -count 1 -tags stock ./test -run Kubernetes
	ZLTEST_REQUIRE_STOCK=1 go test -timeout 40m -parallel 3 -count 1 -tags stock ./server/sasl/... ./server/clients/identity ./test/stock/... ./test/golden ./test/oracle ./test/wire ./test/cluster  ./test/bench/... ./client/zk

test-apps: ## run whole applications (ClickHouse, Prometheus, collectd, TaskFlow, tooz, Patroni) over deaths of leaders
	sh test/stock/install-apps.sh
	go test -timeout 10m -count 1 -parallel 2 -tags stock,apps -v ./test/stock -run Application

test-soak: ## make test fifty times (RUNS) beside a load of eight (LOAD)
	@sh test/soak.sh

race: ## the tests of make test under the race detector
	@sh test/run.sh -short -race -timeout 20m

# Exact runs: the choices that the runtime leaves to chance come from the seed. See test/sim/overlay.
# WAYS says how a run chooses goroutines: by default the seed takes one of four ways, three of which explore (-1).
# PLANT is the file of a bug to plant, below test/mutants/testdata. The name of the folder tells go that its files are no packages.
EXACT = go run ./test/sim/overlay bin/_sim $(PLANT) && CGO_ENABLED=0 go test -count 1 -overlay bin/_sim/overlay.json -tags exact ./test/sim

sim: ## simulate whole clusters under faults, in virtual time, for HOURS (2) from SEED on, and note it in the ledger
	$(EXACT) -run Sim -timeout 24h -v -sim.seed $(or $(SEED),0) -sim.hours $(or $(HOURS),2) -sim.ways $(or $(WAYS),-1) -sim.ledger ledger.jsonl

sim-long: ## simulate long days with few requests and quiet hours between faults, for HOURS (24) from SEED on, and note it
	$(EXACT) -run Histories -timeout 24h -v -sim.long -sim.seed $(or $(SEED),0) -sim.hours $(or $(HOURS),24) -sim.ways $(or $(WAYS),-1) -sim.ledger $(or $(LEDGER),ledger.jsonl)

sim-repeat: ## run SEEDS (20) seeds and three hours of a long day twice, each in two processes, and want all runs equal
	$(EXACT) -run Histories -timeout 60m -v -sim.seed $(or $(SEED),0) -sim.hours $(or $(SEEDS),20)e-1 -sim.ways $(or $(WAYS),-1) -sim.twice
	$(EXACT) -run Histories -timeout 60m -v -sim.seed $(or $(SEED),0) -sim.long -sim.day 3h -sim.hours 0 -sim.ways $(or $(WAYS),-1) -sim.twice

sim-shrink: ## cut the failing run of SEED (LONG=1: a long day) to few faults and requests that still fail, with RUNS (300) runs
	$(EXACT) -run Shrink -timeout 24h -v -sim.seed $(SEED) -sim.ways $(or $(WAYS),0) $(if $(LONG),-sim.long -sim.day $(or $(DAY),0)) -sim.shrink $(or $(RUNS),300)

races: ## plant races that were found by reading, and count the seeds (SEEDS at most) that find each; RACE names some
	go test -count 1 -timeout 24h ./test/mutants -run RacesAreLookedFor -mutants.races $(or $(SEEDS),20) -mutants.race '$(RACE)' -v

farm: ## simulate new seeds until it is stopped, with LONG=1 long days; the output of those that fail is kept below bin/farm
	$(EXACT) -run Histories -timeout 0 -sim.hours 1e6 -sim.ways $(or $(WAYS),-1) $(if $(LONG),-sim.long) -sim.ledger $(or $(LEDGER),ledger.jsonl) -sim.farm ../../bin/farm

abuse: ## set hostile clients on servers under limits, an innocent one beside them (TIME for each, DRAWS random ones)
	go test -count 1 -timeout 60m ./test/abuse -run 'RandomAttacks|EndsOfSessions' -abuse.draws $(or $(DRAWS),300) -abuse.strict -v
	go test -count 1 -timeout 60m ./test/abuse -run Abuse -abuse.time $(or $(TIME),15s) -abuse.strict -v

mutants: ## plant bugs in the server and see that the tests catch them
	go test -timeout 60m ./test/mutants -mutants.all -v

mutants-random: ## plant random small edits (N for each package, SEED, PKG) and see which no test notices
	nice go test -count 1 -timeout 24h ./test/mutants -run RandomEdits -mutants.random $(or $(N),20) -mutants.seed $(or $(SEED),1) -mutants.pkg '$(PKG)' -v

fuzz: ## fuzz every decoder for 30 seconds each
	sh test/fuzz.sh 30s

bench: build ## measure against ZooKeeper in one interleaved run
	go run ./test/bench

rivals: ## measure keys and locks beside ZooKeeper's, etcd's and Redis's, and draw the figures of docs/benchmarks.md
	cd test/bench/rivals && go run . -out ../../../docs/benchmarks

ways: ## measure a lock, five ways and ZooKeeper's (six minutes), and write the table of docs/benchmarks.md
	cd test/bench/rivals && go run . -parts ways -rounds 4 -write ../../../docs/benchmarks.md

lint: ## what CI checks besides tests: gofmt, builds for other systems, plain English, and golangci-lint as .golangci.yml says
	test -z "$$(git ls-files '*.go' | xargs gofmt -l)"
	go test ./test -run 'TestErrorsAreToldByTheirCode'
	GOOS=freebsd GOARCH=amd64 go build ./...
	GOOS=freebsd GOARCH=amd64 go -C server/sasl/kerberos build ./...
	GOOS=windows GOARCH=amd64 go build ./cmd/... ./client/... ./server
	GOOS=darwin GOARCH=arm64 go vet ./...
	go vet -tags stock,interop,apps ./...
	sh test/words.sh
	go run $(LINT) run
	cd server/sasl/kerberos && go run $(LINT) run --config ../../../.golangci.yml

image: ## build both images with buildah, as root and without an engine (ROOT: a Debian by debootstrap)
	sh deploy/dist.sh $(VERSION) dist linux/$(ARCH)
	sh deploy/image/build.sh $(VERSION) $(ARCH) dist $(ROOT)

image-test: image ## start both from their roots, also by the commands of three public charts
	bash deploy/image/test.sh $(VERSION)

sign: ## sign dist/SHA256SUMS with the releaser's key (KEY=minisign.key)
	minisign -S -s $(KEY) -m $(DIST)/SHA256SUMS -t 'zlockd $(VERSION)'

vulncheck: ## look up the linked libraries in Go's list of vulnerabilities (needs the network)
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./cmd/... ./client/... ./server/...
	cd server/sasl/kerberos && go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16
