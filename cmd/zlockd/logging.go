package main

import (
	"io"
	"log/slog"
)

// newLogger returns a logger as the flags ask, which check has found valid.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	// An unknown level was refused before; the zero value is info.
	_ = l.UnmarshalText([]byte(level))
	o := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
