package tickets_test

import (
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	zlock "github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server with --one-layout opens no ticket next to a contender of kazoo, and says that there is a lock of
// another kind. It also refuses a contender of package client. The protocol can only say that a right is
// missing, but the client returns ErrMixedLayout.
func TestOneLayoutRefusesTickets(t *testing.T) {
	t.Parallel()
	i := start(t, func(o *server.Options) { o.OneLayout = true })
	c := caller{t, i.TicketAddr()}
	c.expect(1, 201, "POST /v1/locks/one")
	must.Await(t, "the setting has effect", time.Minute, func() bool {
		_, err := client(t, i).Create("/one/6f1ed002ab5c4b1fa0ce75ab2e1ed1a2__lock__", nil,
			jute.FlagEphemeralSequential)
		return err != nil
	})
	other := client(t, i)
	must.Get(other.Create("/kz", nil, 0))(t)
	must.Get(other.Create("/kz/6f1ed002ab5c4b1fa0ce75ab2e1ed1a2__lock__", nil, jute.FlagEphemeralSequential))(t)
	expect.Equal(t, c.expect(2, 409, "POST /v1/locks/kz").Error, "mixed")
	c.expect(2, 202, "POST /v1/locks/kz?layout=kazoo")
	ours := must.Get(zlock.Dial(t.Context(), i.ClientAddr()))(t)
	defer func() { expect.OK(t, ours.Close(t.Context())) }()
	_, err := ours.Mutex("/kz").TryLock(t.Context())
	expect.Is(t, err, zlock.ErrMixedLayout)
	page := must.Get(http.Get("http://" + i.AdminAddr() + "/metrics"))(t)
	defer page.Body.Close()
	text := must.Get(io.ReadAll(page.Body))(t)
	counted := regexp.MustCompile(`\nzlockd_contenders_refused_total ([1-9]\d*)\n`)
	expect.That(t, counted.Match(text), "no refused request is counted in\n%s", text)
}

// With --one-layout, a server does not allow a queue and permits at one path: it refuses a contender of a
// queue beside a ticket's permits, and a ticket for permits beside a contender. It allows Curator's permits
// beside a ticket's.
func TestOneLayoutBesidePermitsOfTickets(t *testing.T) {
	t.Parallel()
	i := start(t, func(o *server.Options) { o.OneLayout = true })
	c := caller{t, i.TicketAddr()}
	other := client(t, i)
	const curator, kazoo = "_c_6f1ed002-ab5c-4b1f-a0ce-75ab2e1ed1a2-", "6f1ed002ab5c4b1fa0ce75ab2e1ed1a2"
	create := func(path string) error {
		_, err := other.Create(path, nil, jute.FlagEphemeralSequential)
		return err
	}
	c.expect(1, 201, "POST /v1/locks/s?mode=permit&limit=3")
	must.Await(t, "the setting has effect", time.Minute, func() bool {
		return create("/s/"+kazoo+"__lock__") != nil
	})
	expect.That(t, create("/s/"+curator+"lock-") != nil, "a contender of a mutex beside a permit is taken")
	expect.OK(t, create("/s/leases/"+curator+"lease-"), "a permit of Curator's beside a ticket's")
	c.expect(2, 201, "POST /v1/locks/s?mode=permit")
	c.expect(3, 202, "POST /v1/locks/s?mode=permit") // three permits are taken, so the ticket waits

	must.Get(other.Create("/m", nil, 0))(t)
	must.OK(t, create("/m/"+curator+"lock-"))
	expect.Equal(t, c.expect(4, 409, "POST /v1/locks/m?mode=permit&limit=2").Error, "mixed")
}
