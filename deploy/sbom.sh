#!/bin/sh
# Prints the bill of materials of a program in CycloneDX 1.5: sh deploy/sbom.sh VERSION PROGRAM
# The list is what the Go linker wrote into the program itself.
set -eu
go version -m "$2" | awk -v version="$1" '
function component(path, v) {
	return sprintf("    {\"type\": \"library\", \"name\": \"%s\", \"version\": \"%s\", \"purl\": \"pkg:golang/%s@%s\", \"bom-ref\": \"pkg:golang/%s@%s\"}", path, v, path, v, path, v)
}
NR == 1 { go = $NF; list = component("stdlib", go) }
$1 == "dep" { list = list ",\n" component($2, $3) }
END {
	print "{"
	print "  \"bomFormat\": \"CycloneDX\","
	print "  \"specVersion\": \"1.5\","
	print "  \"version\": 1,"
	printf "  \"metadata\": {\"component\": {\"type\": \"application\", \"name\": \"zlockd\", \"version\": \"%s\", \"purl\": \"pkg:golang/github.com/zlockd/zlockd@v%s\"}},\n", version, version
	print "  \"components\": ["
	print list
	print "  ]"
	print "}"
}'
