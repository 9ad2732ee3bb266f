#!/bin/sh
# Runs vet and the tests of all packages with the given flags of go test, and
# says how far it is. The packages' names appear as they end. With -long as the
# first flag it leaves out the packages whose tests are the same with and
# without -short. Run it by `make test`, `make test-all` or `make test-long`.
set -u
begin=$(date +%s)
say() { printf '== %s (%d s)\n' "$1" $(($(date +%s) - begin)); }

say "vet"
go vet ./... || exit 1

# The longest begin first, so that none of them runs alone at the end.
first="./test/sim ./test/proc ./client ./test/mutants ./cmd/zlock ./raftfsm ./server/clients ./test/abuse ./server"
first="$first ./raftfsm/disk ./tree ./client/recipe/turns ./raftfsm/seglog"
packages="$first ./..."
if [ "${1:-}" = -long ]; then
	shift
	packages=$first
	root=$(go list -m -f '{{.Dir}}') || exit 1
	for dir in $(go list -f '{{.Dir}}' ./...); do
		# test/cluster asks for -short too, when a test wants a server as a process.
		grep -qs -e 'testing\.Short()' -e 'zlockd/test/cluster"' "$dir"/*_test.go && packages="$packages .${dir#"$root"}"
	done
fi

say "tests: $*"
# go links a kept program again only if something in it has changed.
kept=bin/_tests
atonce=4
case " $* " in
*" -race "*) kept=$kept-race ;;
*" -short "*) atonce=6 ;; # these tests wait more than they compute, so that more packages run at once
esac
mkdir -p "$kept" || exit 1

# Once more each time: some tests build the programs themselves, which go's cache
# does not see. Many at once, packages too, because most of them wait for a server.
# Tests need no tables for a debugger, which take a third of the linker's time.
# shellcheck disable=SC2086 # the packages are a list
go run test/progress.go -vet=off -ldflags='-s -w' -o "$kept/" -count=1 -p $atonce -parallel 8 -timeout 10m \
	"$@" $packages ||
  { say "FAILED"; exit 1; }
say "all tests passed"
