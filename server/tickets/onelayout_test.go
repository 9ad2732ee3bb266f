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

// A server with --one-layout opens no ticket beside a contender of kazoo's, and says that a lock of another
// kind is there. So does this package's client, which is told of a missing right only.
func TestOneLayoutRefusesTickets(t *testing.T) {
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
