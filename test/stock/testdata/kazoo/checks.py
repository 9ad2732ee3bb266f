"""What every driver needs: checks that print a line each, the referee, waiting."""

import os
import socket
import sys
import threading
import time
import traceback

ZK = os.environ["ZK"]
RELAY = os.environ["RELAY"]
ROOT = "/kazoo-%d" % os.getpid()

CHECKS = []


def check(f):
    """Registers a check; its name with dashes is the subtest's name."""
    CHECKS.append(f)
    return f


def run_all():
    """Runs all checks, or those named on the command line."""
    wanted = sys.argv[1:]
    n = 0
    for f in CHECKS:
        name = f.__name__.replace("_", "-")
        if wanted and name not in wanted:
            continue
        n += 1
        try:
            f()
        except BaseException as e:  # a check that exits must not end the driver
            traceback.print_exc()
            print("fail %s: %s: %s" % (name, type(e).__name__, str(e).replace("\n", " ")), flush=True)
        else:
            print("ok", name, flush=True)
    print("done", n, flush=True)


def equal(got, want, what=""):
    if got != want:
        raise AssertionError("%s: got %r, want %r" % (what or "value", got, want))


def raises(kind, f, *args, **kw):
    try:
        got = f(*args, **kw)
    except kind:
        return
    raise AssertionError("%s expected, got %r" % (kind.__name__, got))


def eventually(cond, what, timeout=60):
    """Waits until cond() is true."""
    end = time.monotonic() + timeout
    while not cond():
        if time.monotonic() > end:
            raise AssertionError("never came true: " + what)
        time.sleep(0.01)


class Referee:
    """One contender's connection to the referee."""

    def __init__(self):
        host, port = os.environ["REFEREE"].rsplit(":", 1)
        self.sock = socket.create_connection((host, int(port)))
        self.file = self.sock.makefile("r")
        self.lock = threading.Lock()

    def say(self, line):
        with self.lock:
            self.sock.sendall((line + "\n").encode())
            return self.file.readline().strip()

    def inside(self, key, mode="x", limit=1):
        return Inside(self, key, mode, limit)


class Inside:
    """A stay in a critical section."""

    def __init__(self, referee, key, mode, limit):
        self.referee, self.key, self.mode, self.limit = referee, key, mode, limit

    def __enter__(self):
        answer = self.referee.say("enter %s %s %d" % (self.key, self.mode, self.limit))
        if answer != "ok":
            raise AssertionError(answer)

    def __exit__(self, *exc):
        self.referee.say("leave " + self.key)
