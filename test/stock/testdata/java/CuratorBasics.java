import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/** The fluent API: creates, transactions, containers, time to live. */
final class CuratorBasics {
    private static final String SWEEPS = Curators.path("sweeps");

    private CuratorBasics() {}

    static void register() {
        Checks.check("protected-creates-and-stats", CuratorBasics::creates);
        Checks.check("create-or-set-and-idempotent", CuratorBasics::createOrSet);
        Checks.check("transactions", CuratorBasics::transactions);
        Checks.check("background-operations", CuratorBasics::background);
        Checks.check("namespaces-and-schema", CuratorBasics::namespaces);
        Checks.check("sync", CuratorBasics::sync);
        Checks.check("ensemble-tracker-leaves-the-connect-string-alone", CuratorBasics::tracker);
        Checks.check("containers-and-ttl-nodes-are-removed", CuratorBasics::sweeps);
    }

    /** Creates the nodes that must be gone at the last check. Their removal may take a minute or two. */
    static void prepareSweeps() throws Exception {
        try (Curators c = new Curators(1)) {
            CuratorFramework f = c.get(0);
            f.create().creatingParentContainersIfNeeded().forPath(SWEEPS + "/container/child");
            f.create().withMode(CreateMode.CONTAINER).forPath(SWEEPS + "/unused");
            f.create().withTtl(1_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(SWEEPS + "/ttl");
            f.create().withTtl(1_000).withMode(CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL).forPath(SWEEPS + "/ttl-");
            f.create().withTtl(3_600_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(SWEEPS + "/long");
            f.create().withTtl(10_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(SWEEPS + "/parent");
            f.create().forPath(SWEEPS + "/parent/child");
            f.delete().forPath(SWEEPS + "/container/child");
        }
    }

    static void sweeps() throws Exception {
        try (Curators c = new Curators(1)) {
            Checks.eventually("empty container and old TTL nodes are gone", 150_000, () -> {
                List<String> left = c.get(0).getChildren().forPath(SWEEPS);
                return !left.contains("container") && left.stream().noneMatch(n -> n.startsWith("ttl"));
            });
            List<String> left = new ArrayList<>(c.get(0).getChildren().forPath(SWEEPS));
            left.sort(null);
            Checks.equal(left.toString(), "[long, parent, unused]", "what must stay");
        }
    }

    static void creates() throws Exception {
        try (Curators c = new Curators(1)) {
            CuratorFramework f = c.get(0);
            String d = Curators.path("creates");
            Stat stat = new Stat();
            String made = f.create().storingStatIn(stat).creatingParentsIfNeeded().withProtection()
                .withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(d + "/x-", "v".getBytes());
            Checks.that(made.matches(d + "/_c_[-0-9a-f]{36}-x-0000000000"), made);
            Checks.equal(stat.getDataLength(), 1, "stat of the create");
            Checks.equal(f.getData().storingStatIn(stat).forPath(made).length, 1, "data");
            Checks.raises(KeeperException.NoNodeException.class, () -> f.create().forPath(d + "/no/parent"));
            Checks.raises(KeeperException.BadVersionException.class, () -> f.delete().withVersion(3).forPath(made));
            f.delete().guaranteed().forPath(made);
            Checks.equal(f.checkExists().forPath(made), null, "gone");
            f.delete().quietly().forPath(made);
        }
    }

    static void createOrSet() throws Exception {
        try (Curators c = new Curators(1)) {
            String p = Curators.path("orset/n");
            c.get(0).create().orSetData().creatingParentsIfNeeded().forPath(p, "1".getBytes());
            c.get(0).create().orSetData().creatingParentsIfNeeded().forPath(p, "2".getBytes());
            Checks.equal(new String(c.get(0).getData().forPath(p)), "2", "set the second time");
            c.get(0).create().idempotent().forPath(p + "-twin", "1".getBytes());
            c.get(0).create().idempotent().forPath(p + "-twin", "1".getBytes());
            c.get(0).setData().idempotent().withVersion(0).forPath(p, "2".getBytes());
        }
    }

    static void transactions() throws Exception {
        try (Curators c = new Curators(1)) {
            CuratorFramework f = c.get(0);
            String d = Curators.path("txn");
            f.create().creatingParentsIfNeeded().forPath(d);
            List<CuratorTransactionResult> r = f.transaction().forOperations(
                f.transactionOp().create().forPath(d + "/a", "1".getBytes()),
                f.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath(d + "/s-"),
                f.transactionOp().setData().withVersion(0).forPath(d + "/a", "2".getBytes()),
                f.transactionOp().check().withVersion(1).forPath(d + "/a"));
            Checks.equal(r.get(1).getResultPath(), d + "/s-0000000001", "sequential");
            Checks.equal(r.get(2).getResultStat().getVersion(), 1, "version");
            Checks.raises(KeeperException.BadVersionException.class, () -> f.transaction().forOperations(
                f.transactionOp().delete().forPath(d + "/s-0000000001"),
                f.transactionOp().check().withVersion(9).forPath(d + "/a")));
            Checks.that(f.checkExists().forPath(d + "/s-0000000001") != null, "nothing happened");
        }
    }

    static void background() throws Exception {
        try (Curators c = new Curators(1)) {
            String d = Curators.path("background");
            CountDownLatch done = new CountDownLatch(200);
            c.get(0).create().creatingParentsIfNeeded().forPath(d);
            for (int i = 0; i < 200; i++) {
                c.get(0).create().inBackground((f, e) -> {
                    if (e.getResultCode() == 0) {
                        done.countDown();
                    }
                }).forPath(d + "/" + i);
            }
            Checks.that(done.await(60, TimeUnit.SECONDS), "all created");
            Checks.equal(c.get(0).getChildren().forPath(d).size(), 200, "children");
            c.get(0).delete().deletingChildrenIfNeeded().forPath(d);
        }
    }

    static void namespaces() throws Exception {
        try (Curators c = new Curators(1)) {
            String space = Curators.path("space").substring(1);
            c.get(0).usingNamespace(space).create().creatingParentsIfNeeded().forPath("/a/b", "x".getBytes());
            Checks.equal(new String(c.get(0).getData().forPath("/" + space + "/a/b")), "x", "real path");
        }
    }

    static void sync() throws Exception {
        try (Curators c = new Curators(2)) {
            String p = Curators.path("sync");
            c.get(0).create().creatingParentsIfNeeded().forPath(p, "0".getBytes());
            for (int i = 1; i <= 20; i++) {
                c.get(0).setData().forPath(p, ("" + i).getBytes());
                c.get(1).sync().forPath(p);
                Checks.equal(new String(c.get(1).getData().forPath(p)), "" + i, "value after sync");
            }
        }
    }

    static void tracker() throws Exception {
        try (Curators c = new Curators(1)) {
            c.get(0).getConfig().forEnsemble();
            Thread.sleep(300);
            String now = c.get(0).getZookeeperClient().getCurrentConnectionString();
            Checks.that(now.equals(Checks.ZK) || now.split(",").length == Checks.ZK.split(",").length, now);
            c.get(0).checkExists().forPath("/");
        }
    }
}
