// Package view shows operators the locks and sessions of a server, as JSON answers and as one page.
// Package look finds the locks and sessions, package ask handles the requests and answers, and package act
// carries out the actions of operators.
package view
