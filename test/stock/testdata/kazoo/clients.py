"""Clients of the checks."""

import contextlib

from kazoo.client import KazooClient

from checks import ROOT, ZK


@contextlib.contextmanager
def client(hosts=ZK, **kw):
    z = KazooClient(hosts, timeout=kw.pop("timeout", 30), **kw)
    z.start(timeout=20)
    try:
        yield z
    finally:
        z.stop()
        z.close()


@contextlib.contextmanager
def clients(n, **kw):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(client(**kw)) for _ in range(n)]


def catch_up(*zs):
    """Lets clients of other servers see what has been written so far."""
    for z in zs:
        z.sync("/")


def fresh(z, name):
    """Makes an empty directory of its own for a check."""
    path = "%s/%s" % (ROOT, name)
    z.ensure_path(path)
    return path
