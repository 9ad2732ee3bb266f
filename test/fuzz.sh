#!/bin/sh
# Runs every fuzz target of the repository for a while: test/fuzz.sh 30s
set -eu
each=${1:-30s}
for pkg in $(go list ./...); do
  for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || :); do
    echo "== $pkg $target"
    go test "$pkg" -run '^$' -fuzz "^$target\$" -fuzztime "$each"
  done
done
