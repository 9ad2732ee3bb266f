//go:build stock

package stock

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestTicketsQueueWithStockClients lets clients of Curator and of kazoo queue with tickets for one lock. All
// hold the lock in the order in which they came.
func TestTicketsQueueWithStockClients(t *testing.T) {
	beside(t)
	need(t, "/usr/bin/python3", "/usr/lib/python3/dist-packages/kazoo/client.py")
	script := must.Get(filepath.Abs("testdata/kazoo/hold.py"))(t)
	for name, c := range map[string]struct {
		path, query string
		program     []string
	}{
		"curator": {"/cur/mutex", "layout=curator", javaDriver(t, "LockHolder")},
		"kazoo":   {"/kz/lock", "layout=kazoo", []string{"/usr/bin/python3", "-B", script}},
	} {
		t.Run(name, func(t *testing.T) {
			port := must.Get(cluster.FreePorts(1))(t)[0]
			o := generous()
			o.Kind, o.Nodes = cluster.Zlockd, 1
			o.Flags = append(o.Flags, "--ticket-addr", port)
			e := cluster.Run(t, o)
			v := &viewed{t, target{addrs: strings.Split(e.Addrs(), ","), kind: cluster.Zlockd, ensemble: e},
				"http://" + e.Servers[0].Admin}
			ask := func(want int, method, ticket, query string) {
				t.Helper()
				r := must.Get(http.NewRequest(method, "http://"+port+"/v1/locks"+c.path+"?"+query, nil))(t)
				r.Header.Set("Zlock-Ticket", "secret-of-ticket-number-"+ticket)
				a := must.Get(http.DefaultClient.Do(r))(t)
				a.Body.Close()
				expect.Equal(t, a.StatusCode, want, "%s of ticket %s", method, ticket)
			}
			ask(201, "POST", "1", c.query)
			one := v.sessions(c.path, 1, 0)[0]
			by, _ := contending(t, v.g, c.program...)
			v.sessions(c.path, 1, 1) // the client's first session waits
			ask(202, "POST", "2", c.query)
			queue := v.sessions(c.path, 1, 2)
			two := queue[2]
			expect.Equal(t, fmt.Sprint(queue), fmt.Sprint([]string{one, by["a"], two}), "who holds and waits")
			ask(204, "DELETE", "1", "")
			// The program's first session holds; the second queues behind the ticket.
			queue = v.sessions(c.path, 1, 2)
			expect.Equal(t, fmt.Sprint(queue), fmt.Sprint([]string{by["a"], two, by["b"]}), "after the first ticket")
			ask(202, "POST", "2", c.query)
			v.removes(c.path, by["a"])
			ask(200, "POST", "2", c.query+"&wait=1m")
			queue = v.sessions(c.path, 1, 1)
			expect.Equal(t, fmt.Sprint(queue), fmt.Sprint([]string{two, by["b"]}), "after the program's hold")
			ask(204, "DELETE", "2", "")
			expect.Equal(t, v.sessions(c.path, 1, 0)[0], by["b"], "the last holder")
		})
	}
}

// sessions() waits until a lock has this number of holders and this number of waiters. It returns their
// sessions in the order of the queue.
func (v *viewed) sessions(path string, holders, waiters int) []string {
	v.t.Helper()
	var l lock
	want := fmt.Sprintf("%s has %d holders and %d waiters", path, holders, waiters)
	must.Await(v.t, want, time.Minute, func() bool {
		l = lock{}
		return v.get("/locks"+path, &l) && len(l.Holders) == holders && len(l.Waiters) == waiters
	})
	var list []string
	for _, e := range append(l.Holders, l.Waiters...) {
		list = append(list, e.Session)
	}
	return list
}

// removes() removes the node of a session from a lock's directory, as an operator may.
func (v *viewed) removes(path, session string) {
	v.t.Helper()
	c := (&goSuite{target: v.g}).connect(v.t)
	names, _, err := c.Children(path)
	must.OK(v.t, err)
	for _, name := range names {
		_, st, err := c.Exists(path + "/" + name)
		must.OK(v.t, err)
		if fmt.Sprintf("0x%x", st.EphemeralOwner) == session {
			must.OK(v.t, c.Delete(path+"/"+name, -1))
		}
	}
}
