import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;

/** CuratorHold PATH TIMEOUT_MS takes a mutex, and prints that and each later change of its connection. */
public final class CuratorHold {
    private CuratorHold() {}

    public static void main(String[] a) throws Exception {
        CuratorFramework c = CuratorFrameworkFactory.newClient(System.getenv("ZK"), Integer.parseInt(a[1]), 5000, new RetryForever(100));
        c.getConnectionStateListenable().addListener((client, state) -> System.out.println("state " + state));
        c.start();
        c.blockUntilConnected();
        new InterProcessMutex(c, a[0]).acquire();
        System.out.println("held");
        Thread.sleep(Long.MAX_VALUE);
    }
}
