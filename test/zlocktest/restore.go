package zlocktest

import (
	"bytes"
	"context"
)

// Backup returns the server's whole state at this moment, for Restore.
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

// Restore replaces the server's state by a backup, as zlock restore does with --keep-sessions:
// sessions in the backup go on.
func (s *Server) Restore(backup []byte) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := s.instance.Node().Restore(ctx, bytes.NewReader(backup), int64(len(backup)), true); err != nil {
		s.t.Fatalf("zlocktest: restore: %v", err)
	}
}
