#!/bin/sh
# Starts three local servers and stops them at the end: at Ctrl-C, when it is
# terminated, or when one of them ends by itself. Run it by `make cluster`.
set -eu
bin=${ZLOCKD:-bin/zlockd}
dir=${ZLOCKD_CLUSTER_DIR:-./zlockd-cluster}
# The first of three ports each.
client=${ZLOCKD_CLUSTER_CLIENT:-2181}
peer=${ZLOCKD_CLUSTER_PEER:-2888}
admin=${ZLOCKD_CLUSTER_ADMIN:-8181}
unset ZLOCKD_CLUSTER_DIR ZLOCKD_CLUSTER_CLIENT ZLOCKD_CLUSTER_PEER ZLOCKD_CLUSTER_ADMIN # no settings of a server

pids=
running() { # how many of the servers run
  n=0
  for pid in $pids; do
    if kill -0 "$pid" 2>/dev/null; then n=$((n + 1)); fi
  done
  echo $n
}
interrupted() { # the servers have got the Ctrl-C too; a second signal would end them at once
  trap '' INT TERM
  tries=0
  while [ "$(running)" -gt 0 ] && [ $tries -lt 5 ]; do
    sleep 1
    tries=$((tries + 1))
  done
  finish
}
finish() {
  trap '' INT TERM
  trap - EXIT
  code=0
  for pid in $pids; do kill "$pid" 2>/dev/null || :; done
  for pid in $pids; do wait "$pid" || code=1; done
  [ $code = 0 ] && echo "all three are stopped" || echo "not all three were stopped in order" >&2
  exit $code
}
trap finish TERM EXIT
trap interrupted INT

for id in 1 2 3; do
  "$bin" --id $id --peers "1=127.0.0.1:$peer,2=127.0.0.1:$((peer + 1)),3=127.0.0.1:$((peer + 2))" \
    --peer-addr 127.0.0.1:$((peer + id - 1)) --client-addr 127.0.0.1:$((client + id - 1)) \
    --admin-addr 127.0.0.1:$((admin + id - 1)) --data-dir "$dir/$id" &
  pids="$pids $!"
done
echo "clients: 127.0.0.1:$client,127.0.0.1:$((client + 1)),127.0.0.1:$((client + 2))   (Ctrl-C stops all three)"
while [ "$(running)" = 3 ]; do sleep 1; done
