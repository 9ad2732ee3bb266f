"""Recipes that need no judge: barriers, counters, queues, parties, partitions."""

import threading
import time
import uuid

from checks import check, equal, eventually
from clients import catch_up, client, clients, fresh


def together(functions, timeout=180):
    """Runs functions in threads and returns their results."""
    results = [None] * len(functions)
    errors = []

    def call(i, f):
        try:
            results[i] = f()
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=call, args=p, daemon=True) for p in enumerate(functions)]
    for t in threads:
        t.start()
    end = time.monotonic() + timeout
    for t in threads:
        t.join(max(0, end - time.monotonic()))
        if t.is_alive():
            raise AssertionError("a participant hangs")
    if errors:
        raise errors[0]
    return results


@check
def barrier_holds_until_removed():
    with clients(3) as (z, a, b):
        d = fresh(z, "barrier")
        gate = z.Barrier(d + "/gate")
        gate.create()
        catch_up(a, b)
        equal(a.Barrier(d + "/gate").wait(0.2), False, "the gate is shut")
        opened = threading.Timer(0.3, gate.remove)
        opened.start()
        equal(together([lambda z=z: z.Barrier(d + "/gate").wait(20) for z in (a, b)]), [True, True])
        opened.join()


@check
def double_barrier_waits_for_all():
    with clients(4) as zs:
        d = fresh(zs[0], "double")
        before, after = [], []

        def work(z, i):
            b = z.DoubleBarrier(d + "/b", 4, identifier="p%d" % i)
            time.sleep(0.1 * i)
            before.append(i)
            b.enter()
            inside = len(before)
            time.sleep(0.05 * i)
            after.append(i)
            b.leave()
            return inside, len(after)

        equal(together([lambda z=z, i=i: work(z, i) for i, z in enumerate(zs)]), [(4, 4)] * 4)


@check
def counter_adds_up():
    with clients(4) as zs:
        d = fresh(zs[0], "counter")

        def work(z, i):
            c = z.Counter(d + "/c", default=0)
            for n in range(25):
                c += 1 + i
            c -= 5

        together([lambda z=z, i=i: work(z, i) for i, z in enumerate(zs)])
        catch_up(zs[0])
        equal(zs[0].Counter(d + "/c").value, 25 * (1 + 2 + 3 + 4) - 20)
        f = zs[0].Counter(d + "/f", default=1.0)
        f += 0.5
        equal(f.value, 1.5)


@check
def queue_gives_each_entry_once():
    with clients(4) as zs:
        q = fresh(zs[0], "queue") + "/q"
        for i in range(40):
            zs[0].Queue(q).put(b"%02d" % i)
        zs[0].Queue(q).put(b"urgent", priority=1)
        equal(len(zs[0].Queue(q)), 41)
        equal(zs[0].Queue(q).get(), b"urgent")
        catch_up(*zs)

        def work(z):
            got, mine = [], z.Queue(q)
            while True:
                item = mine.get()
                if item is None:
                    return got
                got.append(item)

        results = together([lambda z=z: work(z) for z in zs])
        equal(sorted(x for r in results for x in r), [b"%02d" % i for i in range(40)])
        for r in results:
            equal(r, sorted(r), "one consumer sees the order")


@check
def locking_queue_returns_what_was_not_consumed():
    with clients(3) as (z, a, b):
        q = fresh(z, "lockingqueue") + "/q"
        z.LockingQueue(q).put_all([b"1", b"2", b"3"])
        catch_up(a, b)
        first = a.LockingQueue(q)
        equal(first.get(30), b"1")
        equal(first.holds_lock(), True)
        second = b.LockingQueue(q)
        equal(second.get(30), b"2", "a held entry is passed over")
        equal(second.consume(), True)
        equal(first.release(), True)
        got = []
        while len(got) < 2:
            got.append(second.get(30))
            second.consume()
        equal(sorted(got), [b"1", b"3"])
        equal(second.get(1), None)
        waiter = threading.Timer(0.3, lambda: z.LockingQueue(q).put(b"late"))
        waiter.start()
        equal(first.get(30), b"late", "a waiting consumer wakes")
        equal(first.consume(), True)


@check
def party_lists_its_members():
    with clients(2) as (a, b):
        d = fresh(a, "party")
        pa, pb = a.Party(d + "/p", "ann"), b.Party(d + "/p", "bob")
        pa.join()
        pb.join()
        catch_up(a)
        equal(sorted(pa), ["ann", "bob"])
        pb.leave()
        eventually(lambda: list(pa) == ["ann"], "bob left")
        sa, sb = a.ShallowParty(d + "/s", "ann"), b.ShallowParty(d + "/s", "bob")
        sa.join()
        sb.join()
        catch_up(a, b)
        equal((len(sa), sorted(sb)), (2, ["ann", "bob"]))


@check
def set_partitioner_divides_and_divides_again():
    items = tuple(range(6))
    with client() as z:
        d = fresh(z, "partition")
        members = []
        stop = threading.Event()
        shares = {}

        def member(name):
            with client() as mine:
                p = mine.SetPartitioner(d + "/p", items, identifier=name, time_boundary=0.4)
                while not stop.is_set() and not p.failed:
                    if p.release:
                        shares.pop(name, None)
                        p.release_set()
                    elif p.acquired:
                        shares[name] = sorted(p)
                        time.sleep(0.02)
                    else:
                        p.wait_for_acquire(0.2)
                shares.pop(name, None)
                p.finish()

        def divided(n):
            now = list(shares.values())
            return len(now) == n and sorted(x for s in now for x in s) == list(items)

        try:
            for n in (1, 2):
                t = threading.Thread(target=member, args=("m%d" % n,), daemon=True)
                t.start()
                members.append(t)
                eventually(lambda: divided(n), "divided among %d" % n)
        finally:
            stop.set()
            for t in members:
                t.join(20)


@check
def non_blocking_lease():
    import datetime

    with clients(2) as (a, b):
        d = fresh(a, "lease") + "/" + uuid.uuid4().hex
        length = datetime.timedelta(seconds=60)
        equal(bool(a.NonBlockingLease(d, length)), True)
        catch_up(b)
        equal(bool(b.NonBlockingLease(d, length, identifier="other")), False)
