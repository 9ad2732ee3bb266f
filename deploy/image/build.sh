#!/bin/sh
# Builds the images of a release archive with buildah, which needs no engine: as root
#   sh deploy/image/build.sh VERSION ARCH DIR [ROOT]
# DIR holds zlockd-VERSION-linux-ARCH.tar.gz. The images are localhost/zlockd:VERSION, the two
# programs alone, and localhost/zlockd:VERSION-zookeeper, in the shape of the official image
# of ZooKeeper. ROOT is a Debian that debootstrap has made before.
set -eu
version=$1 arch=$2 dir=$(cd "$3" && pwd) debian=${4:-}
here=$(cd "$(dirname "$0")" && pwd)
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER="${STORAGE_DRIVER:-vfs}"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
tar -xzf "$dir/zlockd-$version-linux-$arch.tar.gz" -C "$work"
from=$work/zlockd-$version-linux-$arch

config() { # CONTAINER UID ENTRYPOINT PORTS…
	image=$1 uid=$2 entry=$3
	shift 3
	for port; do buildah config --port "$port" "$image"; done
	buildah config --arch "$arch" --user "$uid:$uid" --entrypoint "$entry" --stop-signal SIGTERM \
		--label org.opencontainers.image.version="$version" --label org.opencontainers.image.licenses=Apache-2.0 "$image"
}

echo "== zlockd:$version"
small=$(buildah from --format docker scratch)
install -d -m 0700 "$work/data"
install -d -m 1777 "$work/tmp"
buildah copy --quiet --chown 65532:65532 "$small" "$work/data" /data >/dev/null
buildah copy --quiet "$small" "$work/tmp" /tmp >/dev/null
buildah copy --quiet --chmod 0755 "$small" "$from/zlockd" /usr/bin/zlockd >/dev/null
buildah copy --quiet "$small" "$from/LICENSE" "$from/THIRD-PARTY-LICENSES.txt" /licenses/ >/dev/null
config "$small" 65532 '["/usr/bin/zlockd"]' 2181 2888 8181
buildah config --volume /data --workingdir /tmp --env ZLOCKD_DATA_DIR=/data --env ZLOCKD_CLIENT_ADDR=:2181 \
	--healthcheck '["/usr/bin/zlockd", "--check-ready"]' "$small"
buildah commit --quiet --format docker --rm "$small" "localhost/zlockd:$version" >/dev/null

echo "== zlockd:$version-zookeeper"
root=$work/debian
packages=bash,coreutils,grep,sed,hostname,netcat-openbsd,util-linux,libc-bin,passwd
if [ -n "$debian" ]; then
	cp -a "$debian" "$root"
else
	debootstrap --arch "$arch" --variant=minbase --include=$packages bookworm "$root" >"$work/log" 2>&1 || { tail "$work/log" >&2; exit 1; }
fi
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/* "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/* "$root"/var/log/*
chroot "$root" sh -c 'getent passwd zookeeper >/dev/null || { groupadd --gid 1000 zookeeper && useradd --uid 1000 --gid 1000 --home-dir /data --no-create-home zookeeper; }'
install -m 0755 "$from/zlockd" "$from/zlock" "$here/zkServer.sh" "$here/zkCli.sh" "$root/usr/bin/"
install -m 0755 "$here/docker-entrypoint.sh" "$root/"
install -d "$root/docker-entrypoint.d"
install -d -o 1000 -g 1000 "$root/conf" "$root/data" "$root/datalog" "$root/logs"
shaped=$(buildah from --format docker scratch)
cp -a "$root/." "$(buildah mount "$shaped")" # with its owners, which buildah copy changes
buildah umount "$shaped" >/dev/null
config "$shaped" 0 '["/docker-entrypoint.sh"]' 2181 2888 3888 8080
buildah config --cmd '["zkServer.sh", "start-foreground"]' --workingdir / --volume /data --volume /datalog --volume /logs \
	--env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	--env ZOO_CONF_DIR=/conf --env ZOO_DATA_DIR=/data --env ZOO_DATA_LOG_DIR=/datalog --env ZOO_LOG_DIR=/logs "$shaped"
buildah commit --quiet --format docker --rm "$shaped" "localhost/zlockd:$version-zookeeper" >/dev/null
buildah images --format '{{.Name}}:{{.Tag}} {{.Size}}' | grep "zlockd:$version"
