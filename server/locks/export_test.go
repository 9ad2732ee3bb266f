package locks

// Limits of the work under one hold of the state lock.
const (
	NodesAtOnce    = pieceSize
	ChildrenAtOnce = childrenAtOnce
	PathBytes      = pathBytes
)

// Keep sets the number of contenders that a scan may keep.
func (s *Scan) Keep(most int) { s.room = most }

// KeepPaths sets the number of bytes of paths that a scan may keep.
func (s *Scan) KeepPaths(most int) { s.paths = most }

// Groups returns the directories that have contenders.
func (s *Scan) Groups() []*group { return s.order }

// Read returns how many nodes, and how many bytes of directories' paths, were read up to now.
func (s *Scan) Read() (nodes, bytes int) {
	for _, g := range s.order {
		bytes += len(g.Path)
	}
	return s.Total, bytes
}

// Read returns how many children were read up to now.
func (a *At) Read() int {
	n := a.OtherCount
	for _, g := range a.groups {
		n += g.Total
	}
	return n
}
