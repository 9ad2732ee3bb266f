"""Takes kazoo's lock at each path that comes on standard input, and keeps it. For
each path it prints a line: that it holds the lock, or the error that it got."""
import os
import sys

from kazoo.client import KazooClient

c = KazooClient(os.environ["ZK"], timeout=30)
c.start()
print("ready", flush=True)
for path in sys.stdin:
    try:
        c.Lock(path.strip()).acquire(timeout=20)
        print("holds", flush=True)
    except Exception as e:  # any error: the test compares its name
        print(type(e).__name__, flush=True)
