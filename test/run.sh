#!/bin/sh
# Runs vet and the tests of all packages with the given flags of go test, and
# says how far it is. The packages' names appear as they end. Run it by
# `make test` or `make test-all`.
set -u
begin=$(date +%s)
say() { printf '== %s (%d s)\n' "$1" $(($(date +%s) - begin)); }

say "vet"
go vet ./... || exit 1
go vet -tags stock,interop,apps ./... || exit 1

say "tests: $*"
# Anew each time: some tests build the programs themselves, which go's cache
# does not see. Many at once, packages too, because most of them wait for a
# server. The longest begin first, so that none of them runs alone at the end.
long="./test/sim ./test/proc ./client ./test/mutants ./raftfsm ./test/abuse ./server ./cmd/zlock ./raftfsm/seglog"
go run test/progress.go -vet=off -count=1 -p 4 -parallel 8 -timeout 10m "$@" $long ./... ||
  { say "FAILED"; exit 1; }
say "all tests passed"
