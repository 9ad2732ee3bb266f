package client

// child is what the test binary does when it is started as a child process.
func child() {}
