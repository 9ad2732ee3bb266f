#!/bin/sh
# Installs the programs of others that tests need, from Debian and npm. Run as root;
# without root it only tells what is missing.
set -eu

packages="minisign curl netcat-openbsd fish zsh lintian systemd man-db prometheus collectd-core zktop postgresql mariadb-server-core mariadb-client-core redis-server zookeeper zookeeper-bin libzookeeper-mt-dev python3-kazoo python3-pure-sasl python3-kerberos krb5-kdc krb5-admin-server krb5-user libsasl2-modules-gssapi-mit python3-pytest python3-mock \
libcurator-client-java libcurator-framework-java libcurator-recipes-java \
libslf4j-java openjdk-17-jdk-headless gcc g++ libc6-dev libcppunit-dev libssl-dev openssl libsasl2-dev libsasl2-modules nodejs npm chromium chromium-driver"

missing=""
for p in $packages; do
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] && continue
	# Another source of the same program will do.
	case $p in
	nodejs | npm) command -v "${p%js}" >/dev/null 2>&1 && continue ;;
	openjdk-17-jdk-headless) command -v javac >/dev/null 2>&1 && continue ;;
	gcc) command -v gcc >/dev/null 2>&1 && continue ;;
	esac
	missing="$missing $p"
done

if [ -n "$missing" ]; then
	if [ "$(id -u)" != 0 ]; then
		echo "not installed:$missing" >&2
		echo "run as root: apt-get install --no-install-recommends$missing" >&2
		exit 1
	fi
	export DEBIAN_FRONTEND=noninteractive
	# A machine that has just begun may be looking for updates itself.
	apt() {
		for wait in 10 30 60 0; do
			apt-get -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 "$@" && return
			sleep $wait
		done
		return 1
	}
	apt update -qq
	# shellcheck disable=SC2086 # the list is a list
	apt install -y -qq --no-install-recommends $missing
fi
echo "the programs that tests need are installed"
