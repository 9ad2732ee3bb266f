#!/bin/sh
# source.sh DIR fetches Debian's source of ZooKeeper, with the C client and its
# tests, into DIR/zookeeper. It asks the servers from which this machine gets its
# packages.
set -eu
cd "$1"
[ -d zookeeper ] && exit
mkdir -p lists/partial
apt-get indextargets --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' | sort -u >sources.list
apt() {
	apt-get -qq -o Acquire::Retries=5 -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$PWD/lists" -o APT::Get::List-Cleanup=0 -o APT::Sandbox::User=root "$@"
}
for wait in 10 30 60 0; do
	apt update && apt source --download-only zookeeper && break
	[ $wait = 0 ] && exit 1
	sleep $wait
done
rm -rf unpacked # of an earlier run that did not finish
mkdir unpacked
tar -xzf zookeeper_*.orig.tar.gz -C unpacked --strip-components 1
mv unpacked zookeeper
