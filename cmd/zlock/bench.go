package main

import "github.com/spf13/pflag"

func benchCommand() *command {
	return &command{name: "bench", setup: func(fs *pflag.FlagSet) func(*call) error { return func(*call) error { return nil } }}
}
