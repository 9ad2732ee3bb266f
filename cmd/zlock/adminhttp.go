package main

import "net/http"

// adminHTTP sends requests to the admin listener, and to nothing else: a request may
// carry the super user's password. A proxy of the environment would see it, and so
// would the server that an answer redirects to.
var adminHTTP = &http.Client{
	Transport:     &http.Transport{},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}
