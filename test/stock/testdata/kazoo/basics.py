"""Plain operations, ACLs, transactions, server facts."""

import kazoo.exceptions as ex
from kazoo.security import make_acl, make_digest_acl

from checks import check, equal, eventually, raises
from clients import catch_up, client, fresh


@check
def create_get_set_delete():
    with client() as z:
        d = fresh(z, "basic")
        equal(z.create(d + "/a", b"one"), d + "/a")
        data, stat = z.get(d + "/a")
        equal((data, stat.version, stat.dataLength, stat.ephemeralOwner), (b"one", 0, 3, 0))
        stat = z.set(d + "/a", b"three")
        equal((stat.version, stat.dataLength), (1, 5))
        raises(ex.BadVersionError, z.set, d + "/a", b"x", version=0)
        raises(ex.NodeExistsError, z.create, d + "/a")
        raises(ex.NoNodeError, z.get, d + "/b")
        raises(ex.NoNodeError, z.create, d + "/b/c")
        equal(z.exists(d + "/b"), None)
        raises(ex.NotEmptyError, z.delete, d[: d.rindex("/")])
        z.delete(d + "/a", version=1)
        equal(z.get_children(d), [])


@check
def sequence_numbers_rise():
    with client() as z:
        d = fresh(z, "seq")
        names = [z.create(d + "/n-", sequence=True) for _ in range(3)]
        equal(names, [d + "/n-%010d" % i for i in range(3)])
        z.delete(names[2])
        equal(z.create(d + "/", sequence=True, ephemeral=True), d + "/%010d" % 3)


@check
def ephemerals_belong_to_their_session():
    with client() as z:
        d = fresh(z, "eph")
        with client() as other:
            other.create(d + "/e", ephemeral=True)
            catch_up(z)
            equal(z.exists(d + "/e").ephemeralOwner, other.client_id[0])
            raises(ex.NoChildrenForEphemeralsError, z.create, d + "/e/kid")
        eventually(lambda: z.exists(d + "/e") is None, "ephemeral gone after close")


@check
def children_with_stat_and_create_with_stat():
    with client() as z:
        d = fresh(z, "children")
        path, stat = z.create(d + "/a", b"xy", include_data=True)
        equal((path, stat.dataLength, stat.numChildren), (d + "/a", 2, 0))
        z.create(d + "/b")
        names, stat = z.get_children(d, include_data=True)
        equal((sorted(names), stat.numChildren, stat.cversion), (["a", "b"], 2, 2))


@check
def makepath_and_recursive_delete():
    with client() as z:
        d = fresh(z, "deep")
        z.create(d + "/a/b/c/d", b"v", makepath=True)
        equal(z.get(d + "/a/b/c/d")[0], b"v")
        z.delete(d, recursive=True)
        equal(z.exists(d), None)


@check
def sync_returns_the_path():
    with client() as z:
        equal(z.sync("/"), "/")


@check
def many_requests_in_flight_keep_their_order():
    with client() as z:
        d = fresh(z, "pipeline")
        z.create(d + "/n", b"")
        pending = []
        for i in range(500):
            pending.append((i, z.set_async(d + "/n", b"%d" % i), z.get_async(d + "/n")))
        for i, write, read in pending:
            equal(write.get(20).version, i + 1)
            equal(read.get(20)[0], b"%d" % i)


@check
def acls_are_enforced():
    owner = make_digest_acl("kaz", "secret", all=True)
    reader = make_acl("world", "anyone", read=True)
    with client(auth_data=[("digest", "kaz:secret")]) as z, client() as other:
        d = fresh(z, "acl")
        z.create(d + "/mine", b"m", acl=[owner, reader])
        catch_up(other)
        equal(other.get(d + "/mine")[0], b"m")
        raises(ex.NoAuthError, other.set, d + "/mine", b"no")
        raises(ex.NoAuthError, other.set_acls, d + "/mine", [reader])
        acls, stat = z.get_acls(d + "/mine")
        equal((set(acls), stat.aversion), ({owner, reader}, 0))
        equal(z.set_acls(d + "/mine", [owner]).aversion, 1)
        catch_up(other)
        raises(ex.NoAuthError, other.get, d + "/mine")
        raises(ex.BadVersionError, z.set_acls, d + "/mine", [reader], version=0)
        raises(ex.InvalidACLError, z.create, d + "/bad", acl=[make_acl("nosuch", "x", all=True)])
        other.add_auth("digest", "kaz:secret")
        equal(other.get(d + "/mine")[0], b"m")


@check
def default_acl_and_auth_scheme():
    with client(auth_data=[("digest", "u:p")]) as z, client() as other:
        d = fresh(z, "creator")
        z.create(d + "/c", b"", acl=[make_acl("auth", "", all=True)])
        catch_up(other)
        raises(ex.NoAuthError, other.get, d + "/c")
        (acl,), _ = z.get_acls(d + "/c")
        equal((acl.id.scheme, acl.id.id.split(":")[0], acl.perms), ("digest", "u", 31))
        raises(ex.InvalidACLError, other.create, d + "/x", acl=[make_acl("auth", "", all=True)])


@check
def super_user_passes_every_acl():
    with client() as z, client(auth_data=[("digest", "super:test")]) as boss:
        d = fresh(z, "super")
        z.create(d + "/locked", b"s", acl=[make_digest_acl("no", "body", all=True)])
        raises(ex.NoAuthError, z.get, d + "/locked")
        catch_up(boss)
        equal(boss.get(d + "/locked")[0], b"s")


@check
def transactions_are_atomic():
    with client() as z:
        d = fresh(z, "txn")
        t = z.transaction()
        t.create(d + "/a", b"1")
        t.set_data(d + "/a", b"2")
        t.create(d + "/a/s-", sequence=True)
        t.check(d + "/a", 1)
        r = t.commit()
        equal((r[0], r[1].version, r[2], r[3]), (d + "/a", 1, d + "/a/s-0000000000", True))
        t = z.transaction()
        t.create(d + "/b")
        t.check(d + "/a", 7)
        t.delete(d + "/a")
        r = t.commit()
        equal([type(x) for x in r], [ex.RolledBackError, ex.BadVersionError, ex.RuntimeInconsistency])
        equal(z.exists(d + "/b"), None)
        with z.transaction() as t:
            t.delete(d + "/a/s-0000000000")
            t.delete(d + "/a")
        equal(z.get_children(d), [])


@check
def large_values_up_to_the_limit():
    with client() as z:
        d = fresh(z, "large")
        big = bytes(range(256)) * 4000  # 1,024,000 bytes
        z.create(d + "/big", big)
        equal(z.get(d + "/big")[0] == big, True, "a megabyte returns")


@check
def unicode_paths():
    with client() as z:
        d = fresh(z, "unicode")
        z.create(d + "/grüße-東京", b"")
        equal(z.get_children(d), ["grüße-東京"])


@check
def chroot_is_prefixed_by_the_client():
    from checks import ZK

    with client() as z:
        d = fresh(z, "chroot")
        with client(hosts=ZK + d) as inner:
            inner.create("/in", b"x")
            equal(inner.get_children("/"), ["in"])
        catch_up(z)
        equal(z.get(d + "/in")[0], b"x")


@check
def server_version_is_parsed():
    with client() as z:
        version = z.server_version()
        equal(version >= (3, 5), True, "server_version %r" % (version,))


@check
def four_letter_words_by_command():
    with client() as z:
        equal(z.command(b"ruok"), "imok")
        equal("Mode: " in z.command(b"srvr"), True, "srvr names a mode")
        equal("zk_znode_count" in z.command(b"mntr"), True, "mntr")
