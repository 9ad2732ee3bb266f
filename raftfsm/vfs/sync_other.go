//go:build !linux

package vfs

// Datasync syncs the whole file, because this operating system may have no cheaper sync that is durable. On
// macOS, fdatasync leaves the bytes in the drive's cache, and os.File.Sync does not.
func (f osFile) Datasync() error { return f.Sync() }

// Forget does nothing here: there is no portable way to drop a file's cached bytes. After a failed
// sync, a read may return the cache's bytes.
func (f osFile) Forget() error { return nil }
