package main

import (
	"crypto/tls"
	"net/http"
)

// adminHTTP returns a client that sends requests only to the admin listener, because a request
// may carry the super user's password. A proxy of the environment would see the password, and so
// would the target of a redirect.
func adminHTTP(conf *tls.Config) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: conf},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
