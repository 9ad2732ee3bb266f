package raftfsm

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/offline"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Every way in which a state comes back, in every order, and always from the oldest backup: the
// token that a lock is granted with next is above all tokens of before.
func TestG20TokensGrowOverRestoresAndRecoveries(t *testing.T) {
	type server struct {
		t       *testing.T
		n       *Node
		dir     string
		backup  []byte
		file    string
		highest int64
	}
	grant := func(s *server, what string) {
		s.t.Helper()
		eventually(s.t, "it serves", func() bool { ok, _ := s.n.Serving(); return ok })
		session := openSession(s.t, s.n, 30000).Session
		o, err := propose(s.n, state.Request{Session: session.ID, Gen: session.Gen, Op: jute.OpCreate,
			Body: createBody("/lock", 3)})
		must.That(s.t, err == nil && o.Code == jute.OK, "%s: %+v %v", what, o, err)
		expect.That(s.t, o.Zxid > s.highest,
			"%s: token 0x%x is granted behind 0x%x", what, o.Zxid, s.highest)
		s.highest = max(s.highest, o.Zxid)
	}
	ways := map[string]func(s *server) error{
		"live": func(s *server) error {
			_, err := s.n.Restore(s.t.Context(), bytes.NewReader(s.backup), int64(len(s.backup)), false)
			return err
		},
		"offline": func(s *server) error {
			stop(s.t, s.n)
			s.dir = filepath.Join(s.t.TempDir(), "data")
			_, err := offline.Restore(s.t.Context(), s.file, s.dir, 1, false, 3)
			s.n, _ = start(s.t, Options{DataDir: s.dir})
			return err
		},
		"recover": func(s *server) error {
			stop(s.t, s.n)
			r, err := offline.PlanRecovery(s.dir)
			if err == nil {
				_, err = r.Run(s.t.Context(), 2)
			}
			s.n, _ = start(s.t, Options{DataDir: s.dir})
			return err
		},
	}
	var chains [][]string
	for a := range ways {
		for b := range ways {
			chains = append(chains, []string{a, b})
		}
	}
	for _, chain := range chains {
		t.Run(strings.Join(chain, " then "), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			n, _ := start(t, Options{DataDir: dir})
			s := &server{t: t, n: n, dir: dir}
			grant(s, "the first")
			s.backup = backupOf(t, n)
			s.file = filepath.Join(t.TempDir(), "backup")
			must.OK(t, os.WriteFile(s.file, s.backup, 0o600))
			grant(s, "behind the backup")
			for _, way := range chain {
				must.OK(t, ways[way](s))
				grant(s, way)
			}
		})
	}
}
