package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel send sig to the child that the caller starts next when this
// process ends. The kernel heeds the end of the thread that started the child, so the caller's
// goroutine, that of main, keeps its thread from here on.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) {
	runtime.LockOSThread()
	attr.Pdeathsig = sig
}

// contain makes the child the first process of a process namespace. Without the right to that
// it also adds a user namespace, in which users keep their identity.
func contain(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = 0 // the keeper sees to that, see [keep]
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

// canContain reports whether the system has process namespaces.
const canContain = true

// bootClock reads a clock that all processes share and that runs while the machine sleeps.
func bootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("the kernel has no boot time clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

// process is the content of /proc/PID/stat.
type process struct {
	pid, parent, group int
	state              byte
}

func (p process) running() bool { return p.state != 'Z' && p.state != 'X' }

// ownProc reports whether /proc has the numbers by which this process knows others. Within --contain
// it has those of the namespace outside.
var ownProc = sync.OnceValue(func() bool {
	self, _ := os.Readlink("/proc/self")
	return self == strconv.Itoa(os.Getpid())
})

// processes lists the processes that f accepts, none where /proc does not tell them.
func processes(f func(process) bool) (found []process) {
	if !ownProc() {
		return nil
	}
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
	// PID (NAME) STATE PARENT GROUP …; the name may hold anything.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return process{}, false
	}
	p := process{pid: pid}
	_, err = fmt.Sscanf(string(b[i+1:]), " %c %d %d", &p.state, &p.parent, &p.group)
	return p, err == nil
}

// groupAlive reports whether a process of the group runs. kill(2) would count zombies, and an
// orphaned zombie may stay if init is careless.
func groupAlive(group int) bool {
	if syscall.Kill(-group, 0) == syscall.ESRCH {
		return false
	}
	return !ownProc() || len(processes(func(p process) bool { return p.group == group && p.running() })) > 0
}

func processAlive(pid int) bool {
	if !ownProc() {
		return syscall.Kill(pid, 0) != syscall.ESRCH
	}
	p, ok := readProcess(pid)
	return ok && p.running()
}

// descendants returns the processes and all their descendants, each once: a second signal may mean
// more than the first.
func descendants(pids ...int) (all []int) {
	children := map[int][]int{}
	processes(func(p process) bool {
		children[p.parent] = append(children[p.parent], p.pid)
		return false
	})
	for len(pids) > 0 {
		pid := pids[0]
		pids = pids[1:]
		if !slices.Contains(all, pid) {
			all = append(all, pid)
			pids = append(pids, children[pid]...)
		}
	}
	return all
}

// nameProcess changes the name that killall and pkill use.
func nameProcess(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// dieWithGuard is dieWithParent for this process itself: its thread keeps the wish.
func dieWithGuard() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0)
}

// adoptOrphans makes this process the parent of descendants that lose theirs, or not.
func adoptOrphans(adopt bool) {
	arg := uintptr(0)
	if adopt {
		arg = 1
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, arg, 0, 0, 0)
}

// childrenOf returns the running children of some processes.
func childrenOf(parents ...int) (pids []int) {
	for _, p := range processes(process.running) {
		if p.parent > 0 && slices.Contains(parents, p.parent) { // the system's own have no parent
			pids = append(pids, p.pid)
		}
	}
	return pids
}
