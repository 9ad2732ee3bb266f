package manage

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
)

const (
	memberPoll   = 200 * time.Millisecond
	memberSilent = 20 * time.Second // a server that sends no line for this long counts as lost
)

// memberJob starts a job of the server and shows its steps. If the connection is lost, zlock asks again, and
// the job continues where it was.
func memberJob(ctx context.Context, c *call.Call, admin connect.Admin, j change.Job,
	patience time.Duration) error {
	line := call.NewStatusLine(c.App)
	defer line.End()
	var heard time.Time
	for {
		err := runJob(ctx, admin, j, func(s change.Step) {
			heard = time.Now()
			if s.Rest != nil {
				j = *s.Rest
			}
			switch s.Kind {
			case "started":
			case "":
				line.End()
				c.Say("%s", s.Text)
			default:
				line.Tell(s.Kind, s.Text)
			}
		})
		lost := cli.HasCode(err, call.ExitNoSession) || status.Of(err) == status.Interrupted
		// Give up at once if no server has ever answered: the address is probably wrong.
		if !lost || heard.IsZero() || time.Since(heard) >= patience || ctx.Err() != nil {
			return err
		}
		j.Again = true
		line.Tell("lost", "the connection to the server is lost; zlock asks the server again")
		if err := call.Sleep(ctx, memberPoll); err != nil {
			return err
		}
	}
}

// runJob starts a job and calls step() for each step that the server reports. The last line of the answer is
// the result, not a step.
func runJob(ctx context.Context, admin connect.Admin, j change.Job, step func(change.Step)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(memberSilent, func() { cancel(errors.New("it is silent")) })
	defer silent.Stop()
	reply, err := admin.Open(ctx, http.MethodPost, "/members", j)
	if err != nil {
		return err
	}
	defer reply.Close()
	for lines := json.NewDecoder(reply); ; silent.Reset(memberSilent) {
		var s change.Step
		switch err := lines.Decode(&s); {
		case err != nil:
			return cli.Exitf(call.ExitNoSession,
				"the connection to the admin listener ended: %w; the same command continues the job", err)
		case s.Done && s.Err() != nil:
			return &cli.ExitError{Code: call.ExitNo, Err: s.Err()}
		case s.Done:
			return nil
		}
		step(s)
	}
}
