#!/bin/sh
# Installs what the stock-client tests need, from Debian and npm. Run as root;
# without root it only tells what is missing.
set -eu

packages="zookeeper zookeeper-bin libzookeeper-mt-dev python3-kazoo \
libcurator-client-java libcurator-framework-java libcurator-recipes-java \
libslf4j-java openjdk-17-jdk-headless gcc libc6-dev nodejs npm"

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
	apt-get update -qq
	# shellcheck disable=SC2086 # the list is a list
	apt-get install -y -qq --no-install-recommends $missing
fi
echo "the stock clients are installed"
