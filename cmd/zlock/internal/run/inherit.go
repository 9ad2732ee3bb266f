package run

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// taskOf returns the name of the task that this process belongs to. It is the task of an ancestor that runs
// under a lock, so that both count as one party in the wait graph. Without such an ancestor it is new.
func taskOf(getenv func(string) string) string {
	return cmp.Or(getenv("ZLOCK_TASK"), rand.Text())
}

// ancestorHolds returns the holds of a path that ZLOCK_HOLDS names, the newest first. A path may have
// several: an ancestor lost its hold, and a process between it and this one locked the path again.
func ancestorHolds(value, chroot, path string) (holds []fence.Sequencer) {
	for _, word := range strings.Fields(value) {
		i := strings.LastIndexByte(word, '@')
		if i < 0 {
			continue
		}
		root, err := url.PathUnescape(word[:i])
		if err != nil {
			continue
		}
		s, err := fence.ParseSequencer(word[i+1:])
		if err == nil && root+s.Path == chroot+path {
			holds = append(holds, s)
		}
	}
	slices.Reverse(holds)
	return holds
}

// inherited() asks the server whether an ancestor of this process holds the paths. If it holds all of them,
// COMMAND needs no lock of its own. If it holds only some, or --inherit is missing, inherited() returns an
// error, because zlock would wait for its own ancestor. The ancestor's locks must have the mode `mode` or be
// exclusive.
func inherited(ctx context.Context, c *call.Call, cl *client.Client, chroot string, paths []string,
	inherit bool, mode fence.Mode) ([]fence.Sequencer, error) {
	ctx, cancel := connect.AnswerWithin(ctx, connect.AnswerTimeout)
	defer cancel()
	var found []fence.Sequencer
	for _, p := range paths {
		switch s, err := living(ctx, cl, ancestorHolds(c.Getenv("ZLOCK_HOLDS"), chroot, p), p); {
		case err == nil:
			found = append(found, s)
		case errors.Is(err, fence.ErrStale):
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		default:
			return nil, fmt.Errorf("ask whether an ancestor still holds %s: %w", p, err)
		}
	}
	switch {
	case len(found) == 0:
		return nil, nil
	case !inherit:
		return nil, cli.Exitf(call.ExitFailed,
			"an ancestor of this process holds %s, so zlock would wait for itself; "+
				"'zlock run --inherit' runs COMMAND under that lock", found[0].Path)
	case len(found) < len(paths):
		return nil, cli.Exitf(call.ExitFailed,
			"an ancestor of this process holds some of the paths, but not all")
	}
	for _, s := range found {
		if s.Mode != mode && s.Mode != fence.Exclusive {
			return nil, cli.Exitf(call.ExitFailed, "an ancestor of this process holds %s in the mode %s, "+
				"not %s",
				s.Path, s.Mode, mode)
		}
	}
	return found, nil
}

// living() returns the first of several holds of one path that is still valid. If none is, the error is
// fence.ErrStale.
func living(ctx context.Context, cl *client.Client, holds []fence.Sequencer, path string) (fence.Sequencer,
	error) {
	for _, s := range holds {
		s.Path = path // the sequencer may name the path below another chroot
		if err := cl.CheckSequencer(ctx, s); !errors.Is(err, fence.ErrStale) {
			return s, err
		}
	}
	return fence.Sequencer{}, fence.ErrStale
}

// inheritedSlots returns the numbers of an ancestor's permits, or none if they have no numbers.
func inheritedSlots(c *call.Call, held []fence.Sequencer) (slots []int) {
	if c.Getenv("ZLOCK_SLOTS") == "" {
		return nil
	}
	for _, h := range held {
		if slot := recipe.SlotOf(recipe.Base(h.Node)); slot > 0 {
			slots = append(slots, slot)
		}
	}
	return slots
}
