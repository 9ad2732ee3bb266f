"""Contends for every kind of kazoo's locks, for as many seconds as the first
argument says, while the test kills servers. A holder that is alone inside writes
a counter. Its version is the fencing token."""

import random
import sys
import threading
import time
import traceback
import uuid

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import BadVersionError, LockTimeout
from kazoo.retry import KazooRetry

from checks import ROOT, ZK, Referee

SECONDS = float(sys.argv[1])
LOST = []


def connect():
    z = KazooClient(
        ZK,
        timeout=10,
        connection_retry=KazooRetry(max_tries=-1, delay=0.02, max_delay=0.2),
        command_retry=KazooRetry(max_tries=-1, delay=0.02, max_delay=0.2),
    )
    z.add_listener(lambda state: LOST.append(state) if state == KazooState.LOST and not stopping.is_set() else None)
    z.start(20)
    return z


stopping = threading.Event()


def bump(z, path):
    """Writes the counter, which nobody else may write meanwhile."""
    mine = uuid.uuid4().bytes
    _, st = z.retry(z.get, path)
    try:
        return z.retry(z.set, path, mine, st.version).version
    except BadVersionError:
        # A write whose answer was lost has been repeated, or another client has written.
        now, st = z.retry(z.get, path)
        if now != mine:
            raise AssertionError("the counter was written by somebody else")
        return st.version


def fenced(z, ref, path, key, mode="x"):
    with ref.inside(key, mode):
        answer = ref.say("fence %s %d" % (key, bump(z, path + "-counter")))
        if answer != "ok":
            raise AssertionError(answer)


def lock(z, ref, path, key, rnd):
    with z.Lock(path, "x"):
        fenced(z, ref, path, key)


def read_write(z, ref, path, key, rnd):
    write = rnd.random() < 0.3
    l = (z.WriteLock if write else z.ReadLock)(path, "x")
    try:
        # Readers also wait for writers behind them. That can be a deadlock: give up after a while.
        l.acquire(timeout=0.5 + rnd.random())
    except LockTimeout:
        return
    if write:
        fenced(z, ref, path, key, "w")
    else:
        with ref.inside(key, "r"):
            time.sleep(0.003)
    l.release()


def semaphore(z, ref, path, key, rnd):
    with z.Semaphore(path, max_leases=2), ref.inside(key, "s", 2):
        time.sleep(0.003)


def election(z, ref, path, key, rnd):
    z.Election(path, "x").run(fenced, z, ref, path, key)


class Contender(threading.Thread):
    def __init__(self, i, z, kind, end):
        super().__init__(daemon=True)
        self.i, self.z, self.kind, self.end = i, z, kind, end
        self.rounds, self.error = 0, None

    def run(self):
        name = self.kind.__name__.replace("_", "-")
        path, ref, rnd = "%s/soak-%s" % (ROOT, name), Referee(), random.Random(self.i)
        try:
            while time.monotonic() < self.end:
                self.kind(self.z, ref, path, "kazoo-" + name, rnd)
                self.rounds += 1
        except BaseException as e:
            traceback.print_exc()
            self.error = e


def main():
    zs = [connect() for _ in range(3)]
    kinds = [lock, read_write, semaphore, election]
    for k in kinds:
        zs[0].ensure_path("%s/soak-%s-counter" % (ROOT, k.__name__.replace("_", "-")))
    for z in zs:
        z.sync("/")
    end = time.monotonic() + SECONDS
    running = {k.__name__.replace("_", "-"): [Contender(i, z, k, end) for i, z in enumerate(zs)] for k in kinds}
    for contenders in running.values():
        for c in contenders:
            c.start()
    for name, contenders in running.items():
        why = []
        for c in contenders:
            c.join(max(1, end + 60 - time.monotonic()))
            if c.is_alive():
                why.append("a contender hangs after %d rounds" % c.rounds)
            elif c.error:
                why.append("%s: %s" % (type(c.error).__name__, c.error))
            elif c.rounds == 0:
                why.append("never inside")
        print("fail kazoo-%s: %s" % (name, "; ".join(why)) if why else "ok kazoo-" + name, flush=True)
    print("fail no-session-lost: %d" % len(LOST) if LOST else "ok no-session-lost", flush=True)
    print("done", len(running) + 1, flush=True)
    stopping.set()
    for z in zs:
        z.stop()


if __name__ == "__main__":
    main()
