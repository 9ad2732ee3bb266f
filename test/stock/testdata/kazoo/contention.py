"""Locks under contention from many processes, judged by the referee."""

import multiprocessing
import random
import time

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, LockTimeout, SessionExpiredError
from kazoo.retry import KazooRetry

from checks import RELAY, ZK, Referee, check, equal, eventually, raises
from clients import catch_up, client, clients, fresh

CONTEXT = multiprocessing.get_context("spawn")


def in_processes(target, n, *args, timeout=180):
    """Runs target(i, *args) in n processes; each must exit cleanly."""
    ps = [CONTEXT.Process(target=target, args=(i,) + args, daemon=True) for i in range(n)]
    for p in ps:
        p.start()
    end = time.monotonic() + timeout
    for p in ps:
        p.join(max(0.1, end - time.monotonic()))
    codes = [p.exitcode for p in ps]
    for p in ps:
        if p.exitcode is None:
            p.kill()
    equal(codes, [0] * n, "exit codes")


def start(hosts=ZK):
    for _ in range(5):
        z = KazooClient(hosts, connection_retry=KazooRetry(max_tries=-1, max_delay=0.2))
        try:
            z.start(20)
            return z
        except z.handler.timeout_exception:
            pass  # kazoo raises it at once, too, if the connection is cut right after the connect
    raise AssertionError("no connection")


def lock_worker(i, path, key, rounds):
    z, ref = start(), Referee()
    for _ in range(rounds):
        with z.Lock(path, "worker-%d" % i):
            with ref.inside(key):
                time.sleep(0.002)
    z.stop()


@check
def lock_excludes_across_processes():
    with client() as z:
        path = fresh(z, "lock") + "/l"
        in_processes(lock_worker, 4, path, "kazoo-lock", 25)
        catch_up(z)
        equal(z.get_children(path), [], "no contender left behind")


@check
def lock_is_fair_and_names_contenders():
    with clients(3) as (a, b, c):
        path = fresh(a, "fair") + "/l"
        la, lb, lc = a.Lock(path, "a"), b.Lock(path, "b"), c.Lock(path, "c")
        equal(la.acquire(), True)
        equal(lb.acquire(blocking=False), False)
        raises(LockTimeout, lb.acquire, timeout=0.2)
        fb = b.handler.spawn(lb.acquire)
        eventually(lambda: a.Lock(path).contenders() == ["a", "b"], "b waits")
        fc = c.handler.spawn(lc.acquire)
        eventually(lambda: a.Lock(path).contenders() == ["a", "b", "c"], "c waits")
        la.release()
        fb.join(60)
        equal((lb.is_acquired, lc.is_acquired), (True, False))
        lb.release()
        fc.join(60)
        equal(lc.is_acquired, True)
        lc.release()


def rw_worker(i, path, key, rounds):
    z, ref, rnd = start(), Referee(), random.Random(i)
    done = 0
    while done < rounds:
        write = rnd.random() < 0.3
        lock = (z.WriteLock if write else z.ReadLock)(path, "worker-%d" % i)
        try:
            # kazoo 2.8's readers also wait for writers that queue behind them,
            # which can be a deadlock: give up after a while and queue again.
            lock.acquire(timeout=0.5 + rnd.random())
        except LockTimeout:
            continue
        with ref.inside(key, "w" if write else "r"):
            time.sleep(0.003)
        lock.release()
        done += 1
    z.stop()


@check
def read_and_write_locks_across_processes():
    with client() as z:
        path = fresh(z, "rw") + "/l"
        in_processes(rw_worker, 4, path, "kazoo-rw", 20)


@check
def readers_share():
    with clients(3) as (a, b, c):
        path = fresh(a, "share") + "/l"
        r1, r2, w = a.ReadLock(path), b.ReadLock(path), c.WriteLock(path)
        equal((r1.acquire(), r2.acquire()), (True, True))
        raises(LockTimeout, w.acquire, timeout=0.3)
        r1.release()
        r2.release()
        equal(w.acquire(timeout=60), True)
        raises(LockTimeout, r1.acquire, timeout=0.3)
        w.release()


def semaphore_worker(i, path, key, rounds):
    z, ref = start(), Referee()
    for _ in range(rounds):
        with z.Semaphore(path, max_leases=3), ref.inside(key, "s", 3):
            time.sleep(0.005)
    z.stop()


@check
def semaphore_bounds_across_processes():
    with client() as z:
        path = fresh(z, "sem") + "/s"
        in_processes(semaphore_worker, 5, path, "kazoo-semaphore", 12)
        catch_up(z)
        equal(z.Semaphore(path, max_leases=3).lease_holders(), [])
        raises(ValueError, z.Semaphore(path, max_leases=4).acquire)


def election_worker(i, path, key, rounds):
    z, ref = start(), Referee()

    def lead():
        with ref.inside(key):
            time.sleep(0.01)

    for _ in range(rounds):
        z.Election(path, "candidate-%d" % i).run(lead)
    z.stop()


@check
def election_has_one_leader_across_processes():
    with client() as z:
        path = fresh(z, "election") + "/e"
        in_processes(election_worker, 4, path, "kazoo-election", 8)


def crash_worker(i, path, key):
    z, ref = start(), Referee()
    z.Lock(path, "crasher").acquire()
    with ref.inside(key):
        import os

        os._exit(0)  # without closing the session


@check
def lock_of_a_crashed_process_is_given_on():
    with client() as z:
        path = fresh(z, "crash") + "/l"
        in_processes(crash_worker, 1, path, "kazoo-crash")
        ref = Referee()
        lock = z.Lock(path, "next")
        equal(lock.acquire(timeout=60), True)
        with ref.inside("kazoo-crash"):
            pass
        lock.release()


def cut_worker(i, path, key, rounds):
    z, ref = start(RELAY), Referee()
    done = 0
    while done < rounds:
        lock = z.Lock(path, "worker-%d" % i)
        try:
            with lock:
                with ref.inside(key):
                    time.sleep(0.003)
                done += 1
                if done % 5 == i:
                    ref.say("cut")
        except (ConnectionClosedError, SessionExpiredError):
            pass
    z.stop()


@check
def lock_excludes_while_connections_are_cut():
    with client() as z:
        path = fresh(z, "cut") + "/l"
        in_processes(cut_worker, 3, path, "kazoo-cut", 15)
        # The relay may also cut a connection while its session ends. Then the node stays until the session
        # expires.
        eventually(lambda: z.get_children(path) == [], "no contender left behind")
