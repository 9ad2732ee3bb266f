#!/bin/bash
# ZooKeeper's shell: zkCli.sh [-server HOST:PORT] [-timeout MS] [VERB …]. zlock sh takes its verbs.
set -eu
options=(--servers localhost:2181)
while [[ ${1:-} == -* ]]; do
	case $1 in
	-server) options+=(--servers "${2:?-server needs HOST:PORT}") && shift 2 ;;
	-timeout) options+=(--session-timeout "$((${2:?-timeout needs milliseconds} / 1000))s") && shift 2 ;;
	-waitforconnection | -r) shift ;; # it always waits, and servers that follow no leader take no reads
	*)
		echo "zkCli.sh: the option $1 is not supported here: only -server, -timeout and -waitforconnection are" >&2
		exit 2
		;;
	esac
done
exec zlock sh "${options[@]}" "$@"
