"""Sessions: expiry, moves, reconnects with watches."""

import threading

from kazoo.client import KazooClient, KazooState

from checks import RELAY, ZK, Referee, check, equal, eventually
from clients import catch_up, client, fresh


@check
def session_expires_by_its_second_handle():
    with client() as z, client() as observer:
        d = fresh(z, "expire")
        z.create(d + "/e", b"", ephemeral=True)
        states = []
        lost = threading.Event()

        def listen(state):
            states.append(state)
            if state == KazooState.LOST:
                lost.set()

        z.add_listener(listen)
        old = z.client_id[0]
        for _ in range(10):
            second = KazooClient(ZK, client_id=z.client_id)
            # The first handle may take the session back before the second sees
            # that it is connected, or before it closes the session.
            try:
                second.start(20)
            except second.handler.timeout_exception:
                pass
            second.stop()
            second.close()
            if lost.wait(2):
                break
        equal(lost.is_set(), True, "LOST reached the first handle")
        eventually(lambda: observer.exists(d + "/e") is None, "the ephemeral is gone")
        eventually(lambda: z.connected and z.client_id[0] != old, "a new session")
        z.create(d + "/e", b"", ephemeral=True)


@check
def silent_session_expires():
    import time

    ref = Referee()
    with client() as observer:
        d = fresh(observer, "silent")
        z = KazooClient(RELAY, timeout=10)
        z.start(20)
        z.create(d + "/e", b"", ephemeral=True)
        gone = threading.Event()
        catch_up(observer)
        observer.exists(d + "/e", watch=lambda e: gone.set())
        start = time.monotonic()
        equal(ref.say("refuse 60000"), "ok")
        equal(gone.wait(60), True, "the ephemeral goes")
        took = time.monotonic() - start
        z.stop()
        z.close()
        equal(ref.say("refuse 0"), "ok")
        equal(took >= 2, True, "no expiry after %.1f s of a 10 s timeout" % took)


@check
def reconnect_keeps_session_ephemerals_and_watches():
    ref = Referee()
    with client(hosts=RELAY) as z, client() as writer:
        d = fresh(z, "reconnect")
        z.create(d + "/e", b"", ephemeral=True)
        z.create(d + "/n", b"0")
        data, children, states = [], [], []
        z.DataWatch(d + "/n", lambda v, stat: data.append(v))
        z.ChildrenWatch(d, lambda names: children.append(sorted(names)))
        z.add_listener(states.append)
        sid = z.client_id[0]
        for i in range(3):
            before = len(states)
            equal(ref.say("refuse 200"), "ok")
            eventually(lambda: KazooState.SUSPENDED in states[before:], "suspended")
            writer.set(d + "/n", b"cut%d" % i)
            writer.create(d + "/c%d" % i)
            eventually(lambda: states[-1] == KazooState.CONNECTED, "connected again")
            eventually(lambda: data[-1] == b"cut%d" % i, "data changed behind the cut")
            eventually(lambda: "c%d" % i in children[-1], "child created behind the cut")
            equal(z.client_id[0], sid, "same session")
        catch_up(writer)
        equal(writer.exists(d + "/e").ephemeralOwner, sid)


@check
def retry_rides_over_cuts():
    ref = Referee()
    with client(hosts=RELAY) as z:
        d = fresh(z, "retry")
        z.create(d + "/n", b"")
        for i in range(30):
            if i % 10 == 5:
                ref.say("cut")
            z.retry(z.set, d + "/n", b"%d" % i)
        equal(z.get(d + "/n")[0], b"29")


@check
def hundred_sessions_come_and_go():
    with client() as z:
        d = fresh(z, "many")
        for _ in range(5):
            many = [KazooClient(ZK) for _ in range(20)]
            for m in many:
                m.start_async()
            for m in many:
                eventually(lambda: m.connected, "connected")
                m.create(d + "/n-", ephemeral=True, sequence=True)
            catch_up(z)
            equal(len(z.get_children(d)), 20)
            for m in many:
                m.stop()
                m.close()
            eventually(lambda: z.get_children(d) == [], "ephemerals gone")
