package main

import "net/http"

// adminHTTP sends requests only to the admin listener, because a request may carry the super
// user's password. A proxy of the environment would see the password, and so would the target
// of a redirect.
var adminHTTP = &http.Client{
	Transport:     &http.Transport{},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}
