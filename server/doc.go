// Package server is a whole server in one process: its part in the cluster, its clients and its admin pages.
// A program that imports it can be a server itself, as the command zlockd is.
//
//	s, err := server.Start(ctx, server.Options{ClientAddr: ":2181"})
//	...
//	defer s.Close(ctx)
//
// [Start] returns when the server has joined its cluster, and [Instance.Ready] returns when the server serves
// clients. [Instance.Failed] reports that the server cannot continue. The program must then close it; a new
// start reads the true state from the disk. All admin pages show [Instance.Status].
//
// The examples below run one server, three servers, and a server for a test. For tests, package zlocktest is
// simpler.
//
// This package only puts the parts together: package raftfsm is the part in the cluster, package clients has
// the connections, and package admin has the pages for operators.
package server
