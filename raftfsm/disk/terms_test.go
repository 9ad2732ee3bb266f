package disk

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// voted holds raft's term and vote.
type voted struct {
	term, in uint64
	whom     string
}

func (v *voted) write(s raft.StableStore) error {
	for _, err := range []error{s.SetUint64([]byte("CurrentTerm"), v.term), s.SetUint64([]byte("LastVoteTerm"),
		v.in), s.Set([]byte("LastVoteCand"), []byte(v.whom))} {
		if err != nil {
			return err
		}
	}
	return nil
}

func readVoted(s raft.StableStore) (v voted, err error) {
	if v.term, err = s.GetUint64([]byte("CurrentTerm")); err != nil {
		return v, err
	}
	if v.in, err = s.GetUint64([]byte("LastVoteTerm")); err != nil {
		return v, err
	}
	whom, err := s.Get([]byte("LastVoteCand"))
	v.whom = string(whom)
	return v, err
}

// hasVoted returns a directory whose server has voted, and its stable store.
func hasVoted(t *testing.T) (dir, file string, v voted) {
	dir, v = filled(t), voted{3, 3, "2"}
	d := must.Get(open(dir))(t)
	must.OK(t, v.write(d.Stable()))
	must.OK(t, d.Close())
	return dir, filepath.Join(dir, "raft", "stable.db"), v
}

// The test inverts single bits all over the file with the term and the vote. The server refuses the file, or
// reads the term and the vote that were written.
func TestR7FlippedBitInTermOrVoteIsRefused(t *testing.T) {
	race := debug.BuildSetting{Key: "-race", Value: "true"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, race) {
		t.Skip("bolt reads a damaged file through unsafe slices, at which the race detector ends the process")
	}
	dir, file, want := hasVoted(t)
	right := must.Get(os.ReadFile(file))(t)
	f := must.Get(os.OpenFile(file, os.O_RDWR, 0))(t)
	defer f.Close()
	put := func(at int, b byte) {
		must.Get(f.WriteAt([]byte{b}, int64(at)))(t)
	}
	refused := 0
	flip := func(at, bit int) {
		put(at, right[at]^1<<bit)
		defer put(at, right[at])
		bolt, stable, err := readBolt(file)
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove the data directory") {
				t.Errorf("byte %d, bit %d: the refusal does not say what to do: %v", at, bit, err)
			}
			return
		}
		defer bolt.Close()
		is, err := readVoted(stable)
		expect.OK(t, err, "byte %d, bit %d", at, bit)
		expect.Equal(t, is, want, "byte %d, bit %d: term and vote", at, bit)
	}
	step := 3
	if testing.Short() {
		step = 29
	}
	for at := 0; at < len(right); at += step {
		flip(at, at%8)
	}
	// Invert each bit of the keys and of the record.
	record := termRecord{want.term, want.in, []byte(want.whom)}
	for _, part := range [][]byte{[]byte(termsKey), record.encode()} {
		for at := 0; ; {
			next := bytes.Index(right[at:], part)
			if next < 0 {
				break
			}
			at += next
			for n := range part {
				for bit := range 8 {
					flip(at+n, bit)
				}
			}
			at += len(part)
		}
	}
	expect.That(t, refused >= 100, "only %d flips were refused", refused)
	// A server does not start with a wrong bit in its term, and writes nothing to the file.
	b := bytes.Clone(right)
	at := bytes.LastIndex(right, record.encode()) + 7
	b[at] ^= 1
	put(at, b[at])
	for what, opened := range map[string]func() error{
		"Open":        func() error { _, err := open(dir); return err },
		"OpenStopped": func() error { _, err := OpenStopped(dir); return err },
	} {
		err := opened()
		if expect.Fails(t, err, "%s of a directory with a flipped term", what) {
			expect.Has(t, err.Error(), "stable.db", "%s", what)
		}
	}
	is, _ := os.ReadFile(file)
	expect.List(t, is, b, "the damaged file was written to")
}

// The test inverts each bit of a stored identity. The server refuses the identity, or reads the one that was
// written.
func TestR7FlippedBitInIdentityIsRefused(t *testing.T) {
	whole := Identity{Server: 1, Incarnation: "ab", Cluster: "c", Incarnations: map[uint32]string{1: "ab"},
		Start: 5, Life: "cd", Begun: true, LogStore: "wal"}
	right := must.Get(encodeIdentity(whole))(t)
	text := func(id Identity) string { b, _ := json.Marshal(id); return string(b) }
	must.Equal(t, text(must.Get(parseIdentity(right))(t)), text(whole))
	for at := range right {
		for bit := range 8 {
			b := bytes.Clone(right)
			b[at] ^= 1 << bit
			if is, err := parseIdentity(b); err == nil && text(is) != text(whole) {
				t.Errorf("byte %d, bit %d: %s is believed", at, bit, text(is))
			}
		}
	}
	d := &dataDir{path: t.TempDir(), files: osFiles}
	must.Get(d.loadIdentity(1, rand.Reader))(t)
	b, _ := os.ReadFile(d.sub(identityFile))
	b[bytes.Index(b, []byte("incarnation"))+15] ^= 1
	os.WriteFile(d.sub(identityFile), b, 0o600)
	_, err := d.loadIdentity(1, rand.Reader)
	if expect.Fails(t, err, "a flipped identity") {
		expect.Has(t, err.Error(), d.sub(identityFile))
		expect.Has(t, err.Error(), "remove the directory")
	}
}
