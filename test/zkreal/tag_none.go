//go:build !stock

package zkreal

const tagged = false
