#!/bin/bash
# The command with which the C client's tests start and stop servers: servers with
# a configuration file, and one server without, in several modes.
here=$(dirname "$0")

# wait_end PIDFILE ends a server.
wait_end() {
	[ -f "$1" ] || return
	pid=$(cat "$1")
	kill "$pid" 2>/dev/null
	while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
	rm "$1"
}

# ask WORD PORT
ask() { { exec 3<>"/dev/tcp/127.0.0.1/$2" && printf %s "$1" >&3 && cat <&3; } 2>/dev/null; }

if [ -n "$2" ] && [ "${2%.jaas.conf}" = "$2" ] && [ "${2%.conf}" != "$2" ]; then
	dir=$(sed -n 's/^dataDir=//p' "$2")
	case $1 in
	start)
		super=$(printf '%s\n' "$SERVER_JVMFLAGS" | sed -n 's/.*superDigest=\([^ ]*\).*/\1/p')
		"$ZLOCKD_BIN" --config "$2" --admin-addr off --super-digest "$super" >"$dir.out" 2>&1 &
		echo $! >"$dir.pid"
		;;
	stop) wait_end "$dir.pid" ;;
	status) ask srvr "$(sed -n 's/^clientPort=//p' "$2")" | grep Mode: ;;
	esac
	exit 0
fi

dir=$here/solo
wait_end "$dir.pid"
case $1 in
stop) exit 0 ;;
*Clean*) rm -rf "$dir" ;;
esac
# A server that has run alone stays a cluster of one, even if a later zoo.cfg lists
# other servers. So the server that must have no majority gets a data directory of
# its own.
mode=rw
case $1$3 in *ReadOnly | *true) mode=ro ;; esac
mkdir -p "$dir/$mode"
{
	printf 'tickTime=500\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=100\nclientPort=22181\ndataDir=%s\n' "$dir/$mode"
	if [ $mode = ro ]; then
		echo 1 >"$dir/ro/myid"
		printf 'readonlymode.enabled=true\nserver.1=localhost:22881:33881\nserver.2=localhost:22882:33882\nserver.3=localhost:22883:33883\n'
	fi
	if [ "$1" = startRequireSASLAuth ]; then echo sessionRequireClientSASLAuth=true; fi
} >"$dir/zoo.cfg"
users=
if [ "$1" = startRequireSASLAuth ]; then
	# Without users zlockd does not start: nobody could authenticate.
	users=${2:-$dir/nobody}
	echo nobody:nothing >"$dir/nobody"
	chmod o-rwx "$users"
fi
tls=
if [ $mode = ro ]; then
	certs=$here/../certs
	tls="--secure-client-addr 127.0.0.1:22281 --tls-cert $certs/server.crt --tls-key $certs/serverkey.pem --tls-ca $certs/client.crt"
fi
# shellcheck disable=SC2086 # flags are words
"$ZLOCKD_BIN" --config "$dir/zoo.cfg" --admin-addr off ${users:+--sasl-users "$users"} $tls >"$dir.out" 2>&1 &
echo $! >"$dir.pid"
for _ in $(seq 1200); do
	[ "$(ask isro 22181)" = $mode ] && break
	sleep 0.05
done
