// Package server is a whole server in one process: its part in the cluster,
// its clients and its admin pages. It is what a program imports that should be a
// server itself; the command zlockd is such a program.
//
//	s, err := server.Start(ctx, server.Options{ClientAddr: ":2181"})
//	...
//	defer s.Close(ctx)
//
// [Start] returns when the server has joined its cluster, [Instance.Ready] when
// it serves clients. [Instance.Failed] tells of a server that cannot go on: it
// must be closed, and what is on disk after a restart is the truth.
// [Instance.Status] is what all admin pages show.
//
// The examples below are one server, three servers, and a server for a test;
// a test is better off with package zlocktest.
//
// Here are only the parts put together: the cluster is package raftfsm, the
// connections are package clients, what operators see is package admin.
package server
