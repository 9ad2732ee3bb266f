//go:build !stock

package zk_test

const withReal = false // with the tag stock, tests also run against a real ZooKeeper
