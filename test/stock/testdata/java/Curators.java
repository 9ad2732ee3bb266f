import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryForever;
import org.apache.curator.utils.CloseableUtils;

/** Curator clients of a check; all are closed together. */
final class Curators implements AutoCloseable {
    final List<CuratorFramework> all = new ArrayList<>();

    Curators(int n) throws Exception {
        this(n, Checks.ZK);
    }

    Curators(int n, String hosts) throws Exception {
        for (int i = 0; i < n; i++) {
            all.add(connect(hosts));
        }
    }

    static CuratorFramework connect(String hosts) throws Exception {
        CuratorFramework c = CuratorFrameworkFactory.newClient(hosts, 10_000, 8_000, new RetryForever(100));
        c.start();
        Checks.that(c.blockUntilConnected(60, TimeUnit.SECONDS), "connected");
        return c;
    }

    CuratorFramework get(int i) {
        return all.get(i);
    }

    /** Lets all clients see what has been written so far, wherever they are connected. */
    void catchUp() throws Exception {
        for (CuratorFramework c : all) {
            c.sync().forPath("/");
        }
    }

    /** A path of its own for a check; recipes make it themselves. */
    static String path(String name) {
        return Checks.ROOT + "/" + name;
    }

    @Override
    public void close() {
        for (CuratorFramework c : all) {
            CloseableUtils.closeQuietly(c);
        }
    }
}
