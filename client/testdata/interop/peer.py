"""peer.py SERVERS REFEREE KIND PATH ROUNDS THREADS: takes kazoo's locks and tells the referee."""

import os
import random
import socket
import sys
import threading
import traceback

from kazoo.client import KazooClient
from kazoo.retry import ForceRetryError
from kazoo.recipe.lock import ReadLock

servers, referee, kind, path, rounds, threads = sys.argv[1:7]


class Reader(ReadLock):
    """kazoo's ReadLock up to 2.8 also waits for writers behind it, and these for
    it (python-zk/kazoo#649): here it waits for those before it, as later ones do."""

    def _get_predecessor(self, node):
        children = self.client.get_children(self.path)
        if node not in children:
            raise ForceRetryError()
        found = [self._contenders_re.search(c) for c in children]
        ahead = [(m.group(1), m.string) for m in found if m and m.group(1) < node[-10:]]
        return max(ahead)[1] if ahead else None


def contend(seed):
    rnd = random.Random(seed)
    host, port = referee.split(":")
    s = socket.create_connection((host, int(port)))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    f = s.makefile("rw", newline="\n")

    def inside(mode, node):
        for line in ("enter %s %s" % (mode, node), "exit"):
            f.write(line + "\n")
            f.flush()
            f.readline()

    z = KazooClient(servers, timeout=20)
    z.start(30)
    for _ in range(int(rounds)):
        if kind == "semaphore":
            sem = z.Semaphore(path, "peer", max_leases=3)
            with sem:
                inside("s", sem.create_path.rsplit("/", 1)[1])
            continue
        if kind == "mutex":
            mode, lock = "w", z.Lock(path, "peer")
        elif kind == "extra":
            mode, lock = "w", z.Lock(path, "peer", extra_lock_patterns=["lock-"])
        elif rnd.randrange(3) == 0:
            mode, lock = "w", z.WriteLock(path, "peer")
        else:
            mode, lock = "r", Reader(z, path, "peer")
        with lock:
            inside(mode, lock.node)
    z.stop()
    z.close()


def run(seed):
    try:
        contend(seed)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


ts = [threading.Thread(target=run, args=(i,)) for i in range(int(threads))]
for t in ts:
    t.start()
for t in ts:
    t.join()
