// Package view is what an operator sees of a server's locks and sessions: JSON
// answers, and one page that shows them.
//
// It reads the state in bounded pieces. One scan of all locks serves all requests until the state has changed
// and the scan is old. A costly scan serves for longer.
package view
