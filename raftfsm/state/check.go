package state

import (
	"io"

	"github.com/zlockd/zlockd/tree"
)

// Backup describes the content of a backup.
type Backup struct {
	Cluster  string
	Zxid     int64
	Nodes    int
	Sessions int
	Bytes    int64 // as Tree.Bytes counts them
}

// CheckBackup reads a backup to its end and describes it.
func CheckBackup(r io.Reader) (*Backup, error) {
	s, err := OpenStream(r)
	if err != nil {
		return nil, err
	}
	b := &Backup{Cluster: s.ClusterID(), Zxid: s.Zxid(), Sessions: s.Sessions().Len()}
	reader := tree.NewReader(func(path string, i *tree.Info) error {
		b.Nodes++
		b.Bytes += int64(len(path) + len(i.Data))
		return nil
	})
	if err := s.Nodes(reader.Add); err != nil {
		return nil, err
	}
	return b, reader.Done()
}
