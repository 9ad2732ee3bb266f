#!/bin/bash
# The entrypoint of the image in the shape of ZooKeeper's: makes zoo.cfg and myid of the
# variables ZOO_…, then runs its arguments.
set -eu

: "${ZOO_CONF_DIR:=/conf}" "${ZOO_DATA_DIR:=/data}" "${ZOO_DATA_LOG_DIR:=/datalog}" "${ZOO_LOG_DIR:=/logs}"
export ZOO_CONF_DIR ZOO_DATA_DIR ZOO_DATA_LOG_DIR ZOO_LOG_DIR

if [[ ${1:-} == zkServer.sh && $(id -u) == 0 ]]; then
	chown -R zookeeper "$ZOO_CONF_DIR" "$ZOO_DATA_DIR" "$ZOO_DATA_LOG_DIR" "$ZOO_LOG_DIR" 2>/dev/null ||
		echo "docker-entrypoint.sh: a directory cannot be given to zookeeper; it may be read-only" >&2
	exec setpriv --reuid zookeeper --regid zookeeper --init-groups "$0" "$@"
fi

for script in /docker-entrypoint.d/*; do
	if [[ -f $script && $script == *.sh ]]; then
		. "$script"
	fi
done

# settings prints a zoo.cfg.
settings() {
	local server
	printf '%s=%s\n' dataDir "$ZOO_DATA_DIR" dataLogDir "$ZOO_DATA_LOG_DIR" tickTime "${ZOO_TICK_TIME:-2000}" \
		initLimit "${ZOO_INIT_LIMIT:-5}" syncLimit "${ZOO_SYNC_LIMIT:-2}" \
		autopurge.snapRetainCount "${ZOO_AUTOPURGE_SNAPRETAINCOUNT:-${ZOO_AUTOPURGE_SNAP_RETAIN_COUNT:-3}}" \
		autopurge.purgeInterval "${ZOO_AUTOPURGE_PURGEINTERVAL:-${ZOO_AUTOPURGE_PURGE_INTERVAL:-0}}" \
		maxClientCnxns "${ZOO_MAX_CLIENT_CNXNS:-60}" standaloneEnabled "${ZOO_STANDALONE_ENABLED:-true}" \
		admin.enableServer "${ZOO_ADMINSERVER_ENABLED:-true}"
	if [[ ${ZOO_ADMINSERVER_ENABLED:-true} == true ]]; then
		printf '%s=%s\n' admin.serverAddress 0.0.0.0 admin.serverPort "${ZOO_ADMINSERVER_PORT:-8080}"
	fi
	if [[ ${ZOO_SERVERS:-} != *";"* ]]; then
		echo clientPort=2181
	fi
	for server in ${ZOO_SERVERS:-}; do
		echo "$server"
	done
	if [[ -n ${ZOO_4LW_COMMANDS_WHITELIST:-} ]]; then
		echo "4lw.commands.whitelist=$ZOO_4LW_COMMANDS_WHITELIST"
	fi
	for server in ${ZOO_CFG_EXTRA:-}; do
		echo "$server"
	done
}
if [[ ! -f $ZOO_CONF_DIR/zoo.cfg ]]; then
	settings >"$ZOO_CONF_DIR/zoo.cfg"
fi
if [[ ! -f $ZOO_DATA_DIR/myid ]]; then
	echo "${ZOO_MY_ID:-1}" >"$ZOO_DATA_DIR/myid"
fi
exec "$@"
