// Package articles holds the programs of the articles that made these locks
// known, retold as tests: what they claim of locks on ZooKeeper is to be true
// of locks on zlockd. Those that need Java or zkCli are in test/stock.
package articles
