#!/bin/sh
# zlock-curl.sh take|keep|give: a lock for a job of a CI system. It needs no program but curl. The hold is a
# ticket of zlockd: it outlives each step of the job, and ends by itself when its time is over. The script
# reads these variables of the environment:
#
#   ZLOCK_PATH         the lock, such as /ci/deploy
#   ZLOCK_TICKET_FILE  a file of the job for the ticket; "zlock give --ticket-file" takes it too
#   ZLOCK_HTTP         URLs of the ports for tickets, separated by commas (http://127.0.0.1:8183)
#   ZLOCK_BEARER       the job's token; none on loopback without TLS
#   ZLOCK_REASON       what others are shown
#   ZLOCK_TTL          seconds that the ticket lives after the last request (600)
#   ZLOCK_WAIT         seconds that take waits (3600)
#
# take waits for the lock, prints the fencing token and ends with 0. If it is interrupted and run again, it
# keeps its place in the queue. keep starts a process that renews the ticket in the background until give.
# give gives the lock back. It ends with 1 if the lock was lost before: then the work of two jobs may have
# overlapped.
set -eu
umask 077
: "${ZLOCK_PATH:?names no lock}" "${ZLOCK_TICKET_FILE:?names no file}"
file=$ZLOCK_TICKET_FILE
servers=$(printf %s "${ZLOCK_HTTP:-http://127.0.0.1:8183}" | tr , ' ')

# Give curl the secrets on standard input: other users can see the arguments of a process.
heads() {
	cut -d ' ' -f 1 <"$file" | sed 's/^/Zlock-Ticket: /'
	[ -z "${ZLOCK_BEARER-}" ] || printf 'Authorization: Bearer %s\n' "$ZLOCK_BEARER"
}

# ask METHOD MORE...: sends a request to one server after the other until one answers. It sets $code to the
# status of the answer, or to 000 if no server answers.
ask() {
	method=$1
	shift
	for server in $servers; do
		code=$(heads | curl -s -m 45 -o "$file.answer" -w '%{http_code}' -H @- -X "$method" "$@" \
			"${server%/}/v1/locks$ZLOCK_PATH") || code=000
		case $code in 000 | 429 | 5??) ;; *) return ;; esac
	done
}

said() { cat "$file.answer" 2>/dev/null || echo "no server answers"; }

take() {
	[ -s "$file" ] || printf '%s %s\n' "$(head -c 24 /dev/urandom | base64)" "$ZLOCK_PATH" >"$file"
	end=$(($(date +%s) + ${ZLOCK_WAIT:-3600}))
	while :; do
		left=$((end - $(date +%s)))
		[ $left -lt 30 ] || left=30
		[ $left -gt 0 ] || left=0
		ask POST -d "ttl=${ZLOCK_TTL:-600}s" -d "wait=${left}s" --data-urlencode "reason=${ZLOCK_REASON-}"
		# Count the page of another program, such as a proxy, as no answer.
		case $code in 20[01]) grep -q '"held":true' "$file.answer" || code=000 ;; esac
		case $code in
		200 | 201)
			sed 's/.*"token":"\([0-9]*\)".*/\1/' "$file.answer"
			return
			;;
		202) ;;
		000 | 429 | 5??) sleep 1 ;;
		*)
			said >&2
			rm -f "$file"
			return 1
			;;
		esac
		if [ "$(date +%s)" -ge $end ]; then
			echo "$ZLOCK_PATH is not free in time: $(said)" >&2
			give >/dev/null 2>&1 || true
			return 1
		fi
	done
}

keep() {
	nohup "$0" renew </dev/null >/dev/null 2>&1 &
	echo $! >"$file.pid"
}

renew() {
	trap 'kill $pause 2>/dev/null; exit 0' TERM
	while :; do
		sleep $((${ZLOCK_TTL:-600} / 3)) &
		pause=$!
		wait $pause
		[ -s "$file" ] || return 0
		ask POST -H 'If-Match: *'
		case $code in
		404 | 410)
			said >"$file.lost"
			return 1
			;;
		esac
	done
}

give() {
	[ -s "$file" ] || return 0 # take was never run, or has given up
	[ ! -s "$file.pid" ] || kill "$(cat "$file.pid")" 2>/dev/null || true
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		ask DELETE
		case $code in 000 | 429 | 5??) sleep 1 ;; *) break ;; esac
	done
	status=0
	if [ "$code" != 204 ] && ! grep -q '"error":"given"' "$file.answer" || [ -e "$file.lost" ]; then
		echo "$ZLOCK_PATH is not given back; if it was lost before, work may have overlapped: $(said)" >&2
		status=1
	fi
	case $code in 000 | 429 | 5??) ;; *) rm -f "$file" "$file.answer" "$file.pid" "$file.lost" ;; esac
	return $status
}

case ${1-} in
take | keep | renew | give) "$1" ;;
*)
	echo "usage: $0 take|keep|give" >&2
	exit 2
	;;
esac
