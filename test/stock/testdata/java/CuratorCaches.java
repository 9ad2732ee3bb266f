import java.util.Collections;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.NodeCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache.StartMode;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.cache.TreeCacheEvent;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;

/** Caches and watchers. */
@SuppressWarnings("deprecation")
final class CuratorCaches {
    private CuratorCaches() {}

    static void register() {
        Checks.check("curator-cache-follows-a-subtree", CuratorCaches::curatorCache);
        Checks.check("curator-cache-recovers-after-a-cut", CuratorCaches::curatorCacheCut);
        Checks.check("curator-cache-of-a-single-node", CuratorCaches::singleNode);
        Checks.check("node-cache", CuratorCaches::nodeCache);
        Checks.check("path-children-cache", CuratorCaches::pathChildrenCache);
        Checks.check("tree-cache", CuratorCaches::treeCache);
        Checks.check("persistent-watcher", CuratorCaches::persistentWatcher);
        Checks.check("watches-added-and-removed", CuratorCaches::removeWatches);
    }

    private static String at(CuratorCache cache, String path) {
        return cache.get(path).map(d -> new String(d.getData())).orElse("-");
    }

    static void curatorCache() throws Exception {
        try (Curators c = new Curators(2)) {
            String d = Curators.path("cache");
            CuratorFramework w = c.get(1);
            w.create().creatingParentsIfNeeded().forPath(d + "/a/b", "1".getBytes());
            c.catchUp();
            List<String> log = new CopyOnWriteArrayList<>();
            CountDownLatch ready = new CountDownLatch(1);
            try (CuratorCache cache = CuratorCache.build(c.get(0), d)) {
                cache.listenable().addListener(CuratorCacheListener.builder()
                    .forCreates(n -> log.add("create " + n.getPath()))
                    .forChanges((o, n) -> log.add("change " + n.getPath()))
                    .forDeletes(n -> log.add("delete " + n.getPath()))
                    .forInitialized(ready::countDown).build());
                cache.start();
                Checks.that(ready.await(60, TimeUnit.SECONDS), "initialised");
                Checks.equal(at(cache, d + "/a/b"), "1", "value");
                for (int i = 0; i < 50; i++) {
                    w.create().forPath(d + "/n" + i, ("" + i).getBytes());
                    w.setData().forPath(d + "/a/b", ("" + i).getBytes());
                }
                Checks.eventually("all nodes", () -> cache.size() == 53 && at(cache, d + "/a/b").equals("49"));
                w.delete().deletingChildrenIfNeeded().forPath(d + "/a");
                Checks.eventually("removal", () -> cache.size() == 51);
                Checks.eventually("listener", () -> log.containsAll(List.of(
                    "create " + d + "/n49", "change " + d + "/a/b", "delete " + d + "/a/b", "delete " + d + "/a")));
            }
        }
    }

    static void curatorCacheCut() throws Exception {
        try (Curators c = new Curators(1, Checks.RELAY); Curators o = new Curators(1); Checks.Referee ref = new Checks.Referee()) {
            String d = Curators.path("cache-cut");
            CuratorFramework w = o.get(0);
            w.create().creatingParentsIfNeeded().forPath(d + "/kept", "0".getBytes());
            w.create().forPath(d + "/gone");
            c.catchUp();
            try (CuratorCache cache = CuratorCache.build(c.get(0), d)) {
                cache.start();
                Checks.eventually("filled", () -> cache.size() == 3);
                Checks.equal(ref.say("refuse 300"), "ok", "cut");
                w.setData().forPath(d + "/kept", "1".getBytes());
                w.delete().forPath(d + "/gone");
                w.create().forPath(d + "/new", "n".getBytes());
                Checks.eventually("missed changes are fetched",
                    () -> at(cache, d + "/kept").equals("1") && at(cache, d + "/gone").equals("-") && at(cache, d + "/new").equals("n"));
                w.setData().forPath(d + "/new", "m".getBytes());
                Checks.eventually("still watching", () -> at(cache, d + "/new").equals("m"));
            }
        }
    }

    static void singleNode() throws Exception {
        try (Curators c = new Curators(2)) {
            String p = Curators.path("single");
            try (CuratorCache cache = CuratorCache.build(c.get(0), p, CuratorCache.Options.SINGLE_NODE_CACHE)) {
                cache.start();
                c.get(1).create().creatingParentsIfNeeded().forPath(p, "1".getBytes());
                c.get(1).create().forPath(p + "/child");
                Checks.eventually("value", () -> at(cache, p).equals("1"));
                Checks.equal(cache.size(), 1, "children are left out");
            }
        }
    }

    static void nodeCache() throws Exception {
        try (Curators c = new Curators(2); NodeCache cache = new NodeCache(c.get(0), Curators.path("nodecache"))) {
            cache.start(true);
            c.get(1).create().creatingParentsIfNeeded().forPath(Curators.path("nodecache"), "1".getBytes());
            Checks.eventually("created", () -> cache.getCurrentData() != null);
            for (int i = 0; i < 20; i++) {
                c.get(1).setData().forPath(Curators.path("nodecache"), ("v" + i).getBytes());
            }
            Checks.eventually("changed", () -> new String(cache.getCurrentData().getData()).equals("v19"));
            c.get(1).delete().forPath(Curators.path("nodecache"));
            Checks.eventually("deleted", () -> cache.getCurrentData() == null);
        }
    }

    static void pathChildrenCache() throws Exception {
        String d = Curators.path("pathcache");
        try (Curators c = new Curators(2); PathChildrenCache cache = new PathChildrenCache(c.get(0), d, true)) {
            cache.start(StartMode.BUILD_INITIAL_CACHE);
            for (int i = 0; i < 20; i++) {
                c.get(1).create().forPath(d + "/" + i, "x".getBytes());
            }
            Checks.eventually("all children", () -> cache.getCurrentData().size() == 20);
            c.get(1).setData().forPath(d + "/7", "seven".getBytes());
            Checks.eventually("change", () -> new String(cache.getCurrentData(d + "/7").getData()).equals("seven"));
            c.get(1).delete().forPath(d + "/7");
            Checks.eventually("removal", () -> cache.getCurrentData().size() == 19);
        }
    }

    static void treeCache() throws Exception {
        String d = Curators.path("treecache");
        try (Curators c = new Curators(2); TreeCache cache = new TreeCache(c.get(0), d)) {
            c.get(1).create().creatingParentsIfNeeded().forPath(d + "/a/b/c", "1".getBytes());
            c.catchUp();
            CountDownLatch ready = new CountDownLatch(1);
            cache.getListenable().addListener((client, e) -> {
                if (e.getType() == TreeCacheEvent.Type.INITIALIZED) {
                    ready.countDown();
                }
            });
            cache.start();
            Checks.that(ready.await(60, TimeUnit.SECONDS), "initialised");
            Checks.equal(new String(cache.getCurrentData(d + "/a/b/c").getData()), "1", "value");
            c.get(1).setData().forPath(d + "/a/b/c", "2".getBytes());
            Checks.eventually("change", () -> new String(cache.getCurrentData(d + "/a/b/c").getData()).equals("2"));
            c.get(1).delete().deletingChildrenIfNeeded().forPath(d + "/a/b");
            Checks.eventually("removal", () -> cache.getCurrentChildren(d + "/a").equals(Collections.emptyMap()));
        }
    }

    static void persistentWatcher() throws Exception {
        String d = Curators.path("pwatch");
        try (Curators c = new Curators(1, Checks.RELAY); Curators o = new Curators(1); Checks.Referee ref = new Checks.Referee();
             PersistentWatcher pw = new PersistentWatcher(c.get(0), d, true)) {
            CuratorFramework w = o.get(0);
            w.create().creatingParentsIfNeeded().forPath(d);
            c.catchUp();
            List<String> log = new CopyOnWriteArrayList<>();
            pw.getListenable().addListener(e -> {
                if (e.getPath() != null) {
                    log.add(e.getType() + " " + e.getPath());
                }
            });
            CountDownLatch set = new CountDownLatch(1);
            pw.getResetListenable().addListener(set::countDown);
            pw.start();
            Checks.that(set.await(60, TimeUnit.SECONDS), "watch set");
            w.create().forPath(d + "/a");
            w.setData().forPath(d + "/a", "1".getBytes());
            Checks.eventually("events", () -> log.equals(List.of("NodeCreated " + d + "/a", "NodeDataChanged " + d + "/a")));
            ref.say("refuse 200");
            Thread.sleep(400);
            Checks.eventually("watching again", () -> {
                w.setData().forPath(d + "/a", "2".getBytes());
                return log.size() > 2;
            });
        }
    }

    static void removeWatches() throws Exception {
        String d = Curators.path("rmwatch");
        try (Curators c = new Curators(2)) {
            CuratorFramework a = c.get(0);
            CuratorFramework w = c.get(1);
            w.create().creatingParentsIfNeeded().forPath(d);
            c.catchUp();
            List<String> log = new CopyOnWriteArrayList<>();
            org.apache.curator.framework.api.CuratorWatcher watcher = e -> log.add(e.getType().toString());
            a.getData().usingWatcher(watcher).forPath(d);
            a.watches().remove(watcher).forPath(d);
            Checks.eventually("told of the removal", () -> log.equals(List.of("DataWatchRemoved")));
            w.setData().forPath(d, "1".getBytes());
            c.catchUp();
            a.watchers().add().withMode(org.apache.zookeeper.AddWatchMode.PERSISTENT).usingWatcher(watcher).forPath(d);
            w.setData().forPath(d, "2".getBytes());
            w.setData().forPath(d, "3".getBytes());
            Checks.eventually("persistent", () -> log.equals(List.of("DataWatchRemoved", "NodeDataChanged", "NodeDataChanged")));
        }
    }
}
