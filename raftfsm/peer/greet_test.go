package peer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// host is a Host that admits whom it is told to.
type host struct {
	admit error
	asked []*Question
	said  error
	links chan uint32

	replicates atomic.Bool
	term       uint64
}

func (h *host) Greeting(uint32) Greeting {
	return Greeting{Cluster: "c", Incarnation: "i"}
}
func (h *host) Admit(Purpose, *Greeting) error { return h.admit }
func (h *host) ServeLink(c net.Conn, g *Greeting) {
	h.links <- g.From
	io.Copy(io.Discard, c)
}
func (h *host) Answer(_ context.Context, q *Question) (Told, error) {
	h.asked = append(h.asked, q)
	return Told{All: map[uint32]status.Member{7: {Progress: status.Progress{Applied: 70}}}}, h.said
}
func (h *host) Status(*Greeting) Status       { return Status{ID: 1, Cluster: "c"} }
func (h *host) SnapshotSent()                 {}
func (h *host) Stored(uint32, uint64, uint64) {}

func (h *host) Replicates(uint64, uint32, string) bool { return h.replicates.Load() }
func (h *host) HasApplied(_, _ uint64) bool            { return false }
func (h *host) Term() uint64                           { return h.term }
func (h *host) AddrOf(id uint32) string                { return "" }
func (h *host) Instead(id uint32, addr string) string  { return addr }

func open(t *testing.T, id uint32, h Host) *Port {
	t.Helper()
	p := must.Get(Open(t.Context(), Options{ID: id, Addr: "127.0.0.1:0", Host: h,
		Logger: slog.New(slog.DiscardHandler),
		Listen: func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) },
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}}))(t)
	p.Serve()
	t.Cleanup(p.Close)
	return p
}

// ended waits for the end of a connection without a byte before it.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the connection goes on: %d bytes, %v", n, err)
	}
}

func TestWhoIsRefusedIsToldWhy(t *testing.T) {
	h := &host{admit: errors.New("you are a stranger")}
	one, two := open(t, 1, h), open(t, 2, &host{})
	_, err := two.Call(t.Context(), Ask, 1, one.Addr())
	expect.That(t, errors.Is(err, ErrRefused) && strings.Contains(err.Error(), "you are a stranger"),
		"refused: %v", err)
}

// What is no greeting is not let in and does not keep a connection.
func TestWhatIsNoGreetingIsClosed(t *testing.T) {
	h := &host{links: make(chan uint32, 10)}
	p := open(t, 1, h)
	for _, text := range []string{"L\x00\x00\x00\x02[]", "L\x00\x00\x00\x01{", "L\x7f\x00\x00\x00"} {
		c := must.Get(net.Dial("tcp", p.Addr()))(t)
		defer c.Close()
		c.Write([]byte(text))
		expect.Is(t, readAnswer(c), ErrRefused, "%q", text)
		ended(t, c)
	}
	select {
	case from := <-h.links:
		t.Errorf("server %d was served", from)
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	expect.Equal(t, len(p.conns), 0, "connections kept")
}

func TestQuestionsAreAnswered(t *testing.T) {
	h := &host{}
	one := open(t, 1, h)
	two := open(t, 2, &host{})
	st, err := two.Ask(t.Context(), 1, one.Addr(), Question{Form: &Formation{Cluster: "new"}})
	expect.That(t, err == nil && st.ID == 1 && st.Cluster == "c", "%+v, %v", st, err)
	expect.That(t, len(h.asked) == 1 && h.asked[0].Form != nil && h.asked[0].Form.Cluster == "new",
		"asked %+v", h.asked)
	h.said = errors.New("I do not want to")
	st, err = two.Ask(t.Context(), 1, one.Addr(), Question{})
	expect.That(t, err != nil && strings.Contains(err.Error(), "I do not want to") && st.ID == 1,
		"%+v, %v", st, err)
}

func TestCloseEndsEveryConnection(t *testing.T) {
	h := &host{links: make(chan uint32, 1)}
	one, two := open(t, 1, h), open(t, 2, &host{})
	c := must.Get(two.Call(t.Context(), Link, 1, one.Addr()))(t)
	defer c.Close()
	expect.Equal(t, <-h.links, 2, "a link of server")
	done := make(chan struct{})
	go func() { one.Close(); close(done) }()
	ended(t, c)
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("Close does not return")
	}
	if c, err := two.Call(t.Context(), Link, 1, one.Addr()); err == nil {
		c.Close()
		t.Error("a closed port lets others in")
	}
}
