#!/bin/sh
# Starts three local servers and stops them at the end. Run it by `make cluster`.
set -eu
bin=${ZLOCKD:-bin/zlockd}
dir=${ZLOCKD_CLUSTER_DIR:-./zlockd-cluster}
peers=1=127.0.0.1:2888,2=127.0.0.1:2889,3=127.0.0.1:2890
pids=
stop() { [ -z "$pids" ] || kill $pids 2>/dev/null || :; wait; }
trap stop EXIT
trap 'exit 130' INT TERM
for id in 1 2 3; do
  "$bin" --id $id --peers $peers --peer-addr 127.0.0.1:$((2887 + id)) --client-addr 127.0.0.1:$((2180 + id)) \
    --admin-addr 127.0.0.1:$((8180 + id)) --data-dir "$dir/$id" &
  pids="$pids $!"
done
echo "clients: 127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183   (Ctrl-C stops all three)"
wait
