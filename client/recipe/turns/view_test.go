package turns

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// shown() returns a line for each lock that Assemble finds: the holders, and the waiters with what they wait
// for.
func shown(dirs []*Dir, w Watches) string {
	var lines []string
	for _, q := range Assemble(dirs, w) {
		line := fmt.Sprintf("%s %s %d:", q.Path, q.Kind, q.Total)
		for _, e := range q.Holders {
			line += " " + e.Node
		}
		for _, e := range q.Waiters {
			line += " | " + e.Node + " for " + strings.Join(e.BlockedBy, "+")
		}
		for _, e := range q.Participants {
			line += " " + string(e.Mode) + " " + e.Node
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func dirOf(path string, nodes ...recipe.Node) *Dir {
	return &Dir{Path: path, Nodes: nodes, Total: len(nodes)}
}

// A reader holds the lock together with the writer before it if the reader's node comes from a downgrade of
// that writer.
func TestReaderBesideItsWriter(t *testing.T) {
	node := func(l recipe.Layout, k recipe.Role, session int64, seq int) recipe.Node {
		name := recipe.NodeName(l, k, recipe.NewID(session, 5), "h") + fmt.Sprintf("%010d", seq)
		return recipe.Node{Name: name, Session: session}
	}
	for _, c := range []struct {
		layout            recipe.Layout
		first, own, after int64 // sessions of two writers and of the reader; 0: not there
		watching, known   bool
		holds             bool
	}{
		{recipe.LayoutCurator, 0, 1, 1, false, true, true},
		{recipe.LayoutCurator, 0, 1, 1, true, true, false},
		{recipe.LayoutCurator, 0, 1, 1, false, false, false},
		{recipe.LayoutCurator, 0, 1, 2, false, true, false},
		{recipe.LayoutCurator, 3, 1, 1, false, true, false},
		{recipe.LayoutCurator, 3, 1, 2, false, true, false},
		{recipe.LayoutHost, 0, 1, 1, false, true, false},
		{recipe.LayoutHost, 3, 1, 1, false, true, false},
	} {
		d := dirOf("/l", node(c.layout, recipe.RoleWrite, c.own, 2), node(c.layout, recipe.RoleRead, c.after, 3))
		if c.first != 0 {
			d.Nodes, d.Total = append(d.Nodes, node(c.layout, recipe.RoleWrite, c.first, 1)), 3
		}
		w := Watches(Unseen{})
		if c.known {
			w = watches{}
			if c.watching {
				w = watches{"/l/" + d.Nodes[0].Name: {c.after}}
			}
		}
		reader := d.Nodes[1].Name
		q := Assemble([]*Dir{d}, w)[0]
		holds := slices.ContainsFunc(q.Holders, func(e recipe.Entry) bool { return e.Node == reader })
		expect.Equal(t, holds, c.holds, "%+v", c)
	}
}

// A hold under a policy begins when its node is made. Another hold begins when its record was written, if the
// record says that it is held.
func TestHoldsThatSayWhenTheyBegan(t *testing.T) {
	id := recipe.NewID(1, 2)
	d := dirOf("/p", recipe.Node{Name: recipe.PolicyNode{ID: id, Kind: recipe.HoldWrite}.Name(true), Ctime: 7})
	d.Data = string(recipe.NewPolicyRecord(recipe.PolicyWriter, 0).Encode())
	q := Assemble([]*Dir{d}, nil)[0]
	expect.Equal(t, q.Policy, "writer", "q.Policy")
	expect.Equal(t, q.Holders[0].HeldSince, 7, "q.Holders[0].HeldSince")
	data := func(o recipe.Owner) string { return string(recipe.EncodeOwner(o)) }
	d = dirOf("/l", recipe.Node{Name: "lock-0000000001", Data: data(recipe.Owner{Held: true}), Ctime: 3,
		Mtime: 7},
		recipe.Node{Name: "lock-0000000002", Data: data(recipe.Owner{Held: true}), Ctime: 3, Mtime: 8})
	q = Assemble([]*Dir{d}, nil)[0]
	expect.Equal(t, q.Policy, "", "q.Policy")
	expect.Equal(t, q.Holders[0].HeldSince, 7, "q.Holders[0].HeldSince")
	expect.Equal(t, q.Waiters[0].HeldSince, 0, "q.Waiters[0].HeldSince")
	for _, data := range []string{data(recipe.Owner{Reason: `"held"`}), data(recipe.Owner{Host: "h"}),
		`the "held" one`, "",
		`{"v":1,"host":"h","new":"held"}`} {
		q = Assemble([]*Dir{dirOf("/l", recipe.Node{Name: "lock-0000000001", Data: data, Mtime: 7})}, nil)[0]
		expect.Equal(t, q.Holders[0].HeldSince, 0, "%q", data)
	}
	door := recipe.NewID(3, 4).UUID()
	d = dirOf("/l", recipe.Node{Name: "lock-0000000001"})
	d.Data = string(recipe.Record{Layout: recipe.LayoutPolicy.String(), Policy: "writer", Door: &door}.Encode())
	expect.Equal(t, Assemble([]*Dir{d}, nil)[0].Policy, "", "a lock without nodes of a policy has one")
}

// A lone node named `lock` is the lock of its directory if the node has a record, or if a session watches the
// directory.
func TestDirectoryOfOneNode(t *testing.T) {
	record := string(recipe.EncodeOwner(recipe.Owner{Host: "h"}))
	for _, c := range []struct {
		data string
		w    Watches
		want string
	}{
		{"", nil, "/d/lock simple 1: "}, {"", watches{}, "/d/lock simple 1: "},
		{record, nil, "/d simple 1: lock"}, {record, watches{"/d": {9}}, "/d simple 2: lock | lock"},
		{"", watches{"/d": {9}}, "/d simple 2: lock | lock"},
	} {
		got := shown([]*Dir{dirOf("/d", recipe.Node{Name: recipe.SimpleName, Session: 1, Data: c.data})}, c.w)
		expect.Equal(t, strings.ReplaceAll(got, "|  for lock", "| lock"), c.want, "%q, %v", c.data, c.w)
	}
	expect.Equal(t, shown([]*Dir{dirOf("/e")}, nil), "", "an empty directory")
	party := recipe.NewID(1, 2).Hex() + "__party__"
	expect.Equal(t, shown([]*Dir{dirOf("/p", recipe.Node{Name: party})}, nil), "/p party 1: participant "+party)
	jobs := dirOf("/j", recipe.Node{Name: "job-0000000001", Session: 1},
		recipe.Node{Name: "job-0000000002", Session: 2})
	expect.Equal(t, shown([]*Dir{jobs}, watches{}),
		"/j unknown 2: participant job-0000000001 participant job-0000000002")
}

// The two directories of Curator's semaphore are one lock, and so are the two of kazoo's.
func TestSemaphores(t *testing.T) {
	node := func(form string, session, zxid int64, seq int) recipe.Node {
		return recipe.Node{Name: fmt.Sprintf(form, session, seq), Session: session, Czxid: zxid, Ctime: 10 * zxid}
	}
	permit := func(session, zxid int64, seq int) recipe.Node {
		return node("%d-lease-%010d", session, zxid, seq)
	}
	waiter := func(session, zxid int64, seq int) recipe.Node { return node("%d-lock-%010d", session, zxid, seq) }
	first, second, third := permit(1, 1, 1), permit(2, 2, 2), permit(3, 4, 3)
	own, next := waiter(3, 3, 1), waiter(4, 5, 2)
	type nodes = []recipe.Node
	for i, c := range []struct {
		limit           string
		permits, queue  nodes
		watching, known bool
		want            string
	}{
		{"2", nodes{first, second}, nil, false, false, "2: 1 2"},
		{"2", nodes{first, second}, nodes{own, next}, false, false, "4: 1 2 | 3 for 1+2 | 4 for 3"},
		{"2", nodes{first, second, third}, nodes{own, next}, false, false, "4: 1 2 | 3 for 1+2 | 4 for 3"},
		{"2", nodes{first, second, third}, nodes{own, next}, true, true, "4: 1 2 | 3 for 1+2 | 4 for 3"},
		{"2", nodes{first, second, third}, nodes{own, next}, false, true, "5: 1 2 3 | 3 for 1+2+3 | 4 for 3"},
		{"3", nodes{first, second, third}, nodes{own, next}, true, true, "5: 1 2 3 | 3 for 1+2+3 | 4 for 3"},
		{"", nodes{first, second, third}, nodes{own, next}, true, true, "4: 1 2 | 3 for 1+2 | 4 for 3"},
		{"", nodes{third}, nodes{own}, true, true, "1: | 3 for "},
		{"1", nodes{third, first}, nodes{own, next}, true, true, "3: 1 | 3 for 1 | 4 for 3"},
		// A permit before the node in the queue is an older hold of the same session.
		{"1", nodes{first, permit(3, 2, 3)}, nodes{own}, true, true, "3: 1 3 | 3 for 1+3"},
		{"1", nodes{first, permit(3, 3, 3)}, nodes{own}, true, true, "2: 1 | 3 for 1"},
		{"2", nil, nodes{own, next}, false, false, "2: | 3 for  | 4 for 3"},
	} {
		w := Watches(Unseen{})
		if c.known {
			w = watches{}
			if c.watching {
				w = watches{"/s/leases": {3}}
			}
		}
		permits, queue := dirOf("/s/leases", c.permits...), dirOf("/s/locks", c.queue...)
		permits.Sem, permits.SemData, permits.Part, permits.Next = "/s", c.limit, PermitsPart, 8
		queue.Sem, queue.SemData, queue.Part, queue.Next = "/s", c.limit, QueuePart, 9
		dirs := []*Dir{permits, queue}
		if c.permits == nil {
			dirs = dirs[1:]
		}
		list := Assemble(dirs, w)
		must.Equal(t, len(list), 1)
		q := list[0]
		for _, e := range append(q.Holders, q.Waiters...) {
			expect.Equal(t, e.Mode, recipe.Permit, "%d: %s", i, e.Node)
		}
		for _, e := range q.Holders {
			expect.Equal(t, e.HeldSince, e.Since, "%d: e.HeldSince", i)
			expect.That(t, strings.HasPrefix(e.Node, "leases/"),
				"%d: %+v: want strings.HasPrefix(e.Node, \"leases/\")", i, e)
		}
		for j, e := range q.Waiters {
			if expect.That(t, e.BlockedBy != nil, "%d: %+v: want e.BlockedBy != nil", i, e) {
				expect.Equal(t, e.Any, j == 0, "%d: e.Any", i)
				expect.Equal(t, e.HeldSince, 0, "%d: e.HeldSince", i)
			}
			expect.That(t, strings.HasPrefix(e.Node, "locks/"), "%d: %s waits", i, e.Node)
		}
		expect.Equal(t, q.Layout(), "curator", "%d: q.Layout()", i)
		expect.That(t, c.permits == nil || q.Next == 8,
			"%d: %+v: want c.permits == nil || q.Next == 8", i, q)
		expect.Equal(t, q.Limit, recipe.LimitOf(c.limit), "%d: q.Limit", i)
		got := strings.TrimPrefix(shown(dirs, w), "/s semaphore ")
		for _, part := range []string{"leases/", "locks/"} {
			got = strings.ReplaceAll(got, part, "")
		}
		for _, n := range append(c.permits, c.queue...) {
			got = strings.ReplaceAll(got, n.Name, fmt.Sprint(n.Session))
		}
		expect.Equal(t, got, c.want, "%d", i)
	}

	a, b := recipe.NewID(1, 2).Hex(), recipe.NewID(2, 3).Hex()
	permits := dirOf("/k", recipe.Node{Name: a, Session: 1}) // an id that ends in ten digits
	queue := dirOf("/k"+recipe.KazooQueue, recipe.Node{Name: b + "__lock__0000000001"})
	permits.Data = "1"
	queue.Sem, queue.SemData, queue.Part = "/k", "1", QueuePart
	behind := "| /k" + recipe.KazooQueue + "/" + b + "__lock__0000000001 for "
	for _, c := range []struct {
		dirs []*Dir
		want string
	}{
		{[]*Dir{permits, queue}, "/k semaphore 2: " + a + " " + behind + a},
		{[]*Dir{permits}, "/k semaphore 1: " + a}, {[]*Dir{queue}, "/k semaphore 1: " + behind},
	} {
		expect.Equal(t, shown(c.dirs, nil), c.want)
		expect.Equal(t, Assemble(c.dirs, nil)[0].Layouts[0], recipe.LayoutKazoo, "%s", c.want)
	}
	lock, none := dirOf("/k", recipe.Node{Name: "lock-0000000001"}), dirOf("/k", recipe.Node{Name: a})
	lock.Data = "1"
	expect.Equal(t, shown([]*Dir{lock}, nil), "/k lock 1: lock-0000000001", "a number in the data of a lock")
	expect.Equal(t, shown([]*Dir{none}, nil), "", "ids without a number of permits")
}
