// Package view shows operators the locks and sessions of a server, as JSON answers and as one page.
// What it shows comes from package look, by way of package ask; package act carries out what operators ask
// for.
package view
