//go:build !windows

package run

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/cmd/zlock/internal/ticket"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// While the machine sleeps, or its host pauses it, the ticket ends. No timer has run in that time. zlock
// must notice it from its clocks, and end COMMAND without waiting for the next renewal.
func TestTicketEndsWhileTheMachineSleeps(t *testing.T) {
	for name, sleep := range map[string]func(*reading){
		"the machine sleeps": func(r *reading) { r.boot += time.Hour },
		"its host pauses it": func(r *reading) { r.wall = r.wall.Add(time.Hour) },
		"a clock is set back, too": func(r *reading) {
			r.boot, r.wall = r.boot+time.Hour, r.wall.Add(-time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var slept atomic.Bool
			renewed := make(chan struct{}, 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, `{"v":1,"held":true,"token":"7","ttlMs":600000,"safeMs":480000}`)
				renewed <- struct{}{}
			}))
			defer server.Close()
			k := must.Get(ticket.NewCaller(server.URL, "", ticket.NewSecret(), ""))(t)
			h := &ticketHold{Asker: &ticket.Asker{Caller: k, Path: "/l"}, token: "7", lost: make(chan struct{}),
				now: func() reading {
					r := readClocks()
					if slept.Load() {
						sleep(&r)
					}
					return r
				}}
			h.renewed(&ticket.Answer{Safe: 480_000}, h.now())
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go h.keep(ctx)
			<-renewed
			expect.OK(t, h.Err(), "while it lasts")
			slept.Store(true)
			expect.That(t, h.Until().Before(time.Now()), "the guard is told that it lasts until %v", h.Until())
			select {
			case <-h.lost:
			case <-time.After(time.Minute):
				t.Error("the hold is not lost")
			}
		})
	}
}
