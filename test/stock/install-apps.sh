#!/bin/sh
# Installs the applications that test/stock runs, from Debian. Run as root;
# without root it only tells what is missing. A package that this release of
# Debian does not have is named and left out: its test is skipped, visibly.
set -eu

packages="clickhouse-server prometheus collectd-core python3-kazoo python3-taskflow python3-tooz patroni postgresql"

missing=""
for p in $packages; do
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
if [ -n "$missing" ]; then
	if [ "$(id -u)" != 0 ]; then
		echo "not installed:$missing" >&2
		echo "run as root: apt-get install --no-install-recommends$missing" >&2
		exit 0 # what is there is run, the rest is skipped by name
	fi
	export DEBIAN_FRONTEND=noninteractive
	# A package must not start a service of its own here.
	policy=/usr/sbin/policy-rc.d
	[ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy && trap 'rm -f $policy' EXIT; }
	apt-get -o Acquire::Retries=5 update -qq
	for p in $missing; do
		apt-get -o Acquire::Retries=5 install -y -qq --no-install-recommends "$p" || echo "cannot be installed: $p" >&2
	done
fi
