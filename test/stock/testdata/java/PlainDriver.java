import static org.apache.zookeeper.ZooDefs.Ids.OPEN_ACL_UNSAFE;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.AsyncCallback;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZKUtil;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.ClientInfo;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;

/** Runs the Java client that ships with ZooKeeper 3.8. */
public final class PlainDriver {
    /** Collects the events of one handle. */
    static final class Events implements Watcher {
        final LinkedBlockingQueue<WatchedEvent> states = new LinkedBlockingQueue<>();
        final LinkedBlockingQueue<String> events = new LinkedBlockingQueue<>();
        final CountDownLatch connected = new CountDownLatch(1);

        @Override
        public void process(WatchedEvent e) {
            if (e.getType() == Event.EventType.None) {
                if (e.getState() == Event.KeeperState.SyncConnected) {
                    connected.countDown();
                }
                states.add(e);
            } else {
                events.add(e.getType() + " " + e.getPath());
            }
        }

        void expect(String... want) throws Exception {
            for (String w : want) {
                Checks.equal(events.poll(60, TimeUnit.SECONDS), w, "event");
            }
        }

        void silent() throws Exception {
            Checks.equal(events.poll(100, TimeUnit.MILLISECONDS), null, "no event");
        }

        void state(Watcher.Event.KeeperState want) throws Exception {
            for (;;) {
                WatchedEvent e = states.poll(60, TimeUnit.SECONDS);
                Checks.that(e != null, "state " + want + " never came");
                if (e.getState() == want) {
                    return;
                }
            }
        }
    }

    /** A handle together with its events. */
    static final class Handle implements AutoCloseable {
        final Events events = new Events();
        final ZooKeeper zk;

        Handle(String hosts) throws Exception {
            zk = new ZooKeeper(hosts, 30_000, events);
            Checks.that(events.connected.await(60, TimeUnit.SECONDS), "connected");
        }

        String dir(String name) throws Exception {
            String path = Checks.ROOT + "/" + name;
            for (String p : new String[] {Checks.ROOT, path}) {
                try {
                    zk.create(p, new byte[0], OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                } catch (KeeperException.NodeExistsException e) {
                    // an earlier check has made it
                }
            }
            return path;
        }

        /** Waits until the server has seen everything written before. */
        Handle caughtUp() throws Exception {
            CountDownLatch done = new CountDownLatch(1);
            zk.sync("/", (rc, path, ctx) -> done.countDown(), null);
            Checks.that(done.await(60, TimeUnit.SECONDS), "sync");
            return this;
        }

        @Override
        public void close() throws InterruptedException {
            zk.close();
        }
    }

    static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    public static void main(String[] args) {
        Checks.check("create-modes-and-stat", PlainDriver::createModes);
        Checks.check("null-and-empty-data-differ", PlainDriver::nullData);
        Checks.check("multi-results-and-errors", PlainDriver::multi);
        Checks.check("multi-read", PlainDriver::multiRead);
        Checks.check("add-watch-persistent", PlainDriver::persistentWatch);
        Checks.check("add-watch-recursive", PlainDriver::recursiveWatch);
        Checks.check("remove-watches", PlainDriver::removeWatches);
        Checks.check("get-ephemerals", PlainDriver::getEphemerals);
        Checks.check("get-all-children-number", PlainDriver::childrenNumber);
        Checks.check("who-am-i", PlainDriver::whoAmI);
        Checks.check("acl-and-auth", PlainDriver::acl);
        Checks.check("auth-failure-ends-the-handle", PlainDriver::authFails);
        Checks.check("async-order-across-operations", PlainDriver::asyncOrder);
        Checks.check("watch-comes-before-later-reply", PlainDriver::watchOrder);
        Checks.check("delete-recursive-pipelined", PlainDriver::deleteRecursive);
        Checks.check("config-node", PlainDriver::config);
        Checks.check("reconfig-is-refused-politely", PlainDriver::reconfig);
        Checks.check("reconnect-keeps-all-kinds-of-watches", PlainSessions::reconnect);
        Checks.check("second-handle-takes-the-session-over", PlainSessions::move);
        Checks.check("closing-a-second-handle-expires-the-first", PlainSessions::expire);
        Checks.check("wrong-password-is-refused", PlainSessions::wrongPassword);
        Checks.check("chroot", PlainSessions::chroot);
        Checks.runAll(args);
        System.exit(0);
    }

    static void createModes() throws Exception {
        try (Handle h = new Handle(Checks.ZK)) {
            String d = h.dir("modes");
            Stat stat = new Stat();
            for (CreateMode m : CreateMode.values()) {
                String path = d + "/" + m.name().toLowerCase() + "-";
                String made = h.zk.create(path, bytes("x"), OPEN_ACL_UNSAFE, m, stat, m.isTTL() ? 60_000 : -1);
                Checks.that(m.isSequential() ? made.matches(path + "[0-9]{10}") : made.equals(path), made);
                Stat seen = h.zk.exists(made, false);
                Checks.equal(seen, stat, "stat of create2 and of exists");
                Checks.equal(seen.getEphemeralOwner(), m.isEphemeral() ? h.zk.getSessionId() : 0L, m + " owner");
            }
            Stat parent = h.zk.exists(d, false);
            Checks.equal(parent.getNumChildren(), CreateMode.values().length, "children");
            Checks.equal(parent.getCversion(), CreateMode.values().length, "cversion");
            Checks.equal(parent.getPzxid(), stat.getCzxid(), "pzxid");
        }
    }

    static void nullData() throws Exception {
        try (Handle h = new Handle(Checks.ZK)) {
            String d = h.dir("null");
            h.zk.create(d + "/null", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            h.zk.create(d + "/empty", new byte[0], OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            Checks.equal(h.zk.getData(d + "/null", false, null), null, "null data");
            Checks.equal(h.zk.getData(d + "/empty", false, null).length, 0, "empty data");
        }
    }

    static void multi() throws Exception {
        try (Handle h = new Handle(Checks.ZK)) {
            String d = h.dir("multi");
            List<OpResult> r = h.zk.multi(Arrays.asList(
                Op.create(d + "/a", bytes("1"), OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
                Op.create(d + "/c", bytes("1"), OPEN_ACL_UNSAFE, CreateMode.CONTAINER),
                Op.create(d + "/t", bytes("1"), OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, 60_000),
                Op.create(d + "/a/s-", bytes("1"), OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL),
                Op.setData(d + "/a", bytes("2"), 0),
                Op.check(d + "/a", 1),
                Op.delete(d + "/t", -1)));
            Checks.equal(((OpResult.CreateResult) r.get(3)).getPath(), d + "/a/s-0000000000", "sequential in multi");
            Checks.equal(((OpResult.SetDataResult) r.get(4)).getStat().getVersion(), 1, "version");
            Stat a = h.zk.exists(d + "/a", false);
            Checks.equal(a.getCzxid(), a.getMzxid(), "one zxid for the whole multi");
            try {
                h.zk.multi(Arrays.asList(
                    Op.setData(d + "/a", bytes("3"), 1),
                    Op.delete(d + "/a", -1),
                    Op.create(d + "/b", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT)));
                throw new AssertionError("multi should fail");
            } catch (KeeperException.NotEmptyException e) {
                List<OpResult> list = e.getResults();
                int[] codes = new int[list.size()];
                for (int i = 0; i < codes.length; i++) {
                    codes[i] = ((OpResult.ErrorResult) list.get(i)).getErr();
                }
                Checks.equal(Arrays.toString(codes), "[0, -111, -2]", "codes");
            }
            Checks.equal(h.zk.exists(d + "/a", false), a, "nothing changed");
            Checks.equal(h.zk.multi(Collections.emptyList()).size(), 0, "empty multi");
        }
    }

    static void multiRead() throws Exception {
        try (Handle h = new Handle(Checks.ZK)) {
            String d = h.dir("multiread");
            h.zk.create(d + "/a", bytes("A"), OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            List<OpResult> r = h.zk.multi(Arrays.asList(Op.getData(d + "/a"), Op.getChildren(d), Op.getData(d + "/none")));
            Checks.equal(new String(((OpResult.GetDataResult) r.get(0)).getData()), "A", "data");
            Checks.equal(((OpResult.GetChildrenResult) r.get(1)).getChildren(), List.of("a"), "children");
            Checks.equal(((OpResult.ErrorResult) r.get(2)).getErr(), -101, "missing");
        }
    }

    static void persistentWatch() throws Exception {
        try (Handle h = new Handle(Checks.ZK); Handle w = new Handle(Checks.ZK)) {
            String d = h.dir("persistent");
            h.zk.addWatch(d + "/n", AddWatchMode.PERSISTENT);
            w.zk.create(d + "/n", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            w.zk.setData(d + "/n", bytes("1"), -1);
            w.zk.setData(d + "/n", bytes("2"), -1);
            w.zk.create(d + "/n/kid", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            w.zk.setData(d + "/n/kid", bytes("2"), -1);
            w.zk.delete(d + "/n/kid", -1);
            w.zk.delete(d + "/n", -1);
            w.zk.create(d + "/n", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            h.events.expect("NodeCreated " + d + "/n", "NodeDataChanged " + d + "/n", "NodeDataChanged " + d + "/n",
                "NodeChildrenChanged " + d + "/n", "NodeChildrenChanged " + d + "/n", "NodeDeleted " + d + "/n",
                "NodeCreated " + d + "/n");
            h.events.silent();
        }
    }

    static void recursiveWatch() throws Exception {
        try (Handle h = new Handle(Checks.ZK); Handle w = new Handle(Checks.ZK)) {
            String d = h.dir("recursive");
            h.zk.addWatch(d, AddWatchMode.PERSISTENT_RECURSIVE);
            w.zk.create(d + "/a", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            w.zk.create(d + "/a/b", null, OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
            w.zk.setData(d + "/a/b", bytes("1"), -1);
            w.zk.setData(d, bytes("1"), -1);
            w.zk.delete(d + "/a/b", -1);
            w.zk.delete(d + "/a", -1);
            h.events.expect("NodeCreated " + d + "/a", "NodeCreated " + d + "/a/b", "NodeDataChanged " + d + "/a/b",
                "NodeDataChanged " + d, "NodeDeleted " + d + "/a/b", "NodeDeleted " + d + "/a");
            h.events.silent();
        }
    }

    static void removeWatches() throws Exception {
        try (Handle h = new Handle(Checks.ZK); Handle w = new Handle(Checks.ZK)) {
            String d = h.dir("remove");
            Events mine = new Events();
            h.zk.exists(d + "/n", mine);
            h.zk.getChildren(d, mine);
            h.zk.removeWatches(d, mine, Watcher.WatcherType.Children, false);
            mine.expect("ChildWatchRemoved " + d);
            w.zk.create(d + "/n", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            mine.expect("NodeCreated " + d + "/n");
            mine.silent();
            Checks.raises(KeeperException.NoWatcherException.class,
                () -> h.zk.removeWatches(d + "/n", mine, Watcher.WatcherType.Data, false));
            h.caughtUp().zk.addWatch(d, mine, AddWatchMode.PERSISTENT_RECURSIVE);
            w.zk.setData(d + "/n", bytes("1"), -1);
            mine.expect("NodeDataChanged " + d + "/n");
            h.zk.removeAllWatches(d, Watcher.WatcherType.Any, false);
            mine.expect("PersistentWatchRemoved " + d);
            w.zk.setData(d + "/n", bytes("2"), -1);
            mine.silent();
        }
    }

    static void getEphemerals() throws Exception {
        try (Handle h = new Handle(Checks.ZK)) {
            String d = h.dir("ephemerals");
            for (String n : new String[] {"a1", "a2", "b1"}) {
                h.zk.create(d + "/" + n, null, OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
            }
            Checks.equal(new TreeSet<>(h.zk.getEphemerals(d + "/a")).toString(), "[" + d + "/a1, " + d + "/a2]", "by prefix");
            Checks.equal(h.zk.getEphemerals().size(), 3, "all");
        }
    }

    static void childrenNumber() throws Exception {
        try (Handle h = new Handle(Checks.ZK)) {
            String d = h.dir("number");
            h.zk.create(d + "/a", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            h.zk.create(d + "/a/b", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            Checks.equal(h.zk.getAllChildrenNumber(d), 2, "whole subtree");
        }
    }

    static void whoAmI() throws Exception {
        try (Handle h = new Handle(Checks.ZK)) {
            h.zk.addAuthInfo("digest", bytes("ann:pw"));
            TreeSet<String> seen = new TreeSet<>();
            for (ClientInfo i : h.zk.whoAmI()) {
                seen.add(i.getAuthScheme() + ":" + i.getUser());
            }
            Checks.equal(seen.toString(), "[digest:ann, ip:127.0.0.1]", "identities");
        }
    }

    static void acl() throws Exception {
        try (Handle h = new Handle(Checks.ZK); Handle o = new Handle(Checks.ZK)) {
            String d = h.dir("acl");
            h.zk.addAuthInfo("digest", bytes("ann:pw"));
            h.zk.create(d + "/n", bytes("1"), org.apache.zookeeper.ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
            Checks.raises(KeeperException.NoAuthException.class, () -> o.caughtUp().zk.getData(d + "/n", false, null));
            Stat stat = new Stat();
            List<ACL> acl = h.zk.getACL(d + "/n", stat);
            Checks.equal(acl.get(0).getId().getScheme(), "digest", "scheme");
            Checks.equal(acl.get(0).getId().getId().startsWith("ann:"), true, "id");
            h.zk.setACL(d + "/n", Arrays.asList(new ACL(1, new Id("ip", "127.0.0.0/8"))), stat.getAversion());
            Checks.equal(new String(o.caughtUp().zk.getData(d + "/n", false, null)), "1", "ip may read");
            Checks.raises(KeeperException.NoAuthException.class, () -> h.zk.setData(d + "/n", null, -1));
            Checks.raises(KeeperException.InvalidACLException.class,
                () -> h.zk.create(d + "/x", null, Arrays.asList(new ACL(31, new Id("digest", "nocolon"))), CreateMode.PERSISTENT));
        }
    }

    static void authFails() throws Exception {
        Handle h = new Handle(Checks.ZK);
        h.zk.addAuthInfo("nosuchscheme", bytes("x"));
        h.events.state(Watcher.Event.KeeperState.AuthFailed);
        Checks.raises(KeeperException.AuthFailedException.class, () -> h.zk.exists("/", false));
        h.close();
    }

    static void asyncOrder() throws Exception {
        try (Handle h = new Handle(Checks.ZK)) {
            String d = h.dir("async");
            List<String> order = Collections.synchronizedList(new ArrayList<>());
            CountDownLatch done = new CountDownLatch(900);
            for (int i = 0; i < 300; i++) {
                String path = d + "/n" + i;
                h.zk.create(path, bytes("x"), OPEN_ACL_UNSAFE, CreateMode.PERSISTENT, (rc, p, ctx, name) -> {
                    order.add(rc + " c " + p);
                    done.countDown();
                }, null);
                h.zk.getData(path, false, (AsyncCallback.DataCallback) (rc, p, ctx, data, stat) -> {
                    order.add(rc + " g " + p);
                    done.countDown();
                }, null);
                h.zk.delete(path, -1, (rc, p, ctx) -> {
                    order.add(rc + " d " + p);
                    done.countDown();
                }, null);
            }
            Checks.that(done.await(60, TimeUnit.SECONDS), "all answered");
            for (int i = 0; i < 900; i++) {
                Checks.equal(order.get(i), "0 " + "cgd".charAt(i % 3) + " " + d + "/n" + i / 3, "callback " + i);
            }
        }
    }

    static void watchOrder() throws Exception {
        try (Handle h = new Handle(Checks.ZK); Handle w = new Handle(Checks.ZK)) {
            String d = h.dir("order");
            h.zk.create(d + "/n", bytes("0"), OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            for (int i = 1; i <= 50; i++) {
                AtomicInteger seen = new AtomicInteger();
                h.caughtUp().zk.getData(d + "/n", e -> seen.incrementAndGet(), null);
                w.zk.setData(d + "/n", bytes("" + i), -1);
                // A client that reads the new value must have got the event before.
                CountDownLatch done = new CountDownLatch(1);
                int[] at = {-1};
                String want = "" + i;
                AsyncCallback.DataCallback[] again = new AsyncCallback.DataCallback[1];
                again[0] = (rc, p, ctx, data, stat) -> {
                    if (!new String(data).equals(want)) {
                        h.zk.getData(d + "/n", false, again[0], null); // not the new value yet
                        return;
                    }
                    at[0] = seen.get();
                    done.countDown();
                };
                h.zk.getData(d + "/n", false, again[0], null);
                Checks.that(done.await(60, TimeUnit.SECONDS), "value seen");
                Checks.equal(at[0], 1, "events before the new value");
            }
        }
    }

    static void deleteRecursive() throws Exception {
        try (Handle h = new Handle(Checks.ZK)) {
            String d = h.dir("tree");
            for (int i = 0; i < 20; i++) {
                h.zk.create(d + "/" + i, null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                for (int j = 0; j < 20; j++) {
                    h.zk.create(d + "/" + i + "/" + j, null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                }
            }
            Checks.that(ZKUtil.deleteRecursive(h.zk, d, 1000), "deleted");
            Checks.equal(h.zk.exists(d, false), null, "gone");
        }
    }

    static void config() throws Exception {
        try (Handle h = new Handle(Checks.ZK)) {
            Stat stat = new Stat();
            byte[] config = h.zk.getConfig(false, stat);
            Checks.that(config != null, "config node answers");
            Checks.equal(h.zk.getACL("/zookeeper/config", new Stat()), Arrays.asList(new ACL(1, new Id("world", "anyone"))), "acl");
        }
    }

    static void reconfig() throws Exception {
        try (Handle h = new Handle(Checks.ZK)) {
            h.zk.addAuthInfo("digest", bytes("super:test"));
            org.apache.zookeeper.admin.ZooKeeperAdmin admin =
                new org.apache.zookeeper.admin.ZooKeeperAdmin(Checks.ZK, 10_000, e -> { });
            try {
                Checks.raises(KeeperException.class, () -> admin.reconfigure(null, "77", null, -1, new Stat()));
            } finally {
                admin.close();
            }
        }
    }
}
