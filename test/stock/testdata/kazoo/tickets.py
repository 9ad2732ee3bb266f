"""SASL GSSAPI by kazoo, and with tokens that the program sends itself: prints
what the server answers.

tickets.py HOST:PORT NAME, with a Kerberos ticket in the cache.
"""
import base64
import socket
import struct
import sys

import kerberos
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_acl

hosts, name = sys.argv[1:3]
gssapi = {"mechanism": "GSSAPI"}


def show(what, do):
    try:
        print(what, do())
    except KazooException as e:
        print(what, type(e).__name__)


def start(**options):
    c = KazooClient(hosts, connection_retry={"max_tries": 0}, command_retry={"max_tries": 0}, **options)
    c.start(15)
    return c


def stop(c):
    c.stop()
    c.close()


def signed_in():
    c = start(sasl_options=dict(gssapi))
    c.create("/" + name, b"x", acl=(make_acl("auth", "", all=True),))
    acls = sorted(str(a.id) for a in c.get_acls("/" + name)[0])
    assert c.get("/" + name)[0] == b"x"
    c.create("/" + name + "-foreign", b"x", acl=(make_acl("sasl", "somebody else", all=True),))
    show("a foreign node", lambda: c.get("/" + name + "-foreign"))
    stop(c)
    return acls


def another_service():
    try:
        c = start(sasl_options=dict(gssapi, service="other"))
    except (KazooException, KazooTimeoutError):
        # kazoo sees the end of the connection, or first reads the answer, with a code that it does not know.
        return "refused"
    try:
        return c.exists("/")
    finally:
        stop(c)


def ticket():
    _, context = kerberos.authGSSClientInit("zookeeper@localhost", gssflags=kerberos.GSS_C_SEQUENCE_FLAG)
    kerberos.authGSSClientStep(context, "")
    return base64.b64decode(kerberos.authGSSClientResponse(context))


def by_hand(*tokens):
    """Sends tokens on a connection of its own, and returns the errors of the answers."""
    return requests(*((102, struct.pack(">i", len(t)) + t) for t in tokens))


def stranger():
    """Reads without a ticket. kazoo does not know all of the errors."""
    path = b"/" + name.encode()
    return requests((4, struct.pack(">i", len(path)) + path + b"\0"))


def requests(*list_of):
    host, port = hosts.rsplit(":", 1)
    s = socket.create_connection((host, int(port)), 15)
    codes = []

    def send(body):
        s.sendall(struct.pack(">i", len(body)) + body)

    def receive():
        n, = struct.unpack(">i", read(4))
        return read(n)

    def read(n):
        b = b""
        while len(b) < n:
            more = s.recv(n - len(b))
            if not more:
                raise ConnectionError
            b += more
        return b

    send(struct.pack(">iqiqi", 0, 0, 10000, 0, 16) + bytes(16) + b"\0")
    receive()
    try:
        for xid, (op, body) in enumerate(list_of, 1):
            send(struct.pack(">ii", xid, op) + body)
            reply = receive()
            codes.append(struct.unpack(">i", reply[12:16])[0])
    except ConnectionError:
        codes.append("closed")
    s.close()
    return codes


show("identity", signed_in)
show("a stranger", stranger)
show("another service", another_service)
token = ticket()
show("a ticket", lambda: by_hand(token))
show("a replay", lambda: by_hand(token))
show("a token changed", lambda: by_hand(token[:-1] + bytes([token[-1] ^ 1])))
show("a ticket changed", lambda: (lambda t: by_hand(t[:300] + bytes([t[300] ^ 1]) + t[301:]))(ticket()))
show("a token cut", lambda: by_hand(ticket()[:-10]))
show("no token", lambda: by_hand(b""))
show("garbage", lambda: by_hand(b"garbage"))
show("a ticket twice", lambda: by_hand(ticket(), ticket()))
