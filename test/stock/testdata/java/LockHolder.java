import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.WriteLock;

/**
 * Holds one lock of each kind that Curator has, and one of ZooKeeper's own kind, in
 * one session. A second session waits for all these locks, until the program's
 * input ends. It prints both sessions.
 */
public class LockHolder {
    interface Act {
        void run() throws Exception;
    }

    static void later(Act act) {
        Thread t = new Thread(() -> {
            try {
                act.run();
            } catch (Exception e) {
                System.out.println("fail " + e);
            }
        });
        t.setDaemon(true);
        t.start();
    }

    static CuratorFramework connect() throws Exception {
        CuratorFramework c = CuratorFrameworkFactory.newClient(System.getenv("ZK"), 30000, 15000, new RetryOneTime(100));
        c.start();
        c.blockUntilConnected();
        return c;
    }

    static LeaderSelector select(CuratorFramework c, CountDownLatch leading) {
        LeaderSelector s = new LeaderSelector(c, "/cur/selector", new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework client) throws Exception {
                leading.countDown();
                Thread.sleep(Long.MAX_VALUE);
            }
        });
        s.start();
        return s;
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework a = connect(), b = connect();
        System.out.println("session a " + Long.toHexString(a.getZookeeperClient().getZooKeeper().getSessionId()));
        System.out.println("session b " + Long.toHexString(b.getZookeeperClient().getZooKeeper().getSessionId()));

        new InterProcessMutex(a, "/cur/mutex").acquire();
        later(() -> new InterProcessMutex(b, "/cur/mutex").acquire());

        new InterProcessReadWriteLock(a, "/cur/rw").readLock().acquire();
        later(() -> new InterProcessReadWriteLock(b, "/cur/rw").writeLock().acquire());

        new InterProcessSemaphoreV2(a, "/cur/sem", 1).acquire();
        later(() -> new InterProcessSemaphoreV2(b, "/cur/sem", 1).acquire());

        new InterProcessMultiLock(a, Arrays.asList("/cur/multi/1", "/cur/multi/2")).acquire();
        later(() -> new InterProcessMultiLock(b, Arrays.asList("/cur/multi/1", "/cur/multi/2")).acquire());

        LeaderLatch first = new LeaderLatch(a, "/cur/latch", "a");
        first.start();
        first.await();
        new LeaderLatch(b, "/cur/latch", "b").start();

        CountDownLatch leading = new CountDownLatch(1);
        select(a, leading);
        leading.await();
        select(b, leading);

        // ZooKeeper's own lock recipe in Java, which makes the same nodes as the recipe of the C library.
        ZooKeeper za = a.getZookeeperClient().getZooKeeper(), zb = b.getZookeeperClient().getZooKeeper();
        za.create("/cur/x", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, org.apache.zookeeper.CreateMode.PERSISTENT);
        new WriteLock(za, "/cur/x", ZooDefs.Ids.OPEN_ACL_UNSAFE).lock();
        new WriteLock(zb, "/cur/x", ZooDefs.Ids.OPEN_ACL_UNSAFE).lock();

        System.out.println("ready");
        while (System.in.read() >= 0) { }
        System.exit(0);
    }
}
