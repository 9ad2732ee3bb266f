//go:build kerberos

package kerberos

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestKeytabOfKadmin(t *testing.T) {
	b, _ := recorded(t)
	k, err := parseKeytab(b)
	if err != nil || len(k) != 8 {
		t.Fatalf("%d keys, %v", len(k), err)
	}
	for i := range b {
		if cut, err := parseKeytab(b[:i]); err == nil && len(cut) >= len(k) {
			t.Errorf("%d of %d bytes hold %d keys", i, len(b), len(cut))
		}
	}
	who, mine, err := k.choose("zookeeper/localhost")
	if err != nil || who.String() != "zookeeper/localhost@ZK.TEST" || len(mine) != 4 || mine[0].version != 2 {
		t.Errorf("%s, %+v, %v", who, mine, err)
	}
	// A key that was removed leaves a hole.
	size := 4 + int(b[5])
	hole := bytes.Clone(b)
	hole[2], hole[3], hole[4], hole[5] = 0xff, 0xff, 0xff, -b[5]
	if rest, err := parseKeytab(hole); err != nil || len(rest) != 7 ||
		rest[0].principal.String() != k[1].principal.String() {
		t.Errorf("%d bytes of hole: %d keys, %v", size, len(rest), err)
	}
	if again, err := parseKeytab(marshalKeytab(k)); err != nil || len(again) != len(k) ||
		!bytes.Equal(again[7].key.Value, k[7].key.Value) {
		t.Errorf("written and read: %v", err)
	}
}

func TestKeytabFiles(t *testing.T) {
	old := sessionKey{23, make([]byte, 16)}
	one, other := keytabEntry{server, 300, newKey(18)}, keytabEntry{alice, 1, newKey(17)}
	for name, c := range map[string]struct {
		entries   keytab
		principal string
		mode      os.FileMode
		want, err string
	}{
		"the only one":  {keytab{one, one}, "", 0o600, "zookeeper/host@ZK.TEST", ""},
		"said":          {keytab{one, other}, "alice@ZK.TEST", 0o640, "alice@ZK.TEST", ""},
		"without realm": {keytab{one, other}, "zookeeper/host", 0o600, "zookeeper/host@ZK.TEST", ""},
		"two": {keytab{one, other}, "", 0o600, "",
			"alice@ZK.TEST, zookeeper/host@ZK.TEST: say which"},
		"not there": {keytab{one, other}, "bob@ZK.TEST", 0o600, "",
			"no AES key of bob@ZK.TEST, but keys of alice@ZK.TEST, zookeeper/host@ZK.TEST"},
		"only old keys": {keytab{{server, 1, old}}, "", 0o600, "",
			"no key of an encryption type that is taken"},
		"old keys as well":    {keytab{{server, 1, old}, one}, "", 0o600, "zookeeper/host@ZK.TEST", ""},
		"open":                {keytab{one}, "", 0o644, "", "open to everybody (mode 0644): chmod o-rwx"},
		"empty":               {nil, "", 0o600, "", "holds no key"},
		"no principal":        {keytab{one}, "a//b@C", 0o600, "", "is no principal"},
		"no principal at all": {keytab{one}, "@C", 0o600, "", "is no principal"},
	} {
		file := filepath.Join(t.TempDir(), "keytab")
		if err := os.WriteFile(file, marshalKeytab(c.entries), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, c.mode); err != nil {
			t.Fatal(err)
		}
		s, err := New(Options{Keytab: file, Principal: c.principal})
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %q", name, err, c.err)
		case c.err == "" && (err != nil || s.Principal() != c.want):
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, file := range []string{filepath.Join(t.TempDir(), "missing"), t.TempDir(), "testdata/recorded.txt"} {
		if _, err := New(Options{Keytab: file}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestKeytabIsReadAgain(t *testing.T) {
	before, after := newKey(18), newKey(18)
	s, file := newService(t, Names{}, keytab{{server, 1, before}})
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	at := now
	try := func(key sessionKey, version int64) error {
		t.Helper()
		c := newClient(key, version, false)
		_, _, err := s.accept(c.hello(), at, nil)
		return err
	}
	replace := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		// A file system may keep only seconds.
		if err := os.Chtimes(file, at, at.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if err := try(after, 2); err == nil {
		t.Error("a ticket with a key that is not there yet")
	}
	// As kadmin leaves it: the old key stays, for tickets that are out.
	whole := marshalKeytab(keytab{{server, 1, before}, {server, 2, after}})
	replace(whole[:20])
	at = at.Add(lookAgain)
	if err := try(before, 1); err != nil || !strings.Contains(log.String(), "cannot be used") {
		t.Errorf("while half a file is there: %v, log %s", err, &log)
	}
	at = at.Add(time.Millisecond)
	replace(whole) // seen at once by who needs it
	for version, key := range []sessionKey{before, after} {
		if err := try(key, int64(version)+1); err != nil {
			t.Errorf("version %d: %v", version+1, err)
		}
	}
	if !strings.Contains(log.String(), "keytab read again") {
		t.Errorf("log %s", &log)
	}
	replace(marshalKeytab(keytab{{alice, 3, newKey(18)}}))
	at = at.Add(lookAgain)
	if err := try(after, 2); err != nil {
		t.Errorf("another's keytab: %v", err)
	}
}
