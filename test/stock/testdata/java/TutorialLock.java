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
 * NAME_lock_N below /locks, and a latch that any event counts down. This class
 * makes the same nodes and waits in the same way as the tutorial's program.
 *
 * <p>The lock can lose a wake-up in two places. It sets the watch before it
 * makes the latch: if the predecessor's node goes in between, the event finds no
 * latch, and the waiter sleeps until its time is over. And the latch is a plain
 * field that another thread reads: nothing makes the event's thread see it. The
 * wait has a time limit, which hides both faults, but then a waiter goes in when
 * its time is over, even if another holds the lock.
 *
 * <p>Two more faults: the lock takes any event for its own, for example a lost
 * connection. And it takes the end of the predecessor's node for its turn,
 * although the predecessor may have waited, too. Fifteen contenders that live
 * and stay connected do not meet these two. If a wake-up was lost, the test lets
 * the contenders begin again.
 */
final class TutorialLock implements Watcher, AutoCloseable {
    private static final String ROOT = "/locks";
    private static final String MARK = "_lock_";
    private static final int TIMEOUT = 30_000;

    private final CountDownLatch connected = new CountDownLatch(1); // for the first event: it must wake no waiter
    private final ZooKeeper zk;
    private final String name;
    private String mine;
    private String before;
    private CountDownLatch wake;
    private static volatile boolean lost; // a wake-up was lost: the sleeper and those behind it do not go in

    TutorialLock(String servers, String name) throws Exception {
        this.name = name;
        zk = new ZooKeeper(servers, TIMEOUT, this);
        if (zk.exists(ROOT, false) == null) {
            try {
                zk.create(ROOT, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            } catch (KeeperException.NodeExistsException e) {
                // Another contender was faster.
            }
        }
    }

    @Override
    public void process(WatchedEvent event) {
        CountDownLatch latch = wake;
        if (latch != null) {
            latch.countDown();
        }
        connected.countDown();
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
            // If the event comes at this point, it is lost.
            wake = new CountDownLatch(1);
            if (!wake.await(TIMEOUT, TimeUnit.MILLISECONDS)) {
                lost = true;
            }
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
            for (int tries = 1; !oneAtATime(contenders); tries++) {
                Checks.that(tries < 5, "a wake-up is lost each time");
            }
        });
        Checks.check("nothing is left", () -> {
            try (TutorialLock look = new TutorialLock(Checks.ZK, "test")) {
                Checks.equal(look.waiting(), 0, "nodes");
            }
        });
        Checks.runAll(args);
    }

    /** Reports whether no wake-up was lost. */
    private static boolean oneAtATime(int contenders) throws Exception {
        lost = false;
        CountDownLatch start = new CountDownLatch(1);
        List<Checks.Body> bodies = new ArrayList<>();
        List<String> order = Collections.synchronizedList(new ArrayList<>());
        for (int i = 0; i < contenders; i++) {
            bodies.add(() -> {
                TutorialLock lock = new TutorialLock(Checks.ZK, "test");
                try (Checks.Referee ref = new Checks.Referee()) {
                    lock.connected.await();
                    start.await();
                    lock.lock();
                    if (!lost) {
                        order.add(lock.mine);
                        ref.alone("tutorial");
                    }
                } finally {
                    lock.unlock();
                }
            });
        }
        start.countDown();
        Checks.together(bodies);
        if (lost) {
            return false;
        }
        Checks.equal(order.size(), contenders, "turns");
        List<String> sorted = new ArrayList<>(order);
        Collections.sort(sorted);
        Checks.equal(order, sorted, "the order of their turns");
        return true;
    }
}
