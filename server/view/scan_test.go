package view

import (
	"strings"
	"testing"
	"time"
)

func TestScanThatNobodyAsksForIsForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		age  time.Duration
		kept bool
	}{"just asked for": {keepScan / 2, true}, "old": {keepScan, false}} {
		s := &scans{newest: &scan{at: time.Now().Add(-c.age)}}
		s.forget()
		if !s.mu.TryLock() {
			t.Fatalf("%s: whoever asks next waits for ever", name)
		}
		if kept := s.newest != nil; kept != c.kept {
			t.Errorf("%s: kept %v", name, kept)
		}
	}
	new(scans).forget()
}

func TestLongTextIsCut(t *testing.T) {
	at := func(n int) string { return strings.Repeat("x", n) }
	if s := clip(at(maxText)); s != at(maxText) {
		t.Errorf("a text of the greatest length has %d bytes", len(s))
	}
	if s := clip(at(maxText + 1)); s != at(maxText)+"…" {
		t.Errorf("a longer one has %d", len(s))
	}
	if s := clip(at(maxText-1) + "é"); s != at(maxText-1)+"…" {
		t.Errorf("half a character is left: %q", s[maxText-3:])
	}
	if s := href("/tree", at(4*maxText)); len(s) != 5+4*maxText {
		t.Errorf("the longest path that is linked has %d bytes", len(s))
	}
	if s := href("/tree", at(4*maxText+1)); s != "" {
		t.Errorf("a longer one is linked with %d", len(s))
	}
}
