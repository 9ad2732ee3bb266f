#!/bin/bash
# Starts both images from their roots, without an engine: by chroot, each in namespaces with a
# loopback network alone. The start and probe commands are those of public charts that use the
# official image of ZooKeeper. Needs root and buildah: bash deploy/image/test.sh VERSION
set -euo pipefail
version=$1
export STORAGE_DRIVER="${STORAGE_DRIVER:-vfs}" BUILDAH_ISOLATION=chroot
work=$(mktemp -d) inside='' containers=()
end() {
	stop
	for c in "${containers[@]}"; do buildah rm "$c" >/dev/null; done
	rm -rf --one-file-system "$work"
}
trap end EXIT
fail() {
	echo "FAILED: $*" >&2
	cat "$work/log" >&2
	exit 1
}

root_of() { # IMAGE: sets root
	local c
	c=$(buildah from --pull-never "localhost/zlockd:$1")
	containers+=("$c")
	root=$(buildah mount "$c")
}
# start runs COMMAND as the image does. Its environment is PATH and the variables before it.
start() { # HOST USER [VARIABLE=VALUE…] COMMAND…
	local host=$1 user=$2
	shift 2
	mkdir -p "$root/proc" "$root/dev" "$root/etc"
	unshare --pid --fork --kill-child --mount --uts --net bash -c '
		ip link set lo up && hostname "$1"
		mount -t proc proc "$0/proc"; mount --bind /dev "$0/dev"
		printf "127.0.0.1 localhost %s %s\n" "$1" "$2" >"$0/etc/hosts"
		exec chroot --userspec="$3" "$0" /bin/env -i HOSTNAME="$1" "${@:4}"' \
		"$root" "$host" "$host.$host-headless" "$user" "$@" >"$work/log" 2>&1 </dev/null &
	outer=$!
	inside=
	until inside=$(cat "/proc/$outer/task/$outer/children") && [[ -n $inside ]]; do
		kill -0 $outer 2>/dev/null || fail "$host does not start"
		sleep 0.1
	done
	inside=${inside%% *}
}
stop() {
	if [[ -n $inside ]]; then
		kill -9 "$inside" 2>/dev/null || true
		wait
		inside=
	fi
}
run() { timeout 60 nsenter -t "$inside" -m -u -n -p -r -w env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin "$@"; }
await() {
	for _ in $(seq 300); do
		run "$@" >"$work/probe" 2>&1 && return
		kill -0 "$inside" 2>/dev/null || fail "the server ended"
		sleep 0.2
	done
	cat "$work/probe" >&2
	fail "$* did not succeed within a minute"
}
path=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
zoo=(ZOO_CONF_DIR=/conf ZOO_DATA_DIR=/data ZOO_DATA_LOG_DIR=/datalog ZOO_LOG_DIR=/logs)

echo "== zlockd:$version, alone"
root_of "$version"
size=$(du -sk --apparent-size "$root" | cut -f1)
((size <= 20000)) || fail "the image has $size kB"
[[ $(stat -c %u "$root/data") == 65532 ]] || fail "/data belongs to $(stat -c %u "$root/data")"
cat >"$work/alone.sh" <<-'EOF'
	ip link set lo up
	export ZLOCKD_DATA_DIR=/data ZLOCKD_CLIENT_ADDR=:2181
	chroot --userspec=65532:65532 "$1" /usr/bin/zlockd & server=$!
	chroot --userspec=65532:65532 "$1" /usr/bin/zlockd --check-ready && echo "ready before the start"
	for _ in $(seq 300); do
		chroot --userspec=65532:65532 "$1" /usr/bin/zlockd --check-ready && { kill $server; wait $server; exit 0; }
		sleep 0.2
	done
	exit 1
EOF
unshare --pid --fork --kill-child --mount --net bash "$work/alone.sh" "$root" >"$work/log" 2>&1 || fail "not healthy within a minute"
echo "   $size kB, healthy as user 65532"

echo "== Apache Pinot's chart"
root_of "$version-zookeeper"
start pinot-zookeeper-0 0:0 $path "${zoo[@]}" \
	ZOO_SERVERS="server.1=pinot-zookeeper-0.pinot-zookeeper-0-headless:2888:3888;2181" ZOO_TICK_TIME=2000 ZOO_INIT_LIMIT=10 ZOO_SYNC_LIMIT=5 \
	ZOO_MAX_CLIENT_CNXNS=60 ZOO_AUTOPURGE_PURGE_INTERVAL=1 ZOO_AUTOPURGE_SNAP_RETAIN_COUNT=5 \
	JVMFLAGS='-Xmx256m -Xms256m -Djute.maxbuffer=4000000' ZOO_4LW_COMMANDS_WHITELIST=srvr,mntr,ruok,conf ZOO_ADMINSERVER_ENABLED=true \
	bash -c '
# The official ZooKeeper image uses 1-based IDs, but pod-index is 0-based
HOST=$(hostname -s)
if [[ $HOST =~ (.*)-([0-9]+)$ ]]; then
  export ZOO_MY_ID=$(( ${BASH_REMATCH[2]} + 1 ))
else
  echo "Failed to extract ordinal from hostname $HOST"
  exit 1
fi
exec /docker-entrypoint.sh zkServer.sh start-foreground'
await bash -c 'echo ruok | nc localhost 2181 | grep imok'
await zkServer.sh status
run bash -c 'echo conf | nc localhost 2181' | grep -i -q 'maxbuffer\|4000000' || echo "   (conf does not name the frame limit)"
grep -q -- 'no effect: -Xmx256m' "$work/log" || fail "-Xmx is not told as having no effect"
await bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080; printf "GET /commands/ruok HTTP/1.0\r\nHost: localhost\r\n\r\n" >&3; grep -q "200 OK" <&3'
run zlock run /chart -- true || fail "no lock"
run zkCli.sh -server localhost:2181 ls / || fail "zkCli.sh ls"
[[ $(run stat -c %u /proc/1) == 1000 ]] || fail "the server runs as user $(run stat -c %u /proc/1)"
stop

echo "== the chart zookeeper of CloudPirates"
root_of "$version-zookeeper"
cat >"$root/conf/zoo.cfg" <<-EOF
	tickTime=2000
	dataDir=/data
	initLimit=10
	syncLimit=5
	clientPort=2181
	electionPortBindRetry=10
	maxClientCnxns=60
	4lw.commands.whitelist=srvr
	autopurge.purgeInterval=24
	autopurge.snapRetainCount=3
	quorumListenOnAllIPs=true
EOF
start zookeeper-0 1000:1000 $path "${zoo[@]}" POD_INDEX=0 SERVER_ID_OFFSET=0 /bin/sh -ec '
DATA_DIR="${ZOO_DATA_DIR:-"/data"}"
mkdir -p "$DATA_DIR"
echo "Created data directory: $DATA_DIR (if it did not exist)"
export ZOO_MY_ID=$((POD_INDEX + SERVER_ID_OFFSET))
echo "Calculated ZOO_MY_ID=$ZOO_MY_ID (pod-index=$POD_INDEX + offset=$SERVER_ID_OFFSET)"
exec /docker-entrypoint.sh zkServer.sh start-foreground'
await bash -c 'exec 3<>/dev/tcp/127.0.0.1/2181'
await zkServer.sh status
run zlock run /chart -- true || fail "no lock"
stop

echo "== the chart zookeeper of HelmForge"
root_of "$version-zookeeper"
mkdir -p "$root/opt/helmforge/zookeeper"
printf 'clientPort=2181\nadmin.serverPort=8080\nmetricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\nmetricsProvider.httpPort=7000\n' >"$root/opt/helmforge/zookeeper/zoo-extra.cfg"
cat >"$root/opt/helmforge/zookeeper/start.sh" <<-'EOF'
	set -euo pipefail
	ordinal="${HOSTNAME##*-}"
	rm -f "${ZOO_CONF_DIR:-/conf}/zoo.cfg"
	export ZOO_SERVERS=" "
	export ZOO_DATA_DIR="/data" ZOO_DATA_LOG_DIR="/datalog" ZOO_CLIENT_PORT="2181" ZOO_TICK_TIME="2000"
	export ZOO_INIT_LIMIT="10" ZOO_SYNC_LIMIT="5" ZOO_MAX_CLIENT_CNXNS="60" ZOO_STANDALONE_ENABLED="true"
	export ZOO_ADMINSERVER_ENABLED="true" ZOO_AUTOPURGE_SNAPRETAINCOUNT="3" ZOO_AUTOPURGE_PURGEINTERVAL="24"
	export ZOO_4LW_COMMANDS_WHITELIST="srvr,ruok,mntr"
	extra_cfg="$(cat /opt/helmforge/zookeeper/zoo-extra.cfg)"
	export ZOO_CFG_EXTRA="${extra_cfg}"
	export JVMFLAGS="${JVMFLAGS:-} -Xmx512m -Xms512m"
	exec /docker-entrypoint.sh zkServer.sh start-foreground
EOF
start zookeeper-0 1000:1000 $path "${zoo[@]}" /bin/bash /opt/helmforge/zookeeper/start.sh
await /bin/bash -ec 'zkServer.sh status >/dev/null'
await bash -c 'exec 3<>/dev/tcp/127.0.0.1/7000; printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; grep -q znode_count <&3'
run zlock run /chart -- true || fail "no lock"
echo "all passed"
