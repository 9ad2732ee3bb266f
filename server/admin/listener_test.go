package admin

import (
	"net"
	"testing"
	"time"
)

func TestConnectionsOfTheAdminPortAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := LimitListener(inner)
	defer ln.Close()
	accepted := make(chan net.Conn, 2*maxConns)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	var first net.Conn
	for i := range maxConns + 1 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i < maxConns {
			first = <-accepted
		}
	}
	select {
	case <-accepted:
		t.Fatal("one too many")
	case <-time.After(50 * time.Millisecond):
	}
	first.Close()
	first.Close() // gives back one only
	<-accepted
	// Whoever waits for room hears of the end.
	ln.Close()
	for range accepted {
	}
}
