package proc

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestSurvivorBecomesACluster loses two servers of three for good, recovers the
// third, and brings the others back empty by the commands that recover prints.
func TestSurvivorBecomesACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers as processes")
	}
	c := cluster.Three(t, "--super-digest", superFlag)
	conn := dial(t, c.Servers[0].Client)
	for i := range 50 {
		must.Get(conn.Create(t.Context(), zk.Create{Path: fmt.Sprint("/n", i), Data: []byte("x")}))(t)
	}
	must.OK(t, conn.Sync(t.Context(), "/"))
	survivor := c.Servers[0]
	lost := c.Others(survivor)
	for _, s := range lost {
		s.Kill()
	}
	conn.Close(cancelled())
	saysWhatToDo(t, c, survivor)
	survivor.Kill()
	bin := cluster.Build(t)
	out, err := exec.Command(bin, "recover", "--data-dir", survivor.Data()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Lost at most") ||
		!strings.Contains(string(out), "give --yes") {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err = exec.Command(bin, "recover", "--data-dir", survivor.Data(), "--yes").CombinedOutput()
	t.Log(output(t, string(out), err))

	survivor.Start()
	survivor.WaitServing(30 * time.Second)
	conn = dial(t, survivor.Client)
	defer conn.Close(cancelled())
	for i := range 50 {
		must.OK(t, expect.Err(conn.Get(t.Context(), fmt.Sprint("/n", i))), "/n%d", i)
	}
	for _, s := range lost {
		must.OK(t, os.RemoveAll(s.Data()))
		s.Start()
	}
	r := &running{admin: survivor.Admin}
	for _, line := range regexp.MustCompile(`(?m)^ +zlock (member add .*)$`).FindAllStringSubmatch(string(out),
		-1) {
		t.Log(line[1], r.zlock(t, strings.Fields(line[1])...))
	}
	for _, s := range lost {
		s.WaitServing(30 * time.Second)
	}
	for range 130 { // servers note a digest every 128 zxids
		_, err = conn.Set(t.Context(), "/n1", []byte("y"), -1)
		must.OK(t, err)
	}
	c.SameState()
	if list := r.zlock(t, "member", "list", "-o", "plain"); strings.Count(list, "voter")+strings.Count(list,
		"leader") != 3 || strings.Contains(list, "non-voter") {
		t.Errorf("not all have their votes back:\n%s", list)
	}
}

// saysWhatToDo waits until a server without a majority names the way out, in
// its answer to /ready and in its refusal to change the members.
func saysWhatToDo(t *testing.T, c *cluster.Ensemble, s *cluster.Server) {
	t.Helper()
	way := "zlockd recover --data-dir " + s.Data()
	must.Await(t, "/ready names the way out", 2*time.Minute, func() bool {
		resp := must.Get(http.Get("http://" + s.Admin + "/ready"))(t)
		defer resp.Body.Close()
		return strings.Contains(string(must.Get(io.ReadAll(resp.Body))(t)), way)
	})
	zlock := cluster.Zlock(t)
	auth := filepath.Join(t.TempDir(), "auth")
	must.OK(t, os.WriteFile(auth, []byte("digest:"+super+"\n"), 0o600))
	out, err := exec.Command(zlock, "member", "add", "9", "127.0.0.1:1", "--admin-addr", s.Admin, "--auth-file",
		auth).CombinedOutput()
	expect.That(t, err != nil && strings.Contains(string(out), way), "zlock member: %v, %s", err, out)
	var all []string
	for _, s := range c.Servers {
		all = append(all, s.Client)
	}
	out, err = exec.Command(zlock, "doctor", "-S", strings.Join(all, ","), "--connect-timeout",
		"2s").CombinedOutput()
	expect.That(t, err != nil && strings.Contains(string(out), "zlockd recover"),
		"zlock doctor: %v, %s", err, out)
}

// cancelled is for closing connections that no server answers any longer.
func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
