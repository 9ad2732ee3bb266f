package golden

import (
	"encoding/hex"

	"github.com/zlockd/zlockd/jute"
)

// Deviations are the answers of zlockd that differ from the recorded ones. In each case the recorded 3.8.0
// shows a defect, or 3.9 behaves differently and zlockd follows 3.9.
var Deviations = []Deviation{
	{
		Vector: "handshake/reconnect_wrong_passwd", Step: 9,
		Reason: "a wrong password must not throw the rightful connection out (wire, section 3.3)",
		Want:   []Step{request("A", jute.XidPing, jute.OpPing), reply("A", jute.XidPing, jute.OK)},
	},
	{
		Vector: "handshake/reconnect_wrong_passwd", Step: 12,
		Reason: "the connection that was not thrown out is closed when the session is attached to another one",
		Want:   []Step{recorded, {Do: "closed_by_server", Conn: "A"}},
	},
	{
		Vector: "multi/multi_create2", Step: 4,
		Reason: "create2 in a multi answers with type 15, path and Stat, as in 3.9 (wire, section 9)",
		Want:   []Step{multiCreate2("A", 1, "/mu_c2", 1)},
	},
	{
		Vector: "multi/multi_bad_flags", Step: 4,
		Reason: "illegal create flags make the whole multi undecodable, as in 3.9 (semantics, section 8)",
		Want:   []Step{reply("A", 1, jute.MarshallingError)},
	},
	{
		Vector: "multi/multi_null_path", Step: 4,
		Reason: "nothing follows a reply header with an error (wire, section 4)",
		Want:   []Step{reply("A", 1, jute.MarshallingError)},
	},
	{
		Vector: "multi/multiread_with_write_op", Step: 4,
		Reason: "nothing follows a reply header with an error (wire, section 4)",
		Want:   []Step{reply("A", 1, jute.MarshallingError)},
	},
	{
		Vector: "read/check_opcode", Step: 6,
		Reason: "check outside a multi is not implemented; the recorded server forgets to answer (wire, section " +
			"13)",
		Want: []Step{reply("A", 2, jute.Unimplemented)},
	},
	{
		Vector: "read/check_opcode", Step: 8,
		Reason: "check outside a multi is not implemented (wire, section 13)",
		Want:   []Step{reply("A", 3, jute.Unimplemented)},
	},
	{
		Vector: "read/check_opcode", Step: 10,
		Reason: "check outside a multi is not implemented (wire, section 13)",
		Want:   []Step{reply("A", 4, jute.Unimplemented)},
	},
	{
		Vector: "readonly/ro_session", Step: 6,
		Reason: "a cluster that has not formed has no members yet: its servers agree on the members when they " +
			"form it",
		Want: []Step{frame("recv", "A",
			jute.AppendStat(jute.AppendBuffer(jute.AppendReplyHeader(nil, 2, 0, jute.OK), []byte{}), &jute.Stat{
				Aversion: -1}))},
	},
	{
		Vector: "session/create_session_opcode_from_client", Step: 4,
		Reason: "createSession from a client is an unknown operation (wire, section 13)",
		Want:   []Step{unknown("A", 1), {Do: "closed_by_server", Conn: "A"}},
	},
	{
		Vector: "watches/persistent_plus_oneshot", Step: 13,
		Reason: "a persistent watch survives a one-shot watch on the same path, as in 3.9 (watches, section 2)",
		Want:   []Step{event("A", jute.EventDataChanged, "/po"), recorded},
	},
	{
		Vector: "watches/persistent_plus_oneshot", Step: 15,
		Reason: "a persistent watch survives a one-shot watch on the same path, as in 3.9 (watches, section 2)",
		Want:   []Step{event("A", jute.EventDataChanged, "/po"), recorded},
	},
	{
		Vector: "watches/remove_watches_persistent", Step: 10,
		Reason: "type 4 names persistent watches since 3.9 (watches, section 6)",
		Want:   []Step{reply("A", 4, jute.OK)},
	},
	{
		Vector: "watches/remove_watches_persistent", Step: 12,
		Reason: "the watch is gone already, see the step before",
		Want:   []Step{reply("A", 5, jute.NoWatcher)},
	},
	{
		Vector: "watches/check_watches_other_connection", Step: 11,
		Reason: "checkWatches asks for watches of the calling connection, as in 3.9 (watches, section 6)",
		Want:   []Step{reply("A", 2, jute.NoWatcher)},
	},
	{
		Vector: "watches/add_watch_mode_switch", Step: 11,
		Reason: "persistent and recursive watches of one path live side by side, as in 3.9 (watches, section 2)",
		Want:   []Step{event("A", jute.EventChildrenChanged, "/ams"), recorded},
	},
	{
		Vector: "watches/add_watch_mode_switch", Step: 14,
		Reason: "persistent and recursive watches of one path live side by side, as in 3.9 (watches, section 2)",
		Want:   []Step{event("A", jute.EventChildrenChanged, "/ams"), recorded},
	},
}

// In a deviation, {"do": "recorded"} stands for the recorded step that the deviation replaces.
var recorded = Step{Do: "recorded"}

// frame() returns a step with a frame: the length of b, and b.
func frame(do, conn string, b []byte, volatile ...Range) Step {
	f, at := jute.BeginFrame(nil)
	f = append(f, b...)
	jute.EndFrame(f, at)
	text := hex.EncodeToString(f)
	return Step{Do: do, Conn: conn, Hex: &text, Volatile: volatile}
}

// request() returns a request without a record.
func request(conn string, xid int32, op jute.OpCode) Step {
	return frame("send", conn, jute.AppendInt(jute.AppendInt(nil, xid), int32(op)))
}

// reply() returns a reply without a body.
func reply(conn string, xid int32, code jute.ErrCode) Step {
	return frame("recv", conn, jute.AppendReplyHeader(nil, xid, 0, code), Range{8, 8, "zxid", "ge", ""})
}

// unknown() returns the reply to an unknown operation.
func unknown(conn string, xid int32) Step {
	return frame("recv", conn, jute.AppendReplyHeader(nil, xid, -1, jute.Unimplemented))
}

func event(conn string, t jute.EventType, path string) Step {
	return frame("recv", conn, jute.AppendEventFrame(nil, -1, t, path)[4:])
}

// multiCreate2 returns the reply to a multi of one create2 with data of `size` bytes.
func multiCreate2(conn string, xid int32, path string, size int32) Step {
	b := jute.AppendReplyHeader(nil, xid, 0, jute.OK)
	b = jute.AppendMultiHeader(b, jute.OpCreate2, false, jute.OK)
	b = jute.AppendString(b, path)
	st := 4 + len(b)
	b = jute.AppendStat(b, &jute.Stat{DataLength: size})
	b = jute.AppendMultiHeader(b, jute.OpError, true, -1)
	zxid := func(off int) Range { return Range{off, 8, "zxid", "eq", "zxid#1"} }
	time := func(off int) Range { return Range{off, 8, "time", "eq", "time#1"} }
	return frame("recv", conn, b, zxid(8), zxid(st), zxid(st+8), time(st+16), time(st+24), zxid(st+60))
}
