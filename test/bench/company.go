package main

import (
	"time"

	"github.com/zlockd/zlockd/test/wire"
)

// accompany() opens a session at each server, and pings once a second until the session is dropped. The
// measuring connections send no pings while they wait, and a follower of ZooKeeper 3.8 may leave a single
// request without an answer until another one arrives. These pings prevent that.
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
