package server

import (
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/server/audit"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server's faults are in each of its statuses, even in one for /health, which leaves out most other parts.
func TestFaultsAreToldByEveryLook(t *testing.T) {
	a := must.Get(audit.Open(audit.Options{Name: filepath.Join(t.TempDir(), "audit.log"),
		Room: func() error { return errors.New("the disk is full") }}))(t)
	t.Cleanup(a.Close)
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0", Audit: a})
	await(t, "a line that cannot be written", func() bool { return a.Figures().Problem != nil })
	all := i.Status(^report.Need(0)).Faults
	must.Equal(t, len(all), 1, "faults %q", all)
	for _, need := range []report.Need{0, report.NeedProcess, report.NeedMetrics, report.NeedDirs} {
		got := i.Status(need).Faults
		expect.That(t, slices.Equal(got, all), "faults of a status with %d: %q", need, got)
	}
	resp := must.Get(http.Get("http://" + i.AdminAddr() + "/health"))(t)
	body := must.Get(io.ReadAll(resp.Body))(t)
	must.OK(t, resp.Body.Close())
	expect.Equal(t, resp.StatusCode, http.StatusServiceUnavailable)
	expect.Has(t, string(body), "the audit log cannot be written")
}
