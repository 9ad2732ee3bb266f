"""Watches and the caches built on them."""

import threading

from kazoo.recipe.cache import TreeCache, TreeEvent
from kazoo.recipe.watchers import PatientChildrenWatch

from checks import check, equal, eventually
from clients import catch_up, client, fresh


@check
def one_shot_watches_fire_once():
    with client() as z, client() as writer:
        d = fresh(z, "watch")
        seen = []
        z.exists(d + "/n", watch=lambda e: seen.append((e.type, e.path)))
        z.get_children(d, watch=lambda e: seen.append((e.type, e.path)))
        writer.create(d + "/n", b"")
        eventually(lambda: len(seen) == 2, "created and child event")
        equal(sorted(seen), [("CHILD", d), ("CREATED", d + "/n")])
        catch_up(z)
        z.get(d + "/n", watch=lambda e: seen.append((e.type, e.path)))
        writer.set(d + "/n", b"1")
        writer.set(d + "/n", b"2")
        eventually(lambda: len(seen) == 3, "changed event")
        catch_up(z)
        z.get(d + "/n", watch=lambda e: seen.append((e.type, e.path)))
        writer.delete(d + "/n")
        eventually(lambda: len(seen) == 4, "deleted event")
        equal(seen[2:], [("CHANGED", d + "/n"), ("DELETED", d + "/n")])


@check
def data_watch_sees_the_last_value():
    with client() as z, client() as writer:
        d = fresh(z, "datawatch")
        seen = []

        @z.DataWatch(d + "/n")
        def watch(data, stat, event):
            seen.append((data, event and event.type))

        eventually(lambda: seen == [(None, None)], "first call")
        writer.create(d + "/n", b"a")
        eventually(lambda: seen[-1] == (b"a", "CREATED"), "created")
        for i in range(20):
            writer.set(d + "/n", b"%d" % i)
        eventually(lambda: seen[-1][0] == b"19", "last value")
        writer.delete(d + "/n")
        eventually(lambda: seen[-1] == (None, "DELETED"), "deleted")


@check
def children_watch_sees_the_last_list():
    with client() as z, client() as writer:
        d = fresh(z, "childwatch")
        seen = []

        @z.ChildrenWatch(d)
        def watch(children):
            seen.append(sorted(children))

        for i in range(20):
            writer.create("%s/%02d" % (d, i))
        want = ["%02d" % i for i in range(20)]
        eventually(lambda: seen[-1] == want, "all children")
        for i in range(19):
            writer.delete("%s/%02d" % (d, i))
        eventually(lambda: seen[-1] == ["19"], "one child left")


@check
def patient_children_watch_settles():
    with client() as z, client() as writer:
        children = []
        for i in range(10):  # the writer may be too late: then try again
            d = fresh(z, "patient%d" % i)
            waiting = PatientChildrenWatch(z, d, time_boundary=0.3).start()
            writer.create(d + "/a")
            children, _ = waiting.get(timeout=30)
            if children:
                break
        equal(children, ["a"])


@check
def tree_cache_follows_a_subtree():
    with client() as z, client() as writer:
        d = fresh(z, "treecache")
        writer.create(d + "/old/kid", b"k", makepath=True)
        ready = threading.Event()
        kinds = []

        def listen(event):
            kinds.append(event.event_type)
            if event.event_type == TreeEvent.INITIALIZED:
                ready.set()

        catch_up(z)
        cache = TreeCache(z, d)
        cache.listen(listen)
        cache.start()
        equal(ready.wait(60), True, "initialised")
        equal(cache.get_data(d + "/old/kid").data, b"k")
        writer.set(d + "/old/kid", b"changed")
        writer.create(d + "/new", b"n")
        eventually(lambda: cache.get_data(d + "/new", None) is not None, "new node")
        eventually(lambda: cache.get_data(d + "/old/kid").data == b"changed", "update")
        writer.delete(d + "/old", recursive=True)
        eventually(lambda: cache.get_children(d) == frozenset(["new"]), "removal")
        for kind in (TreeEvent.NODE_ADDED, TreeEvent.NODE_UPDATED, TreeEvent.NODE_REMOVED):
            eventually(lambda: kind in kinds, "event %d" % kind)  # another thread calls listen()
        cache.close()
