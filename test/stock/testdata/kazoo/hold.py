"""Holds one lock of each kind that kazoo has in one session. A second session
waits for these locks, until the program's input ends. It prints both sessions."""
import os
import sys
import threading

from kazoo.client import KazooClient


def connect():
    c = KazooClient(os.environ["ZK"], timeout=30)
    c.start()
    return c


def later(act):
    threading.Thread(target=act, daemon=True).start()


a, b = connect(), connect()
print("session a %x" % a.client_id[0])
print("session b %x" % b.client_id[0])

a.Lock("/kz/lock", "one").acquire()
later(b.Lock("/kz/lock", "two").acquire)

a.ReadLock("/kz/rw", "reader").acquire()
later(b.WriteLock("/kz/rw", "writer").acquire)

a.Semaphore("/kz/sem", "one", max_leases=1).acquire()
later(b.Semaphore("/kz/sem", "two", max_leases=1).acquire)

leading = threading.Event()
later(lambda: a.Election("/kz/election", "one").run(lambda: (leading.set(), threading.Event().wait())))
leading.wait()
later(lambda: b.Election("/kz/election", "two").run(lambda: None))

a.Party("/kz/party", "one").join()
b.Party("/kz/party", "two").join()

# One node without a queue: the session that creates it leads, and the other watches it.
a.create("/kz-master", b"one", ephemeral=True)
b.get("/kz-master", watch=lambda event: None)

print("ready", flush=True)
sys.stdin.read()
