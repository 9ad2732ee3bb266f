package tickets_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/must"
)

// BenchmarkPoll asks about a ticket that waits and about a ticket that holds. The cluster has a few other
// tickets, or as many as it may have.
func BenchmarkPoll(b *testing.B) {
	for _, tickets := range []int{10, 9_890} {
		b.Run(fmt.Sprint(tickets+10), func(b *testing.B) {
			tokens := bearers(b)
			i := start(b, func(o *server.Options) { o.TicketTokens = tokens }).TicketAddr()
			http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 10
			poll := func(n int, what string, codes ...int) {
				a := must.Get(ask(b.Context(), i, n, what, bearer))(b)
				for _, code := range codes {
					if a.code == code {
						return
					}
				}
				b.Fatalf("%s: %d %s", what, a.code, a.body)
			}
			for n := range tickets + 10 {
				poll(n+1, fmt.Sprintf("POST /v1/locks/many/%d?ttl=1h", n/10), 201, 202)
			}
			b.Run("held", func(b *testing.B) {
				for b.Loop() {
					poll(1, "POST /v1/locks/many/0", 200)
				}
			})
			b.Run("queued", func(b *testing.B) {
				for b.Loop() {
					poll(10, "POST /v1/locks/many/0", 202)
				}
			})
		})
	}
}
