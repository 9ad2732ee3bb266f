package main

import (
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/test/cluster"
)

// The type received is the number of requests that the servers report as received, including heartbeats and
// the requests of other clients.
type received struct {
	sum   int64
	asked int64 // how many of these requests asked for the number; 0: the sum is unknown
}

// askReceived asks all servers for the number.
func askReceived(servers string) received {
	var r received
	for s := range strings.SplitSeq(servers, ",") {
		_, text, _ := strings.Cut(cluster.Word(s, "srvr"), "\nReceived: ")
		number, _, _ := strings.Cut(text, "\n")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return received{}
		}
		r.sum, r.asked = r.sum+n, r.asked+1
	}
	return r
}

// since() returns the number of requests per acquisition between two calls of askReceived(); nil if unknown.
func (r received) since(before received, acquired int) *float64 {
	if r.asked == 0 || before.asked == 0 || acquired == 0 || r.sum < before.sum {
		return nil
	}
	each := float64(r.sum-before.sum-r.asked) / float64(acquired)
	return &each
}
