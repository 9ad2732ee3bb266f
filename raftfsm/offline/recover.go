package offline

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/zlockd/zlockd/raftfsm/disk"
)

// Recovery makes a new cluster from a survivor of a cluster that lost its majority for good.
type Recovery struct {
	*Data
	dir string
}

// PlanRecovery reads a survivor's data directory.
func PlanRecovery(dir string) (*Recovery, error) {
	d, err := ReadData(dir)
	if err != nil {
		return nil, err
	}
	return &Recovery{d, dir}, nil
}

// Interrupted reports whether a Recovery of this directory was interrupted. If so, the caller only has to
// call Finish.
func Interrupted(dir string) bool { return disk.Interrupted(dir, oldDir) }

// Finish finishes an interrupted Recovery.
func Finish(dir string) error { return disk.FinishReplace(dir, oldDir) }

// oldDir is the subdirectory that keeps the old content of the directory.
const oldDir = "before-recover"

// Unconfirmed returns how many entries at the end of the log may never have been committed. Recovery keeps
// them, although perhaps no client has an answer to them.
func (r *Recovery) Unconfirmed() uint64 {
	if r.Last.Index < r.Known {
		return 0
	}
	return r.Last.Index - r.Known
}

// Servers returns the addresses of the members by id, as this server last knew them.
func (r *Recovery) Servers() map[uint32]string {
	addrs := map[uint32]string{}
	for _, s := range r.Members.Servers {
		if id, err := strconv.ParseUint(string(s.ID), 10, 32); err == nil {
			addrs[uint32(id)] = string(s.Address)
		}
	}
	if len(addrs) == 0 {
		maps.Copy(addrs, r.Identity.Peers)
	}
	return addrs
}

// Tell writes what the recovery may lose in the worst case.
func (r *Recovery) Tell(w io.Writer) {
	fmt.Fprintf(w, "Server %d of cluster %s (members: %d): its log ends with entry %d of term %d, zxid 0x%x.\n",
		r.Identity.Server, r.Identity.Cluster, len(r.Servers()), r.Last.Index, r.Last.Term, r.Zxid())
	if r.Torn != "" {
		fmt.Fprintf(w, "A write after that entry was interrupted (%s); it was never acknowledged.\n", r.Torn)
	}
	if n := r.Unconfirmed(); n > 0 && r.Known == 0 {
		fmt.Fprintf(w, "The log does not show which entries were committed. All entries are kept, although "+
			"the last ones may never have been acknowledged.\n")
	} else if n > 0 {
		fmt.Fprintf(w, "Entries up to %d were certainly committed. The last %d entries are kept too, although "+
			"they may never have been acknowledged.\n", r.Known, n)
	}
	when := "this server's last write"
	if r.LastTime > 0 {
		when = time.UnixMilli(r.LastTime).UTC().Format("2006-01-02 15:04:05.000 MST")
	}
	fmt.Fprintf(w, "At most these writes are lost: those after %s that the other servers acknowledged without "+
		"this server.\nCompare all survivors, and recover the one with the highest term, "+
		"then the highest entry.\n", when)
}

// Run makes a cluster of one server from the survivor. Sessions continue. Run keeps the old content in oldDir
// within the directory.
func (r *Recovery) Run(ctx context.Context, now int64) (*Made, error) {
	m := refound(r.State, true, now)
	f := disk.Founding{Server: r.Identity.Server, Cluster: m.Cluster, Index: 1, Term: 1,
		Addr: r.Servers()[r.Identity.Server]}
	return m, disk.Replace(r.dir, oldDir, r.Identity, f, func(w io.Writer) error {
		return WriteBackup(disk.Until(ctx, w), r.State)
	})
}

// Next returns the commands that add the other servers again, once they run with empty data directories.
func (r *Recovery) Next() (list []string) {
	servers, own := r.Servers(), r.Identity.Server
	for _, id := range slices.Sorted(maps.Keys(servers)) {
		if id != own {
			list = append(list, fmt.Sprintf("zlock member add %d %s", id, servers[id]))
		}
	}
	return list
}

// TellNext writes the commands that Next returns.
func (r *Recovery) TellNext(w io.Writer) {
	servers, own := r.Servers(), r.Identity.Server
	fmt.Fprintf(w, "The old content is in %s/%s.\n", r.dir, oldDir)
	if len(servers) < 2 {
		fmt.Fprintf(w, "Start the server as before.\n")
		return
	}
	fmt.Fprintf(w, "\n1. Start this server, %d, with its old flags: it serves alone.\n", own)
	fmt.Fprintf(w, "2. On each other server, move the data directory away and start the server with its "+
		"old flags.\n   The content of the old directories never returns to the cluster.\n")
	fmt.Fprintf(w, "3. For each of them:\n")
	for _, command := range r.Next() {
		fmt.Fprintf(w, "   %s\n", command)
	}
}
