// Package server is a whole server in one process: its part in the cluster, its clients and its
// admin pages. A program imports it to be a server itself, as the command zlockd does.
//
//	s, err := server.Start(ctx, server.Options{ClientAddr: ":2181"})
//	...
//	defer s.Close(ctx)
//
// [Start] returns when the server has joined its cluster, [Instance.Ready] when it serves clients.
// [Instance.Failed] reports that the server cannot continue: close it. After a restart it reads the true
// state from its disk. All admin pages show [Instance.Status].
//
// The examples below are one server, three servers, and a server for a test;
// a test is better off with package zlocktest.
//
// This package only puts the parts together: the cluster is package raftfsm, the connections are
// package clients, what operators see is package admin.
package server
