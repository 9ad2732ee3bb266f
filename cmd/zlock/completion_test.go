package main

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A shell that completes a path gets only names that it takes as they are: any
// client may have chosen the name of a node.
func TestCompletionOffersNothingThatAShellWouldRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	env := scriptEnv(t)
	chroot := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "ZLOCK_CHROOT="); ok {
			chroot = v
		}
	}
	c := must.Get(zk.Dial(ctx, server(t), zk.Options{}))(t)
	defer c.Close(ctx)
	create := func(path string) {
		t.Helper()
		must.OK(t, expect.Err(c.Create(ctx, zk.Create{Path: path})), "%q", path)
	}
	create(chroot)
	create(chroot + "/jobs")
	for r := rune(' '); r < 0x7f; r++ {
		if r != '/' {
			create(chroot + "/jobs/a" + string(r) + "b")
		}
	}
	create(chroot + "/jobs/-rf")
	create(chroot + "/jobs/nächtlich")
	create(chroot + "/jobs/a\u00a0b")

	zlock := exec.CommandContext(ctx, built.dir+"/zlock", "__complete", "show", "/jobs/")
	zlock.Env = env
	out := must.Get(zlock.Output())(t)
	offered := strings.Fields(string(out))
	expect.That(t, len(offered) >= 26+26+10 && strings.Contains(string(out), "nächtlich"),
		"only %d names are offered: %q", len(offered), offered)
	for _, word := range offered {
		// What the shell makes of the word is the word.
		for _, shell := range []string{"sh", "bash"} {
			got, err := exec.CommandContext(ctx, shell, "-c", "printf %s "+word).CombinedOutput()
			expect.That(t, err == nil && string(got) == word,
				"%s takes %q for %q: %v", shell, word, got, err)
		}
		expect.That(t, !strings.ContainsAny(word, "!^~#=[]{}*?$`;&|<>()'\"\\ "), "%q is offered", word)
	}
}
