package main

import (
	"testing"

	"github.com/zlockd/zlockd/test/doctest"
)

func TestManualPage(t *testing.T) {
	page, errs, code := runIn(t, nil, "manual")
	if code != 0 || errs != "" {
		t.Fatal(code, errs)
	}
	doctest.Manual(t, "zlock.1", page)
}
