#!/bin/sh
# Prints the version of these sources: sh deploy/version.sh
# At the tag vX.Y.Z of the newest release of RELEASES that is X.Y.Z. All other sources lead to a
# release: to the newest without a recorded commit, else to the next minor one. Their version
# names the commit behind that release, such as 0.2.0-git20261128.004512.abcdef1, and sorts below it.
set -eu
cd "$(dirname "$0")/.."
release=$(awk '/^[0-9]/ {
	if (NF > 1) { split($1, n, "."); $1 = n[1] "." n[2] + 1 ".0" }
	print $1
	exit
}' cmd/internal/release/RELEASES)
newest=$(awk '/^[0-9]/ {print $1; exit}' cmd/internal/release/RELEASES)
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" != "$(pwd -P)" ]; then
	echo "$release-dev" # sources without git, or in a repository of something else
	exit
fi
dirty=
git diff-index --quiet HEAD || dirty=.dirty
if [ -z "$dirty" ] && git tag --points-at HEAD | grep -qxF "v$newest"; then
	echo "$newest"
	exit
fi
commit=$(TZ=UTC0 git log -1 --format=%cd.%h --abbrev=7 --date=format-local:%Y%m%d.%H%M%S)
echo "$release-git$commit$dirty"
