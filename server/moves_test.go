package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// values reads a page of metrics.
func values(t *testing.T, i *Instance) map[string]float64 {
	t.Helper()
	_, text := get(t, "http://"+i.MetricsAddr()+"/metrics")
	m := map[string]float64{}
	for line := range strings.Lines(text) {
		name, number, ok := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(number, 64); ok && err == nil && name != "#" {
			m[name] = v
		}
	}
	return m
}

// write lists the metrics that each write changes, and by how much.
const write = "proposal_count 1, commit_count 1, fsynctime_count 1, propagation_latency_count 1, " +
	"proposal_latency_count 1, quorum_ack_latency_count 1, " +
	"sync_processor_batch_size_count 1, updatelatency_count 1, readlatency_count 0, zlockd_zxid 1, " +
	"zlockd_raft_applied_index 1, zlockd_raft_commit_index 1, " +
	"zlockd_raft_last_index 1, zlockd_log_requests 1"

// read lists the metrics that must not change with a read.
const read = "proposal_count 0, zlockd_zxid 0, zlockd_log_requests 0, updatelatency_count 0"

// TestMetricsMove takes one step after another, and checks which metrics each step changes, and by how much.
func TestMetricsMove(t *testing.T) {
	t.Parallel()
	i, c := start(t, Options{MetricsAddr: "127.0.0.1:0"})
	var other *wire.Conn
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"connect", func() {
			var err error
			other, err = wire.Open(i.ClientAddr())
			must.OK(t, err)
		}, "connection_request_count 1, num_alive_connections 1, global_sessions 1, packets_received 1, " +
			"packets_sent 1, bytes_received_count 49, " +
			"response_bytes 41, proposal_count 1, zlockd_zxid 1, znode_count 0"},
		{"create", func() { create(t, c, "/a", 0) }, write +
			`, znode_count 1, ephemerals_count 0, approximate_data_size 2, packets_received 1, packets_sent 1,
			bytes_received_count 53, response_bytes 26, write_per_namespace_count{key="a"} 1`},
		{"create with data", func() { must.Get(c.Create("/a/b", make([]byte, 100), 0))(t) },
			write + `, znode_count 1, approximate_data_size 104, bytes_received_count 155, response_bytes 28, write_per_namespace_count{key="a"} 1`},
		{"create an ephemeral node", func() { create(t, other, "/e", jute.FlagEphemeral) },
			write + `, znode_count 1, ephemerals_count 1, write_per_namespace_count{key="e"} 1`},
		{"read", func() { must.Get2(c.GetData("/a/b", false))(t) },
			read + `, readlatency_count 1, packets_received 1, packets_sent 1, response_bytes 192, watch_count 0, read_per_namespace_count{key="a"} 1`},
		{"watch", func() {
			_, _, err := c.GetData("/a", true)
			must.OK(t, err)
			_, _, err = c.Children("/a", true)
			must.OK(t, err)
			if _, err = c.Exists("/new", true); err != jute.NoNode {
				t.Fatal(err)
			}
			must.Get(c.Exists("/a/b", true))(t)
		}, read + `, readlatency_count 4, watch_count 4, zlockd_watches 4, read_per_namespace_count{key="a"} 3`},
		{"change what is watched", func() {
			must.Get(other.SetData("/a", []byte("x"), -1))(t)
			create(t, other, "/a/c", 0)
			create(t, other, "/new", 0)
			must.OK(t, other.Delete("/a/b", -1))
			for range 4 {
				must.Get(c.Next())(t)
			}
		}, `node_changed_watch_count_count 1, node_children_watch_count_count 1, node_created_watch_count_count 1, node_deleted_watch_count_count 1,
			watch_count -4, zlockd_watches -4, packets_received 4, packets_sent 8, znode_count 1, approximate_data_size -95, watch_bytes 140, updatelatency_count 4,
			write_per_namespace_count{key="a"} 3, write_per_namespace_count{key="new"} 1, zlockd_zxid 4`},
		{"fail to authenticate", func() {
			d := must.Get(wire.Open(i.ClientAddr()))(t)
			must.Fails(t, d.Auth("nonsense", "x"), "authenticated")
			must.OK(t, d.Closed())
		}, "auth_failed_count 1, connection_request_count 1, global_sessions 1, packets_received 2, " +
			"packets_sent 2"},
		{"come back to a session", func() {
			must.OK(t, other.Close())
			back := must.Get(wire.Dial(i.ClientAddr()))(t)
			must.OK(t, back.Connect(wire.Attach(other.Session, 0)))
			other = back
		}, "connection_revalidate_count 1, revalidate_count 1, connection_request_count 1, global_sessions 0, " +
			"ephemerals_count 0"},
		{"ask for a session that is over", func() {
			d := must.Get(wire.Dial(i.ClientAddr()))(t)
			gone := other.Session
			gone.ID++
			_ = d.Connect(wire.Attach(gone, 0)) // the answer says that the session has expired
			must.OK(t, d.Closed())
		}, "zlockd_sessions_refused_total 1, global_sessions 0"},
		{"send a connect request that is none", func() {
			d := must.Get(wire.Dial(i.ClientAddr()))(t)
			must.OK(t, d.WriteRaw([]byte{0, 0, 0, 4, 1, 2, 3, 4}))
			must.OK(t, d.Closed())
		}, "unsuccessful_handshake 1, global_sessions 0"},
		{"send a frame that is too large", func() {
			d := must.Get(wire.Open(i.ClientAddr()))(t)
			must.OK(t, d.WriteRaw([]byte{0x10, 0, 0, 0}))
			must.OK(t, d.Closed())
		}, "large_requests_rejected 1, global_sessions 1"},
		{"close a session", func() { must.OK(t, other.CloseSession()) },
			write + ", global_sessions -1, ephemerals_count -1, znode_count -1, approximate_data_size -2, " +
				"packets_received 1, packets_sent 1, auth_failed_count 0"},
	} {
		before := values(t, i)
		// The leader counts an entry after it has given it to raft, so entries of the start may not be
		// counted yet.
		for end := time.Now().Add(time.Minute); before["proposal_count"] != before["proposal_latency_count"]; {
			must.That(t, time.Now().Before(end), "the entries of the start are not counted: %v", before)
			time.Sleep(5 * time.Millisecond)
			before = values(t, i)
		}
		step.do()
		// The client may have its answer before the leader has measured the entry.
		var wrong []string
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			if wrong = differ(before, values(t, i), step.want); wrong == nil || time.Now().After(end) {
				break
			}
		}
		for _, w := range wrong {
			t.Errorf("%s: %s", step.name, w)
		}
	}
}

// `want` lists metrics, and by how much each must change. differ returns the metrics that changed by another
// number.
func differ(before, after map[string]float64, want string) (wrong []string) {
	for item := range strings.SplitSeq(want, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(item), " ")
		want, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return append(wrong, err.Error())
		}
		if _, there := after[name]; !there {
			wrong = append(wrong, "there is no "+name)
		} else if moved := after[name] - before[name]; moved != want {
			wrong = append(wrong, fmt.Sprintf("%s moves by %v, want %v", name, moved, want))
		}
	}
	return wrong
}

// Until a server has joined its cluster, it refuses an operator's action. It does not report the action as
// done.
func TestTheViewSaysThatThereIsNoNode(t *testing.T) {
	t.Parallel()
	s := viewSource{new(Instance), new(clients.Server), nil}
	expect.Is(t, s.HandOver(t.Context()), errNotJoined, "HandOver")
	expect.Is(t, s.TakeSnapshot(), errNotJoined, "TakeSnapshot")
	expect.Is(t, expect.Err(s.Do(context.Background(), state.Request{})), errNotJoined, "Do")
	expect.That(t, !s.View(func(*state.State) {}), "there is a state to see")
	expect.That(t, s.backupSource() == nil, "there is a state to back up")
	expect.Is(t, s.ChangeMember(t.Context(), change.Change{Op: "add"}), errNotJoined, "ChangeMember")
	expect.Is(t, expect.Err(s.Probe(t.Context(), 1, "127.0.0.1:1")), errNotJoined, "Probe")
}

// If a server cannot take an operator's change at once, it refuses the change and does not wait for an
// outcome.
func TestTheViewSaysThatTheServerTakesNothing(t *testing.T) {
	t.Parallel()
	i, _ := start(t, Options{})
	i.Node().Abort()
	_, err := viewSource{Instance: i, Server: i.Clients}.Do(t.Context(), state.Request{Op: state.OpCreateSession,
		Body: (&state.SessionBody{Timeout: 10_000, Addr: "operator"}).Append(nil)})
	expect.Fails(t, err, "a server that has ended takes a change")
}

// A reconfig consists of changes that do not check whether a majority remains. The admin port refuses such a
// change.
func TestStepsOfAReconfigAreNoChangesOfAnOperators(t *testing.T) {
	t.Parallel()
	i, _ := start(t, Options{})
	for _, op := range []change.Op{change.Vote, change.Demote, change.Describe} {
		err := i.ChangeMember(t.Context(), change.Change{Op: op, ID: 1})
		if expect.Fails(t, err, "%s", op) {
			expect.Has(t, err.Error(), "unknown change", "%s: error", op)
		}
	}
}

// /ready of a server that has not joined its cluster says what the server waits for. Until then the server
// serves clients with read-only sessions only if the operator wants that.
func TestReadySaysWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{true, false} {
		peers := must.Get(cluster.FreePorts(3))(t)
		opened := make(chan string, 1)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := Start(ctx, Options{
				ID: 1, AdminAddr: "127.0.0.1:0", DataDir: t.TempDir(), PeerListen: "127.0.0.1:0", ReadOnlyMode: alone,
				Peers: map[uint32]string{1: peers[0], 2: peers[1], 3: peers[2]},
				Listen: func(addr string) (net.Listener, error) {
					ln, err := net.Listen("tcp", addr)
					if err == nil {
						opened <- ln.Addr().String()
					}
					return ln, err
				},
			})
			ended <- err
		}()
		addr := <-opened
		must.Await(t, "/ready does not say what the server waits for", time.Minute, func() bool {
			code, text := get(t, "http://"+addr+"/ready")
			return code == 503 && strings.Contains(text, "waiting for server 2 at 127.0.0.1:") &&
				strings.Contains(text, "server 3 at")
		})
		reads := func() bool {
			_, text := get(t, "http://"+addr+"/commands/monitor")
			return strings.Contains(text, "read-only")
		}
		if alone {
			must.Await(t, "the server reads alone", time.Minute, reads)
		}
		expect.Equal(t, reads(), alone, "the server reads alone")
		stop()
		expect.Fails(t, <-ended, "it has started")
	}
}

func TestLastVoterStays(t *testing.T) {
	t.Parallel()
	addr := must.Get(cluster.FreePorts(1))(t)[0]
	i, _ := start(t, Options{ID: 1, Peers: map[uint32]string{1: addr}, PeerInsecure: true, DataDir: t.TempDir()})
	err := i.ChangeMember(t.Context(), change.Change{Op: "remove", ID: 1})
	expect.Equal(t, status.Of(err), status.Unsafe, "%v", err)
}

// A server reports that it serves only if its node serves and it admits clients.
func TestServerThatLetsNoClientsInDoesNotServe(t *testing.T) {
	t.Parallel()
	i, _ := start(t, Options{})
	for serving, reason := range map[bool]string{true: "", false: "starting"} {
		var s report.Status
		s.Serving = serving
		i.clusterStatus(&s, i.Node(), 0)
		expect.Equal(t, s.Serving, serving, "%v: serving", serving)
		expect.Equal(t, s.Reason, reason, "%v: reason", serving)
	}
}

func TestPathsOfASessionAreSorted(t *testing.T) {
	t.Parallel()
	expect.Equal(t, fmt.Sprint(sorted(map[int64][]string{3: {"/c", "/a", "/c"}, 2: {"/b"}})),
		"[{2 [/b]} {3 [/a /c]}]")
}

// The log of a server says why a client's change of the members was refused.
func TestRefusedReconfigIsLogged(t *testing.T) {
	t.Parallel()
	var log must.Text
	addr := must.Get(cluster.FreePorts(1))(t)[0]
	i, _ := start(t, Options{ID: 1, Peers: map[uint32]string{1: addr}, PeerInsecure: true, DataDir: t.TempDir(),
		LoneVoter: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for joining, why := range map[string]string{"no server": "no server",
		"server.300=127.0.0.1:1:2:observer;3": "an id is a number from 0 to 254"} {
		code, known := i.reconfigure(options.ReconfigRequest{Joining: joining, Version: -1, May: true})
		expect.Equal(t, code, jute.BadArguments, "%v, known: exit code", code)
		expect.That(t, known, "%v, known: %v", code, known)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		last := lines[len(lines)-1]
		expect.Has(t, last, `"reconfig refused" code=`, "last")
		expect.Has(t, last, why, "last")
	}
}
