#!/bin/sh
# Runs the tests of `make test` RUNS times in a row beside LOAD busy processes,
# and ends with the first that fails. Run it by `make test-soak`.
set -u
runs=${RUNS:-50}
load=${LOAD:-8}

busy=
stop() { for pid in $busy; do kill "$pid" 2>/dev/null; done; }
trap stop EXIT
trap 'exit 130' INT TERM
while [ "$load" -gt 0 ]; do
	sh -c 'while :; do :; done' &
	busy="$busy $!"
	load=$((load - 1))
done

run=1
while [ $run -le "$runs" ]; do
	echo "== run $run of $runs"
	sh test/run.sh -short || exit 1
	run=$((run + 1))
done
