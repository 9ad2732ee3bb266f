#!/usr/bin/python3
"""Runs zktop in a terminal against the given servers, and prints what it shows.

First it prints a line for each server, with the facts that zktop's own classes
read. Then it prints the screen that a user sees, as text. It ends with an error
if zktop calls a server unavailable or shows nothing.
"""

import os
import pty
import re
import select
import sys
import time

servers = sys.argv[1]
sys.argv = ["zktop", "--servers", servers]
import zktop  # noqa: E402  (it reads the command line when it is imported)

for i, address in enumerate(servers.split(",")):
    s = zktop.ZKServer(address, i)
    if s.unavailable:
        sys.exit("zktop cannot read %s" % address)
    print("server", address, s.version, s.mode, s.node_count, s.zxid, len(s.sessions), s.min_latency, s.avg_latency, s.max_latency)

pid, screen = pty.fork()
if pid == 0:
    os.environ.update(TERM="xterm", LINES="40", COLUMNS="120")
    os.execv("/usr/bin/zktop", sys.argv)
want, seen, end = len(servers.split(",")), b"", time.time() + 60
while time.time() < end:
    if select.select([screen], [], [], 0.2)[0]:
        try:
            seen += os.read(screen, 65536)
        except OSError:
            break
    text = re.sub(rb"\x1b[\[(][0-9;?]*[a-zA-Z]", b" ", seen).decode(errors="replace")
    if all(a.split(":")[1] in text for a in servers.split(",")) and "sessions:" in text:
        print("screen", " ".join(text.split()))
        break
else:
    sys.exit("zktop shows: %r" % seen)
os.write(screen, b"q")
os.waitpid(pid, 0)
