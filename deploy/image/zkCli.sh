#!/bin/bash
# The few commands of ZooKeeper's shell that probes use: zkCli.sh [-server HOST:PORT] ls PATH
# For the rest use zlock, or the shell of a ZooKeeper from another machine.
set -eu
server=localhost:2181
if [[ ${1:-} == -server ]]; then
	server=$2
	shift 2
fi
case ${1:-} in
ls) exec zlock ls --servers "$server" "${@:2}" ;;
version) exec zlock version ;;
*)
	echo "zkCli.sh: only ls and version; zlock help tells of locks" >&2
	exit 1
	;;
esac
