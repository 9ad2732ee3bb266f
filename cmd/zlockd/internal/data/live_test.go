package data

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// answering() starts a server with the nodes / and /a, and returns its address. /a has no child. The server
// answers each request with the code that refuses() returns.
func answering(t *testing.T, refuses func(op jute.OpCode, path string) jute.ErrCode) string {
	t.Helper()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	serve := func(c *wire.Conn) {
		defer c.Close()
		if _, err := c.ReadFrame(); err != nil {
			return
		}
		c.WriteRaw(jute.AppendConnectResponse(nil, 10_000, 1, [jute.PasswordSize]byte{}, true, false))
		for {
			b, err := c.ReadFrame()
			if err != nil {
				return
			}
			d := jute.NewDecoder(b)
			xid, op := d.Int(), jute.OpCode(d.Int())
			path, _ := d.String()
			st := jute.Stat{Mzxid: 5, Pzxid: 7, Cversion: 1}
			if path == "/" {
				st.NumChildren = 1
			}
			code := refuses(op, path)
			frame, at := jute.BeginFrame(nil)
			frame = jute.AppendReplyHeader(frame, xid, 9, code)
			if code == jute.OK {
				switch op {
				case jute.OpGetData:
					frame = jute.AppendStat(jute.AppendBuffer(frame, []byte("x")), &st)
				case jute.OpGetACL:
					frame = jute.AppendStat(jute.AppendACL(frame, jute.WorldAnyone), &st)
				case jute.OpGetChildren2:
					frame = jute.AppendStat(jute.AppendStrings(frame, []string{"a"}), &st)
				}
			}
			jute.EndFrame(frame, at)
			if c.WriteRaw(frame) != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(wire.New(c)) })
		}
	})
	return ln.Addr().String()
}

// If a server refuses a request, the comparison ends with an error, because otherwise two different servers
// could look equal. Only a node that has been removed during the read is left out.
func TestServerThatRefusesIsNotCompared(t *testing.T) {
	none := jute.OpCode(0)
	for _, c := range []struct {
		op    jute.OpCode
		path  string
		code  jute.ErrCode
		want  error
		nodes int
	}{
		{none, "", 0, nil, 2},
		{jute.OpGetData, "/", jute.NoAuth, zk.ErrNoAuth, 0},
		{jute.OpGetACL, "/", jute.NoAuth, zk.ErrNoAuth, 0},
		{jute.OpGetChildren2, "/", jute.NoAuth, zk.ErrNoAuth, 0},
		{jute.OpGetData, "/a", jute.NoAuth, zk.ErrNoAuth, 0},
		{jute.OpGetACL, "/a", jute.NoAuth, zk.ErrNoAuth, 0},
		{jute.OpGetData, "/a", jute.NoNode, nil, 1},
		{jute.OpGetACL, "/a", jute.NoNode, nil, 1},
		{jute.OpGetChildren2, "/a", jute.NoAuth, nil, 2}, // /a has no child: its children are not asked for
	} {
		addr := answering(t, func(op jute.OpCode, path string) jute.ErrCode {
			if op == c.op && path == c.path {
				return c.code
			}
			return jute.OK
		})
		got, err := readRunning(t.Context(), addr, "")
		if c.want != nil {
			expect.Is(t, err, c.want, "%v of %s", c.op, c.path)
			expect.Has(t, err.Error(), addr+": "+c.path+": ")
			expect.Has(t, err.Error(), "; give --auth-file a FILE", "what to do")
			continue
		}
		must.OK(t, err, "%v of %s", c.op, c.path)
		expect.Equal(t, len(got.Nodes), c.nodes, "nodes, with %v for %v of %s", c.code, c.op, c.path)
		root := got.Nodes["/"]
		expect.Equal(t, got.Zxid, 7, "zxid")
		expect.Equal(t, string(root.Data), "x", "data")
		if expect.Equal(t, len(root.ACL), 1, "number of ACL %v", root.ACL) {
			expect.Equal(t, root.Stat.Cversion, 1, "cversion")
		}
	}
}

func TestServerThatCannotBeAskedIsNotCompared(t *testing.T) {
	_, err := readRunning(t.Context(), "127.0.0.1:0", filepath.Join(t.TempDir(), "none"))
	expect.Is(t, err, os.ErrNotExist)
	expect.Has(t, err.Error(), "--auth-file: ")
}

// A word is the address of a server if it ends in a port and no file has that name.
func TestAddressesAreToldFromPaths(t *testing.T) {
	t.Chdir(t.TempDir())
	must.OK(t, os.WriteFile("file:1", nil, 0o600))
	for word, want := range map[string]bool{"host:2181": true, "[::1]:2181": true, "host": false, "host:": false,
		"file:1": false, "dir/host:2181": false, "/": false, "": false} {
		expect.Equal(t, isAddress(word), want, "%q", word)
	}
}
