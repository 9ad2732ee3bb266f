// Package members changes the members of a running cluster. Raft itself changes one server at a time, and
// does not wait until that server follows. The package has two ways to make a change:
//
//   - [Run] does an operator's job, which is about one server: it adds, replaces, promotes or removes the
//     server, or hands it the leadership. A job reports its steps and waits as long as there is progress. It
//     continues when the leader changes. A job that fails undoes nothing: the same job, started again,
//     continues.
//   - [Carry] does a client's reconfig, which may be about many servers: goal.go turns the client's words
//     into a configuration, plan.go turns the configuration into changes, and carry.go makes them. Clients
//     see all of them as one change. If the servers that join are not ready in time, Carry undoes what it
//     has begun.
//
// Each change is a [change.Change], and [change.Safe] decides for both ways, and for the leader, whether it
// leaves a majority that follows. Decision 19 says why the two ways do not share one plan.
package members
