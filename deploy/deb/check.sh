#!/bin/sh
# Looks at a package without installing it: sh deploy/deb/check.sh PACKAGE.deb
# Needs lintian and systemd-analyze; no root.
set -eu
deb=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
	echo "FAILED: $*" >&2
	exit 1
}
lintian --fail-on error,warning --allow-root "$deb"

dpkg-deb -R "$deb" "$work"
for file in usr/bin/zlockd usr/bin/zlock etc/zlockd/zlockd.cfg usr/share/man/man8/zlockd.8.gz usr/share/man/man1/zlock.1.gz \
	usr/share/man/man5/zlockd.conf.5.gz usr/share/bash-completion/completions/zlock usr/share/zsh/vendor-completions/_zlock \
	usr/share/fish/vendor_completions.d/zlock.fish; do
	[ -s "$work/$file" ] || fail "the package has no $file"
done
[ "$(stat -c %s "$work/usr/bin/zlockd")" -le 18700000 ] || fail "zlockd is larger than 18.7 MB"
# The program says the version of the package, which sorts below its release's.
version=$(dpkg-deb -f "$deb" Version)
if [ "$(dpkg-deb -f "$deb" Architecture)" = "$(dpkg --print-architecture)" ]; then
	said=$("$work/usr/bin/zlockd" --version)
	case " $said" in
	*" $(echo "${version%-1}" | tr '~' -)" | *" $(echo "${version%-1}" | tr '~' -) "*) ;;
	*) fail "zlockd --version says \"$said\", the package $version" ;;
	esac
fi
case $version in
*~*) dpkg --compare-versions "$version" lt "${version%%~*}-1" || fail "$version sorts behind its release" ;;
esac
grep -q '^/etc/zlockd/zlockd.cfg$' "$work/DEBIAN/conffiles" || fail "zlockd.cfg is no conffile"

# The units as systemd reads them, beside those of this machine.
install -D -m 0755 /bin/true "$work/bin/kill"
cp -R -n /lib/systemd/system/. "$work/lib/systemd/system/"
said=$(MANPATH=$work/usr/share/man systemd-analyze verify --root="$work" zlockd.service zlockd@a.service 2>&1) || fail "$said"
[ -z "$said" ] || fail "$said"
for unit in zlockd.service zlockd@.service; do # the threshold is ten times the figure shown
	systemd-analyze security --offline=true --threshold=20 --root="$work" "$unit" >"$work/security" 2>&1 || fail "$(tail -n 1 "$work/security")"
	sed -n 's/.*Overall exposure/Overall exposure/p' "$work/security"
done
