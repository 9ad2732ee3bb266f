"""SASL DIGEST-MD5 of kazoo, against a server that knows jaasuser."""
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, NoAuthError
from kazoo.security import make_acl

hosts = sys.argv[1]


def client(chroot="", user=None, password=None, **more):
    if user:
        more["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    return KazooClient(hosts + chroot, **more)


def refused(c):
    try:
        c.start(15)
        c.exists("/")
    except AuthFailedError:
        return
    finally:
        c.stop()
        c.close()
    sys.exit("a client with a wrong password was let in")


mine = (make_acl("sasl", credential="jaasuser", all=True),)
bob = client(user="jaasuser", password="jaas_password")
bob.start(15)
bob.create("/bobs", b"x", acl=mine)
assert bob.get("/bobs")[0] == b"x"

other = client()
other.start(15)
other.ensure_path("/chroot")
try:
    other.get("/bobs")
    sys.exit("somebody else reads what is the user's alone")
except NoAuthError:
    pass

for _ in range(3):
    refused(client("/chroot", "jaasuser", "wrong"))
    refused(client("/chroot", "nobody", "jaas_password"))

legacy = client(auth_data=[("sasl", "jaasuser:jaas_password")])
legacy.start(15)
assert legacy.get("/bobs")[0] == b"x"
for c in (bob, other, legacy):
    c.stop()
    c.close()
