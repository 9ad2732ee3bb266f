// Package view is what an operator sees of a server's locks and sessions: JSON
// answers, and one page that shows them.
//
// It reads the state in bounded pieces. One scan of all locks serves all requests until the state
// has changed and the scan has grown old: the more it costs, the longer.
package view
