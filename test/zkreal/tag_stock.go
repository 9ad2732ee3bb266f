//go:build stock

package zkreal

const tagged = true
