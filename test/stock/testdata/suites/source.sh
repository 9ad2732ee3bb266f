#!/bin/sh
# source.sh DIR fetches Debian's source of ZooKeeper, with the C client and its
# tests, to DIR/zookeeper, from where this machine gets its packages.
set -eu
cd "$1"
[ -d zookeeper ] && exit
mkdir -p lists/partial
apt-get indextargets --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' | sort -u >sources.list
apt() {
	apt-get -qq -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$PWD/lists" -o APT::Get::List-Cleanup=0 -o APT::Sandbox::User=root "$@"
}
apt update
apt source --download-only zookeeper
mkdir unpacked
tar -xzf zookeeper_*.orig.tar.gz -C unpacked --strip-components 1
mv unpacked zookeeper
