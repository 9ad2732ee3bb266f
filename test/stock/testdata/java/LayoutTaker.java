import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.KeeperException;

/**
 * Takes a lock of Curator's at each path that comes on standard input, and keeps it. For each path it prints
 * a line: that it holds the lock, or the error that it got.
 */
public class LayoutTaker {
    public static void main(String[] args) throws Exception {
        CuratorFramework c = CuratorFrameworkFactory.newClient(System.getenv("ZK"), 30000, 15000,
            new ExponentialBackoffRetry(1000, 3));
        c.start();
        c.blockUntilConnected();
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String path = in.readLine(); path != null; path = in.readLine()) {
            try {
                System.out.println(take(c, args[0], path) ? "holds" : "waits");
            } catch (KeeperException e) {
                System.out.println(e.getClass().getSimpleName());
            }
        }
    }

    static boolean take(CuratorFramework c, String kind, String path) throws Exception {
        if (kind.equals("semaphore")) {
            return new InterProcessSemaphoreV2(c, path, 1).acquire(20, TimeUnit.SECONDS) != null;
        }
        InterProcessLock l = kind.equals("mutex") ? new InterProcessMutex(c, path)
            : new InterProcessReadWriteLock(c, path).writeLock();
        return l.acquire(20, TimeUnit.SECONDS);
    }
}
