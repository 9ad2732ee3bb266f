package main

// points() returns all points, in the order of the report. The numbers are the ratios that zlockd must reach.
func points(c *config) []point {
	const (
		lockHelp   = "lock cycle: create ephemeral sequential, list, delete; every slot has a lock of its own"
		createHelp = "create a persistent node of 100 bytes"
		setHelp    = "write 100 bytes to a node"
		getHelp    = "read 100 bytes"
		existsHelp = "ask whether a node exists"
		mixedHelp  = "four reads of 100 bytes to one write"
	)
	list := []point{
		throughput("lock", 1, 1, 1.7, 1.3, lockHelp, buildLock),
		throughput("lock", 16, 1, 1.8, 0, lockHelp, buildLock),
		throughput("lock", 64, 1, 1.8, 2.5, lockHelp, buildLock),
		throughput("lock", 16, 16, 2.5, 0, lockHelp, buildLock),
		throughput("create", 1, 1, 1.6, 1.1, createHelp, buildCreate),
		throughput("create", 64, 1, 1.7, 2, createHelp, buildCreate),
		throughput("create", 16, 16, 2.2, 2, createHelp, buildCreate),
		throughput("set", 1, 1, 1.6, 1.1, setHelp, onNodes(setWork)),
		throughput("set", 16, 1, 1.7, 0, setHelp, onNodes(setWork)),
		throughput("set", 64, 1, 1.7, 2, setHelp, onNodes(setWork)),
		throughput("set", 256, 1, 1.5, 0, setHelp, onNodes(setWork)),
		throughput("set", 16, 16, 2.2, 2, setHelp, onNodes(setWork)),
		throughput("get", 1, 1, 2.5, 0, getHelp, onNodes(getWork)),
		throughput("get", 16, 1, 1.8, 0, getHelp, onNodes(getWork)),
		throughput("get", 64, 1, 1.4, 2, getHelp, onNodes(getWork)),
		throughput("get", 16, 16, 4, 0, getHelp, onNodes(getWork)),
		throughput("exists", 1, 1, 2.5, 0, existsHelp, onNodes(existsWork)),
		throughput("exists", 64, 1, 1.4, 0, existsHelp, onNodes(existsWork)),
		throughput("exists", 16, 16, 4, 0, existsHelp, onNodes(existsWork)),
		throughput("mixed", 64, 1, 1.6, 0, mixedHelp, onNodes(mixedWork)),
		throughput("mixed", 16, 16, 2.5, 0, mixedHelp, onNodes(mixedWork)),
		throughput("create", 16, 64, 0, 0, createHelp, buildCreate),
		handoff(10, 1.7), handoff(100, 1.7),
		herd(100, 1.7),
		fanout(1000, 1.4),
		answer(1000, 1),
		churn(16, 2),
		expiry(c.sessions, 4),
		readsBusy(16, 2),
		failover("failover", "the leader", 1.4),
		failover("voter-dies", "a voter that follows", 0),
		startup(),
		startupDev(),
		startupEmbedded(),
		idleTime(),
		idleMemory(),
		sessionMemory(c.sessions),
		watchMemory(c.watches),
		znodeMemory(c.znodes),
		lockMemory(c.znodes),
		second(),
		restart(c.znodes),
		snapshots(c.znodes),
	}
	// These points take long. Run them only by name.
	for _, p := range []point{handoff(1000, 1.5), herd(1000, 1.7), large(c.znodes)} {
		if c.selection != "" && p.matches(c.selection) {
			list = append(list, p)
		}
	}
	out := list[:0]
	for _, p := range list {
		if p.matches(c.selection) && (p.only == 0 || p.only == min(c.nodes, 3)) {
			out = append(out, p)
		}
	}
	return out
}
