//go:build stock

package cluster

const withStock = true
