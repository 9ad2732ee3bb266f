#!/bin/bash
# Starts zlockd where charts start ZooKeeper: zkServer.sh start-foreground|status|print-cmd [CONFIG]
set -eu
command=${1:-} config=${2:-zoo.cfg}
[[ $config == */* ]] || config=${ZOO_CONF_DIR:-/conf}/$config

# properties prints the -D options of a JVM as lines of a zoo.cfg.
properties() {
	local flag
	for flag in ${JVMFLAGS:-} ${SERVER_JVMFLAGS:-}; do
		case $flag in
		-D*=*) echo "${flag#-D}" ;;
		-Xm*) echo "zkServer.sh: no effect: $flag: zlockd has no JVM and takes the memory that it needs" >&2 ;;
		*) echo "zkServer.sh: no effect: $flag: zlockd has no JVM" >&2 ;;
		esac
	done
}

case $command in
start-foreground)
	# As with ZooKeeper, servers talk in the clear unless certificates are given.
	[[ -n ${ZLOCKD_PEER_TLS_CERT:-} ]] || export ZLOCKD_PEER_INSECURE=${ZLOCKD_PEER_INSECURE:-true}
	merged=$(mktemp)
	{ cat "$config"; echo; properties; } >"$merged"
	exec zlockd --config "$merged"
	;;
print-cmd) echo "zlockd --config $config" ;;
status)
	port=$(sed -n 's/^[[:space:]]*clientPort[[:space:]]*=[[:space:]]*\([0-9]*\).*/\1/p' "$config" | tail -n 1)
	[[ -n $port ]] || port=$(sed -n 's/^server\.[0-9]*=.*;\(.*:\)\{0,1\}\([0-9]*\)$/\2/p' "$config" | head -n 1)
	echo "Using config: $config"
	mode=$(echo srvr | nc -w 5 localhost "${port:-2181}" | grep Mode) || {
		echo "Error contacting service. It is probably not running."
		exit 1
	}
	echo "$mode"
	;;
*)
	echo "Usage: zkServer.sh start-foreground|status|print-cmd [CONFIG]" >&2
	exit 1
	;;
esac
