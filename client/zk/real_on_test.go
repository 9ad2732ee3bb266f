//go:build stock

package zk_test

const withReal = true
