"""A member of a tooz group: it stands for leader, and counts under a lock.

group.py SERVERS DIR NAME

While the member holds tooz's lock "counter", it adds one to the number in
DIR/counter, and locks the file DIR/inside. It does not wait for that file: if
the file is already locked, the member writes DIR/violation. DIR/NAME.leader
exists while tooz says that this member leads. SIGTERM ends the program in order.
"""
import fcntl
import os
import signal
import sys

from tooz import coordination

servers, where, name = sys.argv[1:4]
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
c = coordination.get_coordinator("zookeeper://%s?timeout=10" % servers, name.encode())
c.start(start_heart=True)
try:
    c.create_group(b"workers").get()
except coordination.GroupAlreadyExist:
    pass
c.join_group(b"workers").get()


def elected(event):
    print("elected")
    open(os.path.join(where, name + ".leader"), "w").close()


c.watch_elected_as_leader(b"workers", elected)
counter, lock = os.path.join(where, "counter"), c.get_lock(b"counter")
turns = 0
while not stopped:
    # If the connection is lost, tooz raises an error instead of an answer. Then ask again.
    try:
        c.run_watchers()
        members = c.get_members(b"workers").get()
        leader = c.get_leader(b"workers").get()
    except Exception as e:
        print("group: %s: %s" % (type(e).__name__, e))
        continue
    with open(os.path.join(where, name + ".sees"), "w") as f:
        f.write(" ".join(sorted(m.decode() for m in members)) + " led by " + (leader or b"nobody").decode())
    try:
        if not lock.acquire(blocking=5):
            continue
    except Exception as e:
        print("acquire: %s: %s" % (type(e).__name__, e))
        continue
    with open(os.path.join(where, "inside"), "a") as inside:
        try:
            fcntl.flock(inside, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            open(os.path.join(where, "violation"), "a").write(name + "\n")
        n = int(open(counter).read())
        with open(counter + ".new", "w") as f:
            f.write("%d\n" % (n + 1))
        os.rename(counter + ".new", counter)
        turns += 1
    while True:
        try:
            lock.release()
            break
        except Exception as e:
            print("release: %s: %s" % (type(e).__name__, e))
c.leave_group(b"workers").get()
c.stop()
with open(os.path.join(where, name + ".turns"), "w") as f:
    f.write("%d\n" % turns)
