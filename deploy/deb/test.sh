#!/bin/sh
# Installs, upgrades, removes and purges the package in a small Debian of its own, which
# systemd runs in namespaces without a network. Needs root, and debootstrap with lintian:
#   sh deploy/deb/test.sh PACKAGE.deb [ROOT]
# ROOT is a Debian that debootstrap has made before, with systemd, adduser, curl and procps;
# the test uses a copy.
set -eu
[ "$(id -u)" = 0 ] || { echo "deploy/deb/test.sh: needs root for debootstrap and namespaces" >&2; exit 1; }
deb=$(realpath "$1")
work=$(mktemp -d)
root=$work/root booted=
end() {
	[ -z "$booted" ] || kill -9 "$booted" 2>/dev/null || true
	wait
	rm -rf --one-file-system "$work"
}
trap end EXIT
fail() {
	echo "FAILED: $*" >&2
	run journalctl --no-pager -n 40 -u zlockd >&2 || true
	exit 1
}
# run runs a command inside; await repeats it until it succeeds.
run() { timeout 300 nsenter -t "$booted" -m -u -i -n -p -C -r -w env DEBIAN_FRONTEND=noninteractive "$@"; }
await() {
	for _ in $(seq 600); do
		run "$@" >/dev/null 2>&1 && return
		sleep 0.2
	done
	fail "$* did not succeed within two minutes"
}
pid() { run systemctl show -p MainPID --value "$1"; }
sh "$(dirname "$0")/check.sh" "$deb"

echo "== a Debian"
if [ $# -gt 1 ]; then
	cp -a "$2" "$root"
else
	debootstrap --variant=minbase --include=systemd,adduser,curl,procps bookworm "$root" >"$work/log" 2>&1 || { tail "$work/log" >&2; exit 1; }
fi
(cd "$root" && apt-get download zookeeper >/dev/null 2>&1) || { echo "no package zookeeper: apt-get update?" >&2; exit 1; }
chroot "$root" sh -c 'dpkg -i --force-depends /zookeeper_*.deb' >"$work/log" 2>&1 || { tail "$work/log" >&2; exit 1; } # without its JVM
zookeeper=$(cd "$root" && find etc/zookeeper var/lib/zookeeper -type f -exec md5sum {} +)
cp "$deb" "$root/zlockd.deb"
# An older and a newer package: the same files under other versions.
for version in 0.0.9-1 99-1; do
	rm -rf "$work/deb"
	dpkg-deb -R "$deb" "$work/deb"
	sed -i "s/^Version: .*/Version: $version/" "$work/deb/DEBIAN/control"
	dpkg-deb --root-owner-group -Znone --build "$work/deb" "$root/zlockd-$version.deb" >/dev/null
done
# The root is a mount of its own, or the sandbox of the units cannot be set up.
unshare --pid --fork --kill-child --mount --uts --ipc --net --cgroup sh -c '
	ip link set lo up
	mount --bind "$0" "$0" && cd "$0"
	mount -t proc proc proc && mount -t tmpfs tmpfs run
	pivot_root . mnt && exec chroot . sh -c "umount -l /mnt && exec env container=zlockd /lib/systemd/systemd --system --unit=multi-user.target"
	' "$root" >"$work/boot" 2>&1 </dev/null &
outer=$!
while booted=$(cat /proc/$outer/task/$outer/children 2>/dev/null) && [ -z "$booted" ]; do sleep 0.1; done
booted=${booted%% *}
await test -S /run/systemd/private

echo "== install"
run dpkg -i /zlockd-0.0.9-1.deb
await curl -fsS http://127.0.0.1:8181/ready
[ "$(run stat -c '%U %a' /var/lib/zlockd)" = "zlockd 700" ] || fail "/var/lib/zlockd: $(run stat -c '%U %a' /var/lib/zlockd)"
run zlock run /deb -- true || fail "no lock"
run systemctl show -p StatusText --value zlockd | grep -q 'mode standalone' || fail "no status line"
before=$(pid zlockd)
run sed -i 's/^tickTime=.*/tickTime=3000/' /etc/zlockd/zlockd.cfg
run systemctl reload zlockd || fail "no reload"
[ "$(pid zlockd)" = "$before" ] || fail "the reload ended the server"

echo "== three servers, and an upgrade of all"
for id in 1 2 3; do
	run sh -c "sed -e '/^admin\|^clientPort\|^dataDir\|server/d' /etc/zlockd/zlockd.cfg >/etc/zlockd/s$id.cfg && cat >>/etc/zlockd/s$id.cfg" <<-EOF
		dataDir=/var/lib/zlockd/s$id
		clientPort=218$((id + 3))
		clientPortAddress=127.0.0.1
		admin.serverAddress=127.0.0.1
		admin.serverPort=819$id
		server.1=127.0.0.1:2881:3881
		server.2=127.0.0.1:2882:3882
		server.3=127.0.0.1:2883:3883
	EOF
	run install -d -o zlockd -g zlockd -m 0700 "/var/lib/zlockd/s$id"
	run sh -c "echo $id >/var/lib/zlockd/s$id/myid && chown zlockd: /var/lib/zlockd/s$id/myid"
done
run systemctl start zlockd@s1 zlockd@s2 zlockd@s3 || fail "the cluster does not start"
pids="$(pid zlockd) $(pid zlockd@s1) $(pid zlockd@s2) $(pid zlockd@s3)"
run zlock run --servers 127.0.0.1:2184,127.0.0.1:2185,127.0.0.1:2186 /kept -- true || fail "no lock in the cluster"
run dpkg -i /zlockd.deb
for unit in zlockd zlockd@s1 zlockd@s2 zlockd@s3; do
	[ "$(run systemctl is-active "$unit")" = active ] || fail "$unit does not run after the upgrade"
	case " $pids " in *" $(pid "$unit") "*) fail "$unit was not restarted" ;; esac
done
for port in 8181 8191 8192 8193; do
	run curl -fsS "http://127.0.0.1:$port/ready" >/dev/null || fail "port $port is not ready right after the upgrade"
done
run zlock run --servers 127.0.0.1:2186 /kept -- true || fail "no lock after the upgrade"
run grep -q tickTime=3000 /etc/zlockd/zlockd.cfg || fail "the upgrade changed the configuration"

echo "== remove: data and configuration stay"
run dpkg -r zlockd
run test ! -e /usr/bin/zlockd || fail "zlockd is still there"
run test -e /etc/zlockd/zlockd.cfg || fail "the configuration is gone"
run test -e /var/lib/zlockd/s1/myid || fail "the data are gone"
[ -z "$(run pgrep -x zlockd)" ] || fail "a server still runs"
run dpkg -i /zlockd-99-1.deb
await curl -fsS http://127.0.0.1:8181/ready

echo "== purge: data go only if the answer says so"
run dpkg -P zlockd
run test -e /var/lib/zlockd/s1/myid || fail "purge without an answer deleted the data"
run test ! -e /etc/zlockd/zlockd.cfg || fail "the configuration is still there"
run dpkg -i /zlockd.deb
await curl -fsS http://127.0.0.1:8181/ready
echo 'zlockd zlockd/purge_data boolean true' | run debconf-set-selections
run dpkg -P zlockd
run test ! -e /var/lib/zlockd || fail "purge with the answer yes left the data"

echo "== beside a ZooKeeper, its port taken"
run systemd-run --quiet systemd-socket-activate -l 127.0.0.1:2181 cat
await grep -q ':0885 .* 0A ' /proc/net/tcp
run dpkg -i /zlockd.deb 2>&1 | tee "$work/beside"
grep -q 'not started' "$work/beside" || fail "the install does not say that the port is taken"
[ "$zookeeper" = "$(cd "$root" && find etc/zookeeper var/lib/zookeeper -type f -exec md5sum {} +)" ] || fail "a file of zookeeper has changed"
echo "all passed"
