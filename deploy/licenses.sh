#!/bin/sh
# Prints the licence texts of the modules that the programs link, for GOOS and GOARCH.
set -eu
cd "$(dirname "$0")/.."
go list -deps -tags "${TAGS:-}" -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/... | sort -u |
	while read -r path version dir; do
		found=
		for file in "$dir"/LICEN[CS]E* "$dir"/COPYING* "$dir"/NOTICE*; do
			[ -f "$file" ] || continue
			found=yes
			printf '%s %s: %s\n\n' "$path" "$version" "${file##*/}"
			cat "$file"
			printf '\n%s\n' ------------------------------------------------------------------------
		done
		[ -n "$found" ] || { echo "licenses: $path $version has no licence file" >&2; exit 1; }
	done
printf 'The Go standard library: LICENSE\n\n'
cat "$(go env GOROOT)/LICENSE"
