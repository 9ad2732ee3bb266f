package supervise

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel send sig to the next child when this process ends. The kernel actually
// watches the thread that starts the child. So dieWithParent ties the calling goroutine, which must be the
// main one, to its thread.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) {
	runtime.LockOSThread()
	attr.Pdeathsig = sig
}

// Contain starts a child as the first process of a new process namespace. If this process has no right to
// make one, the child also gets a user namespace, in which it has that right and its user stays the same.
func Contain(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = 0 // the keeper itself asks to die with the guard; see [Keep]
	attr.Cloneflags |= syscall.CLONE_NEWPID
	if mayContain() {
		return
	}
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
}

// mayContain reports whether this process has the capability to make namespaces.
func mayContain() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&hdr, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// CanContain reports whether the system has process namespaces.
const CanContain = true

// BootClock reads a clock that all processes share and that runs while the machine sleeps.
func BootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("the kernel has no boot time clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

// process is the content of /proc/PID/stat.
type process struct {
	pid, parent, group int    // numbers in /proc
	ours               int    // its number in this process's namespace, to signal it; 0: it has none there
	name               string // name of the program
	state              byte
	began              uint64 // start time, which tells it from a later process with the same number
}

func (p process) running() bool { return p.state != 'Z' && p.state != 'X' }

// signal() sends a signal to this process. It never signals a later process that has got the same number.
func (p process) signal(sig syscall.Signal) {
	if p.ours <= 0 {
		return
	}
	fd, err := unix.PidfdOpen(p.ours, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return
	case err == nil:
		defer closeFD(fd)
		if now, ok := readProcess(p.pid); !ok || now.began != p.began {
			return
		}
		if err = unix.PidfdSendSignal(fd, sig, nil, 0); err == nil || errors.Is(err, unix.ESRCH) {
			return
		}
	}
	_ = syscall.Kill(p.ours, sig) // without pidfd, which this system lacks or forbids, only the number is left
}

// self() returns the number of this process in /proc, or 0 without /proc. With --contain, /proc still shows
// the numbers of the outer namespace. A process has a number in each of its namespaces, and /proc lists them
// all. depth() returns how many this process has, which is also the place of its own namespace in such a
// list.
var self, depth = sync.OnceValue(func() int {
	link, _ := os.Readlink("/proc/self")
	pid, _ := strconv.Atoi(link)
	return pid
}), sync.OnceValue(func() int { return len(numbers(self())) })

// ownProc reports whether /proc shows the numbers of this process's namespace.
func ownProc() bool { return self() == os.Getpid() }

// numbers() returns the numbers of a process in its namespaces, the outermost one first.
func numbers(pid int) []string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, text, _ := strings.Cut(string(b), "\nNSpid:")
	text, _, _ = strings.Cut(text, "\n")
	return strings.Fields(text)
}

// processes() lists the processes that f accepts. The list is empty if there is no /proc.
func processes(f func(process) bool) (found []process) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok && f(p) {
			found = append(found, p)
		}
	}
	return found
}

func readProcess(pid int) (process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The line is PID (NAME) STATE PARENT GROUP …, and NAME may contain anything, even parentheses.
	i, j := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if i < 0 || j < i {
		return process{}, false
	}
	f := strings.Fields(string(b[j+1:]))
	if len(f) < 20 {
		return process{}, false
	}
	p := process{pid: pid, ours: pid, name: string(b[i+1 : j]), state: f[0][0]}
	p.parent, _ = strconv.Atoi(f[1])
	p.group, _ = strconv.Atoi(f[2])
	p.began, _ = strconv.ParseUint(f[19], 10, 64)
	if !ownProc() {
		p.ours = 0
		if n := numbers(pid); depth() > 0 && len(n) >= depth() {
			p.ours, _ = strconv.Atoi(n[depth()-1])
		}
	}
	return p, true
}

// descendants() returns the descendants of a process in /proc, parents first. It omits the processes for
// which spare() returns true, and their descendants.
func descendants(pid int, spare func(process) bool) (all []process) {
	children := map[int][]process{}
	processes(func(p process) bool {
		children[p.parent] = append(children[p.parent], p)
		return false
	})
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			if !spare(p) {
				all, next = append(all, p), append(next, p.pid)
			}
		}
	}
	return all
}

// groupAlive reports whether a process of the group runs. kill(2) does not tell, because it counts zombies,
// too: an orphan that has ended stays a zombie if init does not reap it.
func groupAlive(group int) bool {
	if syscall.Kill(-group, 0) == syscall.ESRCH {
		return false
	}
	return !ownProc() || len(processes(func(p process) bool { return p.group == group && p.running() })) > 0
}

// Alive reports whether a process runs.
func Alive(pid int) bool {
	if !ownProc() {
		return syscall.Kill(pid, 0) != syscall.ESRCH
	}
	p, ok := readProcess(pid)
	return ok && p.running()
}

// nameProcess sets the name by which killall and pkill find this process.
func nameProcess(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// dieWithGuard makes the kernel kill this process when the guard dies. The setting belongs to the calling
// thread.
func dieWithGuard() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0)
}

// adoptOrphans makes this process adopt a descendant whose parent ends. The result is true if it can then
// find all its descendants: the system does as asked, and has /proc.
func adoptOrphans() bool {
	return self() != 0 && unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
}

// ChildrenOf returns the running children of a process. It returns none if /proc shows the numbers of another
// namespace.
func ChildrenOf(parent int) (pids []int) {
	if !ownProc() {
		return nil
	}
	for _, p := range processes(func(p process) bool { return p.parent == parent && p.running() }) {
		pids = append(pids, p.pid)
	}
	return pids
}
