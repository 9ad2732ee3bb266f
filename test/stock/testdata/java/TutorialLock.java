import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

/**
 * The lock of the best-known tutorial: a client of its own for each lock, nodes
 * NAME_lock_N below /locks, and a latch that any event counts down. Equal to it
 * in nodes and waits, so that what runs there runs here.
 *
 * <p>It can lose a wake-up in two places. The watch is set before the latch is
 * made: a predecessor that goes in between counts down nothing, and the waiter
 * sleeps until its time is over. And the latch is a plain field that another
 * thread reads: nothing makes the event's thread see it. The bounded wait hides
 * both, at the price that a waiter goes in when its time is over, whoever is
 * inside. It also takes any event for its own (a lost connection will do), and
 * the end of the node before its own for its turn, though that one may have
 * waited, too. Fifteen contenders that live and stay connected meet none of
 * the latter.
 */
final class TutorialLock implements Watcher, AutoCloseable {
    private static final String ROOT = "/locks";
    private static final String MARK = "_lock_";
    private static final int TIMEOUT = 30_000;

    private final ZooKeeper zk;
    private final String name;
    private String mine;
    private String before;
    private CountDownLatch wake;

    TutorialLock(String servers, String name) throws Exception {
        this.name = name;
        zk = new ZooKeeper(servers, TIMEOUT, this);
        if (zk.exists(ROOT, false) == null) {
            try {
                zk.create(ROOT, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            } catch (KeeperException.NodeExistsException e) {
                // Another one was faster.
            }
        }
    }

    @Override
    public void process(WatchedEvent event) {
        CountDownLatch latch = wake;
        if (latch != null) {
            latch.countDown();
        }
    }

    boolean tryLock() throws Exception {
        mine = zk.create(ROOT + "/" + name + MARK, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL);
        List<String> queue = new ArrayList<>();
        for (String node : zk.getChildren(ROOT, false)) {
            if (node.startsWith(name + MARK)) {
                queue.add(node);
            }
        }
        Collections.sort(queue);
        int turn = queue.indexOf(mine.substring(ROOT.length() + 1));
        before = turn == 0 ? null : queue.get(turn - 1);
        return turn == 0;
    }

    void lock() throws Exception {
        if (tryLock()) {
            return;
        }
        if (zk.exists(ROOT + "/" + before, true) != null) {
            // An event that comes here is lost.
            wake = new CountDownLatch(1);
            wake.await(TIMEOUT, TimeUnit.MILLISECONDS);
            wake = null;
        }
    }

    void unlock() throws Exception {
        zk.delete(mine, -1);
        mine = null;
        close();
    }

    @Override
    public void close() throws Exception {
        zk.close();
    }

    int waiting() throws Exception {
        return zk.getChildren(ROOT, false).size();
    }

    /** Fifteen contenders begin at once, as the tutorial's test has them. */
    public static void main(String[] args) {
        final int contenders = 15;
        Checks.check("fifteen contenders, one at a time", () -> {
            CountDownLatch start = new CountDownLatch(1);
            List<Checks.Body> bodies = new ArrayList<>();
            List<String> order = Collections.synchronizedList(new ArrayList<>());
            for (int i = 0; i < contenders; i++) {
                bodies.add(() -> {
                    TutorialLock lock = new TutorialLock(Checks.ZK, "test");
                    try (Checks.Referee ref = new Checks.Referee()) {
                        start.await();
                        lock.lock();
                        order.add(lock.mine);
                        ref.alone("tutorial");
                    } finally {
                        lock.unlock();
                    }
                });
            }
            start.countDown();
            Checks.together(bodies);
            Checks.equal(order.size(), contenders, "turns");
            List<String> sorted = new ArrayList<>(order);
            Collections.sort(sorted);
            Checks.equal(order, sorted, "the order of their turns");
        });
        Checks.check("nothing is left", () -> {
            try (TutorialLock look = new TutorialLock(Checks.ZK, "test")) {
                Checks.equal(look.waiting(), 0, "nodes");
            }
        });
        Checks.runAll(args);
    }
}
