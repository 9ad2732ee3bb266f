"""Takes kazoo's lock at each path that comes on standard input, and keeps it: a
line says whether it holds it, or which error it was shown."""
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
    except Exception as e:  # whatever it is called, the test compares it
        print(type(e).__name__, flush=True)
