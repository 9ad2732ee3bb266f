package main

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/doctest"
	"github.com/zlockd/zlockd/test/must"
)

func TestManualPage(t *testing.T) {
	page, errs, code := runIn(t, nil, "manual")
	must.That(t, code == 0 && errs == "", "%v %v", code, errs)
	doctest.Manual(t, "zlock.1", page)
}

// TestDocumentationHasTheCommands keeps docs/zlock.md from going stale.
func TestDocumentationHasTheCommands(t *testing.T) {
	const command = "go test ./cmd/zlock -run Documentation -update-docs"
	var commands, exits strings.Builder
	new(app).program().MarkdownCommands(&commands)
	doctest.Table(t, "../../docs/zlock.md", command, commands.String())
	new(app).program().MarkdownExits(&exits)
	doctest.Table(t, "../../docs/zlock.md", command+", exit codes", exits.String())
}
