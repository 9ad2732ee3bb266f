package main

import (
	"time"

	"github.com/zlockd/zlockd/test/wire"
)

// accompany() opens a session at each server. Like a client without work, the session pings once a second
// until it is dropped. The measuring connections do not ping while they wait, and a follower of ZooKeeper 3.8
// may leave a single request unanswered until another one arrives.
func accompany(addrs []string) ([]*wire.Pipe, error) {
	all, err := dialAll(addrs, len(addrs), sessionTimeout)
	for _, c := range all {
		go func() {
			for c.Ping(); c.Flush() == nil; c.Ping() { // leave the few bytes of the answers unread
				time.Sleep(time.Second)
			}
		}()
	}
	return all, err
}
