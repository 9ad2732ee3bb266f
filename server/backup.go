package server

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/zlockd/zlockd/server/backup"
	"github.com/zlockd/zlockd/server/report"
)

// backupSource returns the node, from which backups are taken. It is nil until the server has joined its
// cluster.
func (i *Instance) backupSource() backup.Source {
	if node := i.node.Load(); node != nil {
		return node
	}
	return nil
}

// cluster returns the name of this server's cluster. It returns "" until the server has joined the cluster.
func (i *Instance) cluster() string {
	if node := i.node.Load(); node != nil {
		return node.Status().Cluster
	}
	return ""
}

// restoreTarget returns the node, to which backups are restored. It is nil until the server has joined its
// cluster.
func (i *Instance) restoreTarget() backup.Target {
	if node := i.node.Load(); node != nil {
		return node
	}
	return nil
}

// addBackupPages adds the pages that take and restore backups.
func (i *Instance) addBackupPages(pages map[string]http.Handler) {
	h := &backup.Handler{Source: i.backupSource, Authorize: i.authorize(), Log: i.o.Logger}
	r := &backup.Restorer{Target: i.restoreTarget, Dir: i.o.DataDir, Authorize: i.authorize(), Log: i.o.Logger}
	pages["/commands/snapshot"], pages["/commands/snap"] = h, h
	pages["/commands/restore"], pages["/commands/rest"] = r, r
}

// backupTick is how often the server checks whether a backup is due.
const backupTick = 5 * time.Second

// takeBackups takes a backup in each interval, if the options name a directory for them.
func (i *Instance) takeBackups() {
	if i.o.BackupDir == "" {
		return
	}
	interval := cmp.Or(max(i.o.BackupInterval, 0), time.Hour)
	tick := time.NewTicker(min(backupTick, interval/10+1))
	i.taker = &backup.Taker{Dir: i.o.BackupDir, Interval: interval,
		Keep: cmp.Or(i.o.BackupKeep, backup.DefaultKeep), ID: i.o.ID, Cluster: i.cluster,
		Source: i.backupSource, Place: i.turn, Now: i.o.Now, Tick: tick.C, Log: i.o.Logger}
	i.wg.Go(func() {
		defer tick.Stop()
		i.taker.Run(i.ctx)
	})
}

// turn returns when it is this server's turn to take a backup: its place among the members, and their number.
func (i *Instance) turn() (rank, of int) {
	node := i.node.Load()
	if node == nil {
		return 0, 1
	}
	var ids []uint32
	for _, m := range node.Status().Members {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return max(slices.Index(ids, i.o.ID), 0), len(ids)
}

// backupStatus adds the state of the backups to a status.
func (i *Instance) backupStatus(s *report.Status, metrics bool) {
	if i.taker == nil {
		return
	}
	if n := i.taker.Notice(); n != "" {
		s.Notices = append(s.Notices, n)
	}
	if !metrics {
		return
	}
	st := i.taker.State()
	s.Measure("backup_age_seconds",
		"Age of the newest backup in --backup-dir; without one, the time since the start.",
		st.Age.Seconds())
	s.Measure("backups_total", "Backups taken.", float64(st.Taken))
	s.Measure("backups_failed_total", "Backups that failed.", float64(st.Failed))
}
