package disk

import (
	"crypto/rand"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

func openDir(t *testing.T, path string) *dataDir {
	t.Helper()
	d := must.Get(openDataDir(path, osFiles))(t)
	t.Cleanup(func() { d.close() })
	return d
}

func TestIdentityIsKept(t *testing.T) {
	d := openDir(t, t.TempDir())
	made, err := d.loadIdentity(3, rand.Reader)
	must.That(t, err == nil && made.Server == 3 && len(made.Incarnation) == 32, "%+v, %v", made, err)
	made.Cluster, made.Incarnations, made.Peers = "c", map[uint32]string{3: made.Incarnation}, map[uint32]string{
		3: "a:1"}
	must.OK(t, d.saveIdentity(made))
	if again, err := d.loadIdentity(3, rand.Reader); err != nil || !reflect.DeepEqual(again, made) {
		t.Errorf("read back as %+v, %v", again, err)
	}
	if _, err := d.loadIdentity(4, rand.Reader); err == nil ||
		!strings.Contains(err.Error(), "belongs to server 3") {
		t.Errorf("of another server: %v", err)
	}
}

// A server that took half an identity for one would vote as somebody it is not.
func TestIdentityCutShortIsDamaged(t *testing.T) {
	d := openDir(t, t.TempDir())
	id := Identity{Server: 3, Incarnation: "i", Cluster: "c"}
	must.OK(t, d.saveIdentity(id))
	whole := must.Get(os.ReadFile(d.sub(identityFile)))(t)
	for n := range len(whole) - 1 { // the last byte is the end of the line
		must.OK(t, os.WriteFile(d.sub(identityFile), whole[:n], 0o600))
		if got, err := d.loadIdentity(3, rand.Reader); err == nil || !strings.Contains(err.Error(), "is damaged") ||
			!reflect.DeepEqual(got, Identity{}) {
			t.Errorf("%d of %d bytes: %+v, %v", n, len(whole), got, err)
		}
	}
	for _, text := range []string{`{"server":3}`, `{"server":3,"incarnation":""}`, `[]`} {
		os.WriteFile(d.sub(identityFile), []byte(text), 0o600)
		if _, err := d.loadIdentity(3, rand.Reader); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
