#!/bin/sh
# Runs every fuzz target of the repository for a while: test/fuzz.sh 30s
set -eu
each=${1:-30s}
for module in . server/sasl/kerberos; do # strangers send to Kerberos as well
  for pkg in $(go -C "$module" list ./...); do
    for target in $(go -C "$module" test -list '^Fuzz' "$pkg" | grep '^Fuzz' || :); do
      echo "== $pkg $target"
      go -C "$module" test "$pkg" -run '^$' -fuzz "^$target\$" -fuzztime "$each"
    done
  done
done
