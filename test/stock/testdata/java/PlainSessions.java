import static org.apache.zookeeper.ZooDefs.Ids.OPEN_ACL_UNSAFE;

import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

/** Sessions of the Java client: reconnects, moves, expiry. */
final class PlainSessions {
    private PlainSessions() {}

    static void reconnect() throws Exception {
        try (PlainDriver.Handle h = new PlainDriver.Handle(Checks.RELAY); PlainDriver.Handle w = new PlainDriver.Handle(Checks.ZK); Checks.Referee ref = new Checks.Referee()) {
            String d = h.dir("reconnect");
            h.zk.addAuthInfo("digest", PlainDriver.bytes("ann:pw"));
            h.zk.create(d + "/mine", null, ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.EPHEMERAL);
            for (String n : new String[] {"data", "gone", "quiet"}) {
                w.zk.create(d + "/" + n, null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            }
            w.zk.create(d + "/rec", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            PlainDriver.Events data = new PlainDriver.Events();
            PlainDriver.Events exist = new PlainDriver.Events();
            PlainDriver.Events child = new PlainDriver.Events();
            PlainDriver.Events gone = new PlainDriver.Events();
            PlainDriver.Events quiet = new PlainDriver.Events();
            PlainDriver.Events persistent = new PlainDriver.Events();
            PlainDriver.Events recursive = new PlainDriver.Events();
            h.caughtUp().zk.getData(d + "/data", data, null);
            h.zk.exists(d + "/born", exist);
            h.zk.getChildren(d, child);
            h.zk.getData(d + "/gone", gone, null);
            h.zk.getData(d + "/quiet", quiet, null);
            h.zk.addWatch(d + "/data", persistent, AddWatchMode.PERSISTENT);
            h.zk.addWatch(d + "/rec", recursive, AddWatchMode.PERSISTENT_RECURSIVE);
            long session = h.zk.getSessionId();
            Checks.equal(ref.say("refuse 300"), "ok", "cut");
            w.zk.setData(d + "/data", PlainDriver.bytes("1"), -1);
            w.zk.create(d + "/born", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            w.zk.delete(d + "/gone", -1);
            data.expect("NodeDataChanged " + d + "/data");
            exist.expect("NodeCreated " + d + "/born");
            child.expect("NodeChildrenChanged " + d);
            gone.expect("NodeDeleted " + d + "/gone");
            Checks.equal(h.zk.getSessionId(), session, "same session");
            h.zk.setData(d + "/mine", null, -1); // still authenticated
            w.zk.setData(d + "/quiet", PlainDriver.bytes("1"), -1);
            quiet.expect("NodeDataChanged " + d + "/quiet");
            w.zk.setData(d + "/data", PlainDriver.bytes("2"), -1);
            eventuallyHas(persistent, "NodeDataChanged " + d + "/data");
            w.zk.create(d + "/rec/x", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            eventuallyHas(recursive, "NodeCreated " + d + "/rec/x");
            data.silent();
        }
    }

    static void eventuallyHas(PlainDriver.Events e, String want) throws Exception {
        Checks.eventually(want, () -> e.events.contains(want));
    }

    static void move() throws Exception {
        try (PlainDriver.Handle h = new PlainDriver.Handle(Checks.RELAY); Checks.Referee ref = new Checks.Referee()) {
            String d = h.dir("move");
            h.zk.create(d + "/e", null, OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
            PlainDriver.Events second = new PlainDriver.Events();
            ZooKeeper zk = new ZooKeeper(Checks.ZK, 30_000, second, h.zk.getSessionId(), h.zk.getSessionPasswd());
            Checks.that(second.connected.await(60, TimeUnit.SECONDS), "second connected");
            Checks.equal(zk.getSessionId(), h.zk.getSessionId(), "session");
            Checks.eventually("the owner's node is there", () -> {
                try {
                    return zk.exists(d + "/e", false).getEphemeralOwner() == h.zk.getSessionId();
                } catch (KeeperException.ConnectionLossException | KeeperException.SessionMovedException e) {
                    return false; // the first handle has taken the session back, so the second takes it again
                }
            });
            try {
                // The first handle's ZooKeeper server learns that the session has moved only when it asks
                // the leader. A write makes it ask.
                h.zk.setData(d, null, -1);
            } catch (KeeperException.ConnectionLossException | KeeperException.SessionMovedException e) {
                // the write of the first handle must fail
            }
            h.events.state(Watcher.Event.KeeperState.Disconnected);
            h.events.state(Watcher.Event.KeeperState.SyncConnected); // the first handle is back
            zk.close();
        }
    }

    static void expire() throws Exception {
        try (PlainDriver.Handle h = new PlainDriver.Handle(Checks.ZK); PlainDriver.Handle w = new PlainDriver.Handle(Checks.ZK)) {
            String d = h.dir("expire");
            h.zk.create(d + "/e", null, OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
            w.caughtUp().zk.exists(d + "/e", true);
            // The first handle may take the session back before the second can close it. Then try again.
            for (int i = 0; i < 10 && w.events.events.isEmpty(); i++) {
                PlainDriver.Events second = new PlainDriver.Events();
                ZooKeeper zk = new ZooKeeper(Checks.ZK, 30_000, second, h.zk.getSessionId(), h.zk.getSessionPasswd());
                second.connected.await(5, TimeUnit.SECONDS);
                zk.close();
                Thread.sleep(500);
            }
            w.events.expect("NodeDeleted " + d + "/e");
            h.events.state(Watcher.Event.KeeperState.Expired);
        }
    }

    static void wrongPassword() throws Exception {
        try (PlainDriver.Handle h = new PlainDriver.Handle(Checks.ZK)) {
            PlainDriver.Events second = new PlainDriver.Events();
            ZooKeeper zk = new ZooKeeper(Checks.ZK, 30_000, second, h.zk.getSessionId(), new byte[16]);
            second.state(Watcher.Event.KeeperState.Expired);
            zk.close();
            // ZooKeeper drops the connection of the first handle before it checks the password of the second.
            Checks.eventually("the session lives on", () -> {
                try {
                    return h.zk.exists("/", false) != null;
                } catch (KeeperException.ConnectionLossException e) {
                    return false;
                }
            });
        }
    }

    static void chroot() throws Exception {
        try (PlainDriver.Handle h = new PlainDriver.Handle(Checks.ZK)) {
            String d = h.dir("chroot");
            try (PlainDriver.Handle in = new PlainDriver.Handle(Checks.ZK + d)) {
                in.zk.exists("/n", true);
                in.zk.create("/n", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                in.events.expect("NodeCreated /n");
            }
            Checks.that(h.caughtUp().zk.exists(d + "/n", false) != null, "server path");
        }
    }
}
