#!/bin/sh
# Refuses words that make a sentence hard to read, in comments, messages and documents
# (CONTRIBUTING.md, "Words"). Run it by `make lint`.
set -u
cd "$(dirname "$0")/.." || exit 1
status=0

# text prints the comments of Go files, the longer texts in them, and the lines of the documents.
text() {
	git grep -InoP '"[^"]* [^"]*"' -- '*.go' ':!*_test.go'
	git grep -InP '(^|[^:"])//.*\w' -- '*.go' | sed -E 's#^([^:]*:[0-9]*:).*[^:"]//#\1#; s#^([^:]*:[0-9]*:)//#\1#'
	git grep -In '' -- '*.md' ':!CONTRIBUTING.md' ':!docs/*/history.md'
}
all=$(text)

refuse() { # WORDS INSTEAD
	found=$(printf '%s\n' "$all" | grep -P ":[0-9]+:.*$1") || return 0
	printf 'not %s; write %s:\n%s\n' "$1" "$2" "$found" >&2
	status=1
}

refuse '\b[Aa]new\b' 'again'
refuse '\b[Ff]or ever\b' 'forever'
refuse '\b[Mm]eanwhile\b' 'while …'
refuse '\b(is|are) to be\b' 'must be'
refuse '(?<![Tt]here )\b(is|are) none\b' 'is not a …'
refuse '\bwhat has been\b' 'the noun'
refuse '\bno more is\b' 'no longer is'
refuse '\b([Nn]o|[Ss]ome|[Ee]very|[Aa]ny)body\b' 'the server, the client, the session'
refuse '\b[Ww]hoever\b' 'the server, the client, the session'
refuse '\b(bytes|log|logs|entry|entries|right|goes on|comes) behind (it|them|the (end|snapshot|last|header))\b' 'after'
refuse '\b[Bb]ehind (a (gap|snapshot|block|batch|write that)|an entry|the (end|older one|snapshot|header)\b)' 'after'
exit $status
