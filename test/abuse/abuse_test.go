package abuse

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

var (
	lasts = flag.Duration("abuse.time", time.Second, "how long each attack lasts")
	only  = flag.String("abuse.only", "", "run the attacks whose names match this expression")
	cpu   = flag.String("abuse.cpu", "",
		"write a processor profile of the leader during the last attack to this file")
	strict = flag.Bool("abuse.strict", false,
		"fail when an innocent client waits longer than a second for the lock")
)

// The limits that docs/limits.md states.
const (
	mostMemory = 256 << 20 // bytes of log that an attack may add, beyond those of the stored data
	mostLog    = 64 << 20  // bytes of log beyond those of the stored data
	// bytes for the unused part of log segments. There may be four segments of 16 MiB, one of which is about
	// to be removed.
	mostRoom    = 64 << 20
	mostLeast   = 64 << 20 // bytes for the 64 entries that the log always keeps, if they are the longest
	mostStored  = 32 << 20 // bytes for the stored data, its snapshots, and one that is being written
	mostHandOff = time.Second
	descriptors = 512
)

// limited() makes servers run with few descriptors and 1 GiB of memory. A process that needs more memory
// ends.
func limited(t *testing.T) {
	bin := cluster.Build(t)
	path := filepath.Join(t.TempDir(), "zlockd")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nulimit -d 1048576\nexec %s \"$@\"\n", descriptors, bin)
	must.OK(t, os.WriteFile(path, []byte(script), 0o700))
	t.Setenv("ZLOCKD_BIN", path)
}

func TestAbuse(t *testing.T) {
	limited(t)
	c := cluster.Three(t, "--pprof", "--max-client-cnxns", fmt.Sprint(perAddr), "--4lw-whitelist",
		admin.DefaultWhitelist+",hash", "--audit-log", filepath.Join(t.TempDir(), "audit{id}.log"),
		"--reconfig") // otherwise a server refuses a reconfig without any work
	leader := c.WaitLeader()
	others := c.Others(leader)
	must.OK(t, prepare(leader))
	to := targets{Leader: targetOf(leader), Follower: targetOf(others[0])}
	for _, s := range c.Servers {
		to.All = append(to.All, targetOf(s))
	}
	good := must.Get(startInnocents([2]string{leader.Client, others[0].Client}))(t)
	defer good.stop()
	monitoring := startScrapes(c)
	defer monitoring.stop()
	pattern := regexp.MustCompile(*only)
	var table strings.Builder
	table.WriteString("| attack | locks handed over | slowest | slowest scrape | memory, before and peak | " +
		"disk, before and peak | descriptors |\n|---|---|---|---|---|---|---|\n")
	for _, x := range attacks {
		if !pattern.MatchString(x.name) {
			continue
		}
		good.calm(30 * time.Second)
		list := measureAll(t, c, func() {
			if *cpu != "" {
				go profile(leader, *lasts)
			}
			if err := launch(x.name, to, *lasts); err != nil {
				t.Errorf("%s: %v", x.name, err)
			}
		})
		locks, slowest, trouble := good.take()
		scraped, late, unanswered := monitoring.take()
		if *strict && (unanswered != nil || scraped == 0) {
			t.Errorf("%s: the monitoring has %d answers, the slowest after %v; %v", x.name, scraped, late,
				unanswered)
		} else if unanswered != nil {
			t.Logf("%s: the monitoring had trouble: %v", x.name, unanswered)
		}
		worst := measure{}
		for i, m := range list {
			if m.peak-m.before > worst.peak-worst.before {
				worst.before, worst.peak = m.before, m.peak
			}
			if m.most-m.disk >= worst.most-worst.disk {
				worst.disk, worst.most = m.disk, m.most
			}
			if m.most > mostLog+mostRoom+mostLeast+mostStored {
				t.Errorf("%s: server %d takes %d MiB on its disk", x.name, i+1, m.most>>20)
			}
			worst.files = max(worst.files, m.files)
			if grown := m.peak - m.before; grown > mostMemory {
				t.Errorf("%s: server %d took %d MiB more", x.name, i+1, grown>>20)
			}
		}
		fmt.Fprintf(&table, "| %s | %d | %v | %v | %d, %d MiB | %d, %d MiB | %d |\n", x.name, locks,
			slowest.Round(time.Millisecond), late.Round(time.Millisecond),
			worst.before>>20, worst.peak>>20, worst.disk>>20, worst.most>>20, worst.files)
		if *strict && (trouble != nil || slowest > mostHandOff || locks == 0) {
			t.Errorf("%s: %d locks handed over, the slowest in %v; %v", x.name, locks, slowest, trouble)
		} else if trouble != nil {
			t.Logf("%s: an innocent client had trouble: %v", x.name, trouble)
		}
	}
	t.Logf("%v each, three servers:\n%s", *lasts, &table)
	for _, s := range c.Servers {
		must.That(t, s.Running(), "server %d is gone", s.ID)
		s.WaitServing(time.Minute) // on a busy machine a server may stop serving for a moment
	}
	c.SameState()
}

// profile() writes a processor profile of a server.
func profile(s *cluster.Server, lasts time.Duration) {
	resp, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.Admin,
		max(1, int(lasts.Seconds())-1)))
	if err != nil {
		return // the profile is only for people; the test does not need it
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err == nil {
		_ = os.WriteFile(*cpu, b, 0o600)
	}
}

func targetOf(s *cluster.Server) target {
	return target{Client: s.Client, Admin: s.Admin, Peer: s.Peer}
}

// TestAttacker is not a test. launch() starts it as a process that runs one attack.
func TestAttacker(t *testing.T) {
	name := os.Getenv("ABUSE_ATTACK")
	if name == "" {
		t.Skip("is run by TestAbuse and TestTicketAbuse")
	}
	a := &attacker{}
	must.OK(t, json.Unmarshal([]byte(os.Getenv("ABUSE_TARGETS")), &a.targets))
	d := must.Get(time.ParseDuration(os.Getenv("ABUSE_TIME")))(t)
	var cancel context.CancelFunc
	a.ctx, cancel = context.WithTimeout(context.Background(), d)
	defer cancel()
	for _, x := range slices.Concat(attacks, ticketAttacks, rateAttacks) {
		if x.name == name {
			x.run(a)
			return
		}
	}
	t.Fatalf("no attack is called %q", name)
}

// measureAll measures every server while f runs.
func measureAll(t *testing.T, c *cluster.Ensemble, f func()) []measure {
	t.Helper()
	list := make([]measure, len(c.Servers))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i, s := range c.Servers {
		wg.Go(func() {
			m, err := watch(s, stop)
			if err != nil {
				t.Errorf("server %d: %v", s.ID, err)
			}
			list[i] = m
		})
	}
	f()
	close(stop)
	wg.Wait()
	return list
}
