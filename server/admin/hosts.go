package admin

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
)

// forThisHost refuses requests that call this server by a name that it does not have. Such a request may come
// from a web page of another site, whose DNS name points to this server for this purpose: the page could then
// read and change things. Health checks may use any name.
func (a *Admin) forThisHost(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" && r.URL.Path != "/ready" && !a.KnownHost(r.Host) {
			text := fmt.Sprintf("this server has no host name %.200q: use its address, or allow the name with "+
				"--admin-hosts", r.Host)
			answerStruct(w, http.StatusMisdirectedRequest, &changed{V: 1, Error: &text})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// KnownHost reports whether a request may name this server by the given host name.
func (a *Admin) KnownHost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(withoutPort(host), "."))
	if host == "" || host == "localhost" || net.ParseIP(host) != nil {
		return true
	}
	for _, known := range a.o.Hosts {
		if strings.EqualFold(host, known) || known == "*" {
			return true
		}
	}
	if name, err := os.Hostname(); err == nil && strings.EqualFold(host, name) {
		return true
	}
	for _, m := range a.o.Source.Status(0).Members {
		if strings.EqualFold(host, withoutPort(m.Peer)) || strings.EqualFold(host, withoutPort(m.Client)) {
			return true
		}
	}
	return false
}
