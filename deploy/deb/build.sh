#!/bin/sh
# Builds the Debian package of a release archive: sh deploy/deb/build.sh VERSION ARCH DIR
# DIR holds zlockd-VERSION-linux-ARCH.tar.gz and gets the package. Two runs on the same
# commit give the same bytes. The package's version sorts below the release's if VERSION does:
# 0.2.0-git20261128.abcdef1 becomes 0.2.0~git20261128.abcdef1-1.
set -eu
version=$1 debian=$(echo "$1" | tr - '~')-1 arch=$2 out=$(cd "$3" && pwd)
cd "$(dirname "$0")/../.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y cmd/internal/release/RELEASES)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xzf "$out/zlockd-$version-linux-$arch.tar.gz" -C "$work"
from=$work/zlockd-$version-linux-$arch root=$work/root
mkdir -m 0755 "$root"

put() { # MODE FILE TARGET
	install -D -m "$1" "$2" "$root/$3"
}
pack() { # FILE TARGET
	gzip -n -9 -c "$1" >"$work/packed"
	put 0644 "$work/packed" "$2"
}
for program in zlockd zlock; do
	put 0755 "$from/$program" "usr/bin/$program"
	put 0644 "$from/completions/$program.bash" "usr/share/bash-completion/completions/$program"
	put 0644 "$from/completions/$program.zsh" "usr/share/zsh/vendor-completions/_$program"
	put 0644 "$from/completions/$program.fish" "usr/share/fish/vendor_completions.d/$program.fish"
done
for page in "$from"/man/*; do
	pack "$page" "usr/share/man/man${page##*.}/${page##*/}.gz"
done
for unit in "$from"/systemd/*; do
	put 0644 "$unit" "lib/systemd/system/${unit##*/}"
done
for file in prometheus/rules.yml grafana; do
	find "$from/$file" -type f | while read -r path; do
		put 0644 "$path" "usr/share/doc/zlockd/${path#"$from"/}"
	done
done
put 0640 deploy/deb/zlockd.cfg etc/zlockd/zlockd.cfg
put 0640 deploy/deb/default etc/default/zlockd
put 0644 deploy/deb/copyright usr/share/doc/zlockd/copyright
pack "$from/THIRD-PARTY-LICENSES.txt" usr/share/doc/zlockd/THIRD-PARTY-LICENSES.gz
pack CHANGELOG.md usr/share/doc/zlockd/changelog.gz
printf 'zlockd (%s) unstable; urgency=medium\n\n  * Version %s: see changelog.gz.\n\n -- %s  %s\n' "$debian" "$version" \
	"$(sed -n 's/^Maintainer: //p' deploy/deb/control.in)" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" >"$work/changelog.Debian"
pack "$work/changelog.Debian" usr/share/doc/zlockd/changelog.Debian.gz
put 0644 deploy/deb/lintian-overrides usr/share/lintian/overrides/zlockd

mkdir -p "$root/DEBIAN"
printf '%s\n' /etc/default/zlockd /etc/zlockd/zlockd.cfg >"$root/DEBIAN/conffiles"
put 0644 deploy/deb/templates DEBIAN/templates
for script in config postinst prerm postrm; do
	put 0755 "deploy/deb/$script" "DEBIAN/$script"
done
size=$(du -k -s --apparent-size "$root" | cut -f1)
sed -e "s/@VERSION@/$debian/" -e "s/@ARCH@/$arch/" -e "s/@SIZE@/$size/" deploy/deb/control.in >"$root/DEBIAN/control"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums)
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --build "$root" "$out/zlockd_${debian}_$arch.deb"
cd "$out"
sha256sum "zlockd_${debian}_$arch.deb" >>SHA256SUMS
