// Package many holds many thousands of sessions on three servers, each with a
// lock, kills the leader, and looks that all of them are there again soon, that
// none was expired and no lock lost.
//
// ZLOCKD_MANY=10000 is how many sessions each server begins with; the clients
// are processes of their own, so that descriptors suffice. A server takes connections
// for four fifths of its descriptors, so with 20,000 (ulimit -n) a third more than
// 10,000 of them must fit there after the leader's end.
package many
