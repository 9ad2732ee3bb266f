package main

import (
	"io"
	"log/slog"
)

// newLogger returns a logger as the flags ask. check has accepted them.
func newLogger(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
