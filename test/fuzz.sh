#!/bin/sh
# Runs every fuzz target of the repository for a while: test/fuzz.sh 30s
set -eu
each=${1:-30s}
tags=kerberos # so that what strangers send to it is fuzzed too
for pkg in $(go list -tags $tags ./...); do
  for target in $(go test -tags $tags -list '^Fuzz' "$pkg" | grep '^Fuzz' || :); do
    echo "== $pkg $target"
    go test -tags $tags "$pkg" -run '^$' -fuzz "^$target\$" -fuzztime "$each"
  done
done
