package peer

import (
	"context"
	"sync"
)

// Answer is what a server answered, or the error instead.
type Answer struct {
	Place
	Status Status
	Err    error
}

// AskAll puts one question to several servers at once. The channel gives each
// answer as it comes and is closed behind the last. When ctx ends the answers that
// are missing are errors; a caller that has heard enough ends ctx and goes on.
func (p *Port) AskAll(ctx context.Context, servers []Place, q Question) <-chan Answer {
	answers := make(chan Answer, len(servers))
	var asked sync.WaitGroup
	for _, at := range servers {
		asked.Go(func() {
			a := Answer{Place: at}
			a.Status, a.Err = p.Ask(ctx, at.ID, at.Addr, q)
			answers <- a
		})
	}
	go func() {
		asked.Wait()
		close(answers)
	}()
	return answers
}
