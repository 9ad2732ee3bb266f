// Package view is what an operator sees of a server's locks and sessions: JSON
// answers, and one page that shows them.
//
// It reads the state in bounded pieces. A scan of all locks serves everybody
// who asks until the state has changed and the scan has grown old: the more it
// costs, the longer.
package view
