#!/bin/sh
# Builds the release archives twice, in two places and with two caches, and compares them:
# sh deploy/same.sh VERSION [OS/ARCH …]
set -eu
version=$1
shift
cd "$(dirname "$0")/.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git archive --prefix=elsewhere/ HEAD | tar -x -C "$work"
sh deploy/dist.sh "$version" "$work/one" "$@"
(cd "$work/elsewhere" && GOCACHE="$work/cache" sh deploy/dist.sh "$version" "$work/two" "$@")
diff "$work/one/SHA256SUMS" "$work/two/SHA256SUMS"
echo "both builds are equal"
