//go:build stock

package stock

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// browser is a Chromium without a window, driven over WebDriver's HTTP.
type browser struct {
	t    *testing.T
	base string // base URL of the session
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	need(t, "/usr/bin/chromium", "/usr/bin/chromedriver")
	addr := must.Get(cluster.FreePorts(1))(t)[0]
	_, port, _ := net.SplitHostPort(addr)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "/usr/bin/chromedriver", "--port="+port)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	b := &browser{t: t, base: "http://" + addr}
	t.Cleanup(func() {
		b.call("DELETE", "", nil) // chromedriver ends the browser with the session
		cancel()
		cmd.Wait()
	})
	must.Await(t, "chromedriver", time.Minute, func() bool {
		r, err := http.Get(b.base + "/status")
		if err == nil {
			r.Body.Close()
		}
		return err == nil
	})
	var s struct{ SessionID string }
	capabilities, _ := json.Marshal(map[string]any{"capabilities": map[string]any{
		"alwaysMatch": map[string]any{
			"browserName": "chrome",
			"goog:chromeOptions": map[string]any{
				"binary": "/usr/bin/chromium",
				"args": []string{"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
					"--window-size=1200,900", "--no-first-run", "--disable-background-networking"},
			},
			"goog:loggingPrefs": map[string]string{"browser": "ALL", "performance": "ALL"},
		}}})
	must.Await(t, "a browser", 5*time.Minute, func() bool { // chromedriver gives up a browser that starts slowly
		r, err := http.Post(b.base+"/session", "application/json", bytes.NewReader(capabilities))
		if err != nil {
			return false
		}
		defer r.Body.Close()
		var out struct{ Value json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&out); err != nil || r.StatusCode != http.StatusOK {
			t.Logf("no browser: %s %.500s %v", r.Status, out.Value, err)
			return false
		}
		b.decode(out.Value, &s)
		return true
	})
	b.base += "/session/" + s.SessionID
	return b
}

// call() makes one WebDriver request and returns its value.
func (b *browser) call(method, path string, body any) json.RawMessage {
	b.t.Helper()
	var in []byte
	if method == "POST" {
		if body == nil {
			body = map[string]any{}
		}
		in, _ = json.Marshal(body)
	}
	q := must.Get(http.NewRequest(method, b.base+path, bytes.NewReader(in)))(b.t)
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		b.t.Errorf("%s %s: %v", method, path, err)
		return nil
	}
	defer r.Body.Close()
	var out struct{ Value json.RawMessage }
	if err := json.NewDecoder(r.Body).Decode(&out); err != nil || r.StatusCode != http.StatusOK {
		b.t.Fatalf("%s %s %.200s: %s %.500s", method, path, in, r.Status, out.Value)
	}
	return out.Value
}

func (b *browser) decode(raw json.RawMessage, into any) {
	b.t.Helper()
	must.OK(b.t, json.Unmarshal(raw, into), "%.300s", raw)
}

func (b *browser) open(url string) {
	b.t.Helper()
	b.call("POST", "/url", map[string]string{"url": url})
}

// js() runs a script in the page and returns the script's result, as text.
func (b *browser) js(script string, args ...any) string {
	b.t.Helper()
	if args == nil {
		args = []any{}
	}
	var v any
	b.decode(b.call("POST", "/execute/sync", map[string]any{"script": script, "args": args}), &v)
	return fmt.Sprint(v)
}

// text() returns the text that the page shows.
func (b *browser) text() string { b.t.Helper(); return b.js("return document.body.innerText") }

// keys() presses keys in the element that has the focus.
func (b *browser) keys(keys ...string) {
	b.t.Helper()
	var acts []map[string]string
	for _, k := range keys {
		acts = append(acts, map[string]string{"type": "keyDown", "value": k}, map[string]string{
			"type": "keyUp", "value": k})
	}
	b.call("POST", "/actions", map[string]any{
		"actions": []any{map[string]any{"type": "key", "id": "keyboard", "actions": acts}}})
}

// Keys as WebDriver names them.
const (
	keyTab    = "\uE004"
	keyEnter  = "\uE007"
	keyEscape = "\uE00C"
)

// cdp() sends a command in the browser's own protocol.
func (b *browser) cdp(cmd string, params any) {
	b.t.Helper()
	b.call("POST", "/goog/cdp/execute", map[string]any{"cmd": cmd, "params": params})
}

// scheme() makes the page dark or light.
func (b *browser) scheme(name string) {
	b.t.Helper()
	b.cdp("Emulation.setEmulatedMedia", map[string]any{
		"features": []any{map[string]string{"name": "prefers-color-scheme", "value": name}}})
}

// width() sets the width of the page.
func (b *browser) width(px int) {
	b.t.Helper()
	b.cdp("Emulation.setDeviceMetricsOverride", map[string]any{"width": px, "height": 800,
		"deviceScaleFactor": 1, "mobile": false})
}

// shot() takes a picture of the page.
func (b *browser) shot(file string) {
	b.t.Helper()
	var s string
	b.decode(b.call("GET", "/screenshot", nil), &s)
	png, err := base64.StdEncoding.DecodeString(s)
	if err == nil {
		err = os.WriteFile(file, png, 0o644)
	}
	expect.OK(b.t, err)
}

// log() returns the new messages of one of the browser's logs.
func (b *browser) log(kind string) (lines []string) {
	b.t.Helper()
	var entries []struct{ Level, Message string }
	b.decode(b.call("POST", "/se/log", map[string]string{"type": kind}), &entries)
	for _, e := range entries {
		lines = append(lines, e.Level+" "+e.Message)
	}
	return lines
}
