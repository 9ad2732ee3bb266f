package server

import (
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/observe"
)

// clientOptions returns the part of the options that is about clients.
func (i *Instance) clientOptions() options.Options {
	o := &i.o
	c := options.Options{
		ID:                o.ID,
		MinSessionTimeout: o.MinSessionTimeout,
		MaxSessionTimeout: o.MaxSessionTimeout,
		MaxFrame:          o.MaxFrame,
		MaxConnsPerAddr:   o.MaxConnsPerAddr,
		MaxConns:          o.MaxConns,
		MaxSessions:       o.MaxSessions,
		MaxAddrSessions:   o.MaxAddrSessions,
		Super:             i.super(),
		SASL:              o.SASL,
		EnsembleNames:     o.EnsembleNames,
		RequireAuth:       o.RequireAuth,
		SkipACL:           o.SkipACL,
		LinearizableReads: o.LinearizableReads,
		TLSConfig:         o.ClientTLS,
		Follow:            i.follow(),
		Logger:            o.Logger,
		Rand:              o.Rand,
		Now:               o.Now,
	}
	if o.Audit != nil {
		c.Ended = o.Audit.Ended
	}
	if o.Reconfig {
		c.Reconfigure = i.reconfigure
	}
	return c
}

// raftOptions returns the part of the options that is about the cluster.
func (i *Instance) raftOptions() raftfsm.Options {
	o := &i.o
	r := raftfsm.Options{
		ID:                o.ID,
		DataDir:           o.DataDir,
		LogStore:          o.LogStore,
		SnapshotEntries:   o.SnapshotEntries,
		SnapshotBytes:     o.SnapshotBytes,
		SnapshotInterval:  o.SnapshotInterval,
		SnapshotRetain:    o.SnapshotRetain,
		DiskReserve:       o.DiskReserve,
		Peers:             o.Peers,
		Observers:         o.Observers,
		Words:             o.PeerWords,
		PeerListen:        o.PeerListen,
		PeerTLS:           i.peerTLS,
		PeerInsecure:      o.PeerInsecure,
		ClientAddr:        dialable(i.client),
		Release:           o.Version,
		HeartbeatTimeout:  o.HeartbeatTimeout,
		ReadOnly:          o.ReadOnlyMode,
		MinSessionTimeout: i.c.MinSessionTimeout,
		MaxNodes:          o.MaxNodes,
		MaxBytes:          o.MaxBytes,
		SweepInterval:     o.SweepInterval,
		EnforceQuota:      o.EnforceQuota,
		NoTTL:             o.NoTTL,
		OneLayout:         o.OneLayout,
		Observer:          i.observer(),
		Measures:          measures(i.Clients.Metrics()),
		Waiting:           func(what string) { i.waits.Store(&what) },
		Logger:            o.Logger,
		Rand:              i.c.Rand,
		Now:               o.Now,
	}
	if o.Test != nil {
		o.Test(&r)
	}
	then := r.Fatal
	r.Fatal = func(err error) {
		i.cancel()
		i.Clients.CutOff()
		i.stopped()
		if then != nil {
			then(err)
		}
	}
	return r
}

// follow returns a function that passes each request to the audit log and to the log of slow requests. It is
// nil if there is neither.
func (i *Instance) follow() func(*observe.Request) {
	audit := i.o.Audit
	i.slow.Bound, i.slow.Log = i.o.SlowRequest, i.o.Logger
	if audit == nil && i.slow.Bound == 0 {
		return nil
	}
	return func(r *observe.Request) {
		if audit != nil {
			audit.Request(r)
		}
		if i.slow.Bound > 0 {
			i.slow.Request(r)
		}
	}
}

// measures() returns the functions by which the package raftfsm reports what it measures.
func measures(m *metrics.Set) raftfsm.Measures {
	return raftfsm.Measures{
		EntryBytes:        func(v int64) { m.Proposals.Observe(v); m.ProposalCount.Add(1) },
		StreamWaiting:     m.QueueSize.Observe,
		EntryRequests:     m.BatchSize.Observe,
		CommitTime:        m.AckLatency.Observe,
		ProposalTime:      m.ProposalLatency.Observe,
		PropagationTime:   m.PropagationLatency.Observe,
		Elections:         func(v int64) { m.Elections.Add(v) },
		ElectionTime:      m.ElectionTime.Observe,
		LeaderUnavailable: m.LeaderUnavailable.Observe,
		Unavailable:       m.Unavailable.Observe,
		SnapshotWriteTime: m.SnapshotWrite.Observe,
		SnapshotReadTime:  m.SnapshotRead.Observe,
		SnapshotSent:      func(v int64) { m.SnapshotsSent.Add(v) },
		ReplayEntries:     m.ReplayEntries.Observe,
		ReplayTime:        m.ReplayTime.Observe,
	}
}
