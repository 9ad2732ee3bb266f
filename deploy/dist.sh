#!/bin/sh
# Builds release archives: sh deploy/dist.sh VERSION OUTDIR [OS/ARCH …]
# Two runs on the same commit give the same bytes.
set -eu
version=$1 out=$2
shift 2
[ $# -gt 0 ] || set -- linux/amd64 linux/arm64 darwin/arm64 windows/amd64

cd "$(dirname "$0")/.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y cmd/internal/release/RELEASES)}
export SOURCE_DATE_EPOCH
built=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
pkg=github.com/zlockd/zlockd/cmd/internal/release
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The programs write their manuals and completions themselves.
go build -trimpath -ldflags "-X $pkg.set=$version" -o "$work/host/" ./cmd/zlockd ./cmd/zlock
mkdir "$work/man" "$work/completions"
"$work/host/zlockd" manual zlockd.8 >"$work/man/zlockd.8"
"$work/host/zlockd" manual zlockd.conf.5 >"$work/man/zlockd.conf.5"
"$work/host/zlock" manual >"$work/man/zlock.1"
for program in zlockd zlock; do
	for shell in bash zsh fish; do
		"$work/host/$program" completion $shell >"$work/completions/$program.$shell"
	done
done

for target; do
	export GOOS="${target%/*}" GOARCH="${target#*/}" CGO_ENABLED=0
	name=zlockd-$version-$GOOS-$GOARCH
	dir=$work/$name
	mkdir -p "$dir"
	# Without the VCS stamp: a tree exported without git must give the same bytes. Without HTTP/2,
	# which no port and no client of the programs speaks: that saves half a megabyte.
	go build -trimpath -buildvcs=false -tags "nethttpomithttp2,${TAGS:-}" \
		-ldflags "-s -w -buildid= -X $pkg.set=$version -X $pkg.built=$built" -o "$dir/" ./cmd/zlockd ./cmd/zlock
	cp README.md CHANGELOG.md LICENSE "$dir/"
	sh deploy/licenses.sh >"$dir/THIRD-PARTY-LICENSES.txt"
	sh deploy/sbom.sh "$version" "$dir"/zlockd* >"$dir/sbom.cdx.json"
	cp -R deploy/systemd deploy/prometheus deploy/grafana "$work/man" "$work/completions" "$dir/"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" \
		-C "$work" -cf - "$name" | gzip -n -9 >"$out/$name.tar.gz"
	printf '%s  %s bytes, zlockd %s bytes\n' "$name.tar.gz" "$(stat -c %s "$out/$name.tar.gz")" "$(stat -c %s "$dir"/zlockd* | head -n 1)"
done
cd "$out"
sha256sum zlockd-"$version"-*.tar.gz >SHA256SUMS
