package zlocktest

import (
	"bytes"
	"context"
)

// Backup returns everything the server holds at this moment, for Restore.
func (s *Server) Backup() []byte {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var b bytes.Buffer
	backup, err := s.instance.Node().Backup(ctx)
	if err == nil {
		defer backup.Close()
		err = backup.Write(&b)
	}
	if err != nil {
		s.t.Fatalf("zlocktest: backup: %v", err)
	}
	return b.Bytes()
}

// Restore puts a backup in the place of what the server holds, as zlock restore does with
// --keep-sessions: sessions that are in the backup go on.
func (s *Server) Restore(backup []byte) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := s.instance.Node().Restore(ctx, bytes.NewReader(backup), int64(len(backup)), true); err != nil {
		s.t.Fatalf("zlocktest: restore: %v", err)
	}
}
