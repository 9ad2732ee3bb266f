package sim

import (
	"context"
	"strings"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// fourth is the server that comes and goes.
const fourth = 4

// members adds a fourth server to the cluster and removes it again, over and
// over, until stop is closed. The cluster is left as it began.
func (c *cluster) members(stop <-chan struct{}) (rounds int) {
	pause := func(d time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(d):
			return true
		}
	}
	for pause(10 * time.Second) {
		if c.change(state.MemberChange{Op: "add", ID: fourth, Addr: peerAddrOf(fourth)}) != nil {
			continue
		}
		c.newDisk(fourth)
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			c.start(fourth)
		}()
		for tries := 0; tries < 30 && c.change(state.MemberChange{Op: "promote", ID: fourth}) != nil &&
			pause(time.Second); tries++ {
		}
		pause(20 * time.Second)
		c.removeFourth(stop)
		c.crash(fourth)
		<-joined
		c.crash(fourth) // if it had joined only now
		rounds++
	}
	return rounds
}

// removeFourth tries until the fourth server is no member any more. Once stop
// is closed it must succeed soon.
func (c *cluster) removeFourth(stop <-chan struct{}) {
	for left := 30; left > 0; {
		err := c.change(state.MemberChange{Op: "remove", ID: fourth})
		if err == nil || strings.Contains(err.Error(), "is not a member") {
			return
		}
		time.Sleep(time.Second)
		select {
		case <-stop:
			left--
		default:
		}
	}
	c.t.Error("R21: the fourth server could not be removed after the last fault")
}

// change asks some server for a change of membership.
func (c *cluster) change(m state.MemberChange) error {
	err := context.DeadlineExceeded
	for id := range c.ids() {
		i := c.server(id)
		if i == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		refused := i.Node().ChangeMember(ctx, m)
		cancel()
		if refused == nil {
			return nil
		}
		if strings.Contains(refused.Error(), "is not a member") || strings.Contains(refused.Error(),
			"is a member already") {
			return refused
		}
		err = refused
	}
	return err
}
