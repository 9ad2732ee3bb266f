package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestErrorsOfTheStartSayWhatToDo(t *testing.T) {
	s, _, err := parseFlags([]string{"--data-dir", "/srv/locks", "--admin-addr", "locks.invalid:8181"}, noEnv)
	must.OK(t, err)
	listen := func(port int, why syscall.Errno) error {
		return fmt.Errorf("start: %w", &net.OpError{Op: "listen", Net: "tcp", Addr: &net.TCPAddr{
			IP: net.IPv4(127, 0, 0, 1), Port: port}, Err: os.NewSyscallError("bind", why)})
	}
	file := func(why syscall.Errno) error {
		return &fs.PathError{Op: "open", Path: "/srv/locks/lock", Err: why}
	}
	for _, test := range []struct {
		err  error
		hint string
	}{
		{listen(2181, syscall.EADDRINUSE), "with --client-addr"},
		{listen(8181, syscall.EADDRINUSE), "with --admin-addr"},
		{listen(9999, syscall.EADDRINUSE), "another address."},
		{listen(2888, syscall.EADDRNOTAVAIL), "with --peer-addr"},
		{listen(2181, syscall.EACCES), "Ports below 1024"},
		{file(syscall.EACCES), "read and write /srv/locks"},
		{file(syscall.ENOSPC), "Make room"},
		{file(syscall.ENOTDIR), "--data-dir must name"},
		{fmt.Errorf("start: %w", &net.OpError{Op: "listen", Err: &net.DNSError{Name: "locks.invalid",
			Err: "no such host"}}), "name with --admin-addr"},
		{&net.DNSError{Name: "elsewhere.invalid", Err: "no such host"}, "or another name."},
	} {
		got := Explain(test.err, s)
		expect.Has(t, got.Error(), test.hint, "error")
		expect.Is(t, got, test.err)
	}
	at := func(path string, why syscall.Errno) error { return &fs.PathError{Op: "open", Path: path, Err: why} }
	for _, whole := range []error{errors.New("something else"), // Explain has nothing to add to these errors
		at("/var/log/audit", syscall.EACCES), at("/var/log/audit", syscall.ENOSPC),
		at("/var/log/audit", syscall.EISDIR)} {
		expect.Equal(t, Explain(whole, s), whole, "an error that says everything is changed")
	}
	s, _, err = parseFlags(nil, noEnv)
	must.OK(t, err)
	for _, path := range []string{"zlockd-data/log", "./zlockd-data", "."} {
		expect.Has(t, Explain(at(path, syscall.EACCES), s).Error(), "read and write ./zlockd-data")
	}
	expect.Has(t, Explain(at("zlockd-data/log", syscall.ENOTDIR), s).Error(), "--data-dir must name")
}
