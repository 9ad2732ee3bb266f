package recipe

import "strings"

// Names of children that make a directory a lock of another kind.
const (
	SimpleName  = "lock"   // the one node of the textbooks' lock: its creator holds
	PermitsName = "leases" // of a semaphore's permits
	QueueName   = "locks"  // of a semaphore's queue
)

// Join appends a name to a path.
func Join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// Base returns what follows the last slash of a path.
func Base(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

// Parent returns what precedes the last slash of a path.
func Parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "/"
}
