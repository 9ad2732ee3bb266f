package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// get returns the body of a page.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp := must.Get(http.Get(url))(t)
	defer resp.Body.Close()
	b := must.Get(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(b)
}

func TestMetricsHaveAPortOfTheirOwn(t *testing.T) {
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0", MetricsAddr: "127.0.0.1:0"})
	for _, addr := range []string{i.AdminAddr(), i.MetricsAddr()} {
		code, text := get(t, "http://"+addr+"/metrics")
		expect.That(t, code == http.StatusOK && strings.Contains(text, "\nznode_count "),
			"%s: %d", addr, code)
		for _, name := range []string{"jvm_threads_current", `jvm_memory_bytes_used{area="heap"}`,
			`jvm_memory_bytes_max{area="heap"}`,
			`jvm_memory_pool_bytes_used{pool="Heap objects"}`, `jvm_gc_collection_seconds_sum{gc="Go"}`} {
			expect.Has(t, text, "\n"+name+" ", "%s: %s is missing", addr, name)
		}
	}
	if code, _ := get(t, "http://"+i.MetricsAddr()+"/commands"); code != http.StatusNotFound {
		t.Errorf("the metrics port serves other pages: %d", code)
	}
	j, _ := start(t, Options{AdminAddr: "127.0.0.1:0", Admin: admin.Options{NoJVM: true}})
	if _, text := get(t, "http://"+j.AdminAddr()+"/metrics"); strings.Contains(text, "jvm_threads") {
		t.Error("jvm_ metrics although switched off")
	}
	must.OK(t, i.Close(context.Background()))
	expect.Fails(t, expect.Err(http.Get("http://"+i.MetricsAddr()+"/metrics")),
		"the metrics port outlives its server")
}
