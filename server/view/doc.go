// Package view shows operators the locks and sessions of a server, as JSON answers and as one page.
//
// It reads the state in bounded pieces. One scan of all locks serves all requests until the state has changed
// and the scan is old. A costly scan serves for longer.
package view
