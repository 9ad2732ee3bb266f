import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.ArrayList;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/**
 * Contends for every kind of Curator's locks at once, for as many seconds as the argument says, while somebody else
 * kills servers. A holder that is alone inside writes a counter. Its version is the fencing token.
 */
public final class SoakDriver {
    private static final int CLIENTS = 3;
    private static final AtomicInteger lost = new AtomicInteger();

    private SoakDriver() {}

    public static void main(String[] args) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(args[0]));
        ExecutorService pool = Executors.newCachedThreadPool();
        Map<String, List<Future<Object>>> running = new LinkedHashMap<>();
        try (Curators c = new Curators(CLIENTS)) {
            for (CuratorFramework f : c.all) {
                f.getConnectionStateListenable().addListener((client, state) -> {
                    if (state == ConnectionState.LOST) {
                        lost.incrementAndGet();
                    }
                });
            }
            for (String kind : new String[] {"mutex", "read-write", "semaphore", "latch"}) {
                c.get(0).create().creatingParentsIfNeeded().forPath(counter(kind), new byte[0]);
            }
            c.catchUp();
            for (String kind : new String[] {"mutex", "read-write", "semaphore", "latch"}) {
                for (CuratorFramework f : c.all) {
                    running.computeIfAbsent(kind, k -> new ArrayList<>()).add(pool.submit(() -> {
                        contend(f, kind, end);
                        return null;
                    }));
                }
            }
            running.forEach((kind, futures) -> Checks.check("curator-" + kind, () -> {
                for (Future<Object> f : futures) {
                    f.get(Long.parseLong(args[0]) + 60, TimeUnit.SECONDS);
                }
            }));
            Checks.check("no-session-lost", () -> Checks.equal(lost.get(), 0, "sessions lost"));
            Checks.runAll();
        }
        System.exit(0);
    }

    private static String counter(String kind) {
        return Curators.path("soak/" + kind + "-counter");
    }

    private static void contend(CuratorFramework c, String kind, long end) throws Exception {
        String path = Curators.path("soak/" + kind);
        String key = "curator-" + kind;
        try (Checks.Referee ref = new Checks.Referee()) {
            for (int i = 0; System.nanoTime() < end; i++) {
                switch (kind) {
                    case "mutex" -> locked(new InterProcessMutex(c, path), () -> fenced(c, ref, kind, key, "x"));
                    case "read-write" -> {
                        InterProcessReadWriteLock rw = new InterProcessReadWriteLock(c, path);
                        if (i % 3 == 0) {
                            locked(rw.writeLock(), () -> fenced(c, ref, kind, key, "w"));
                        } else {
                            locked(rw.readLock(), () -> ref.inside(key, "r", 1, 3));
                        }
                    }
                    case "semaphore" -> {
                        InterProcessSemaphoreV2 s = new InterProcessSemaphoreV2(c, path, 2);
                        Lease lease = s.acquire(40, TimeUnit.SECONDS);
                        Checks.that(lease != null, "a lease in time");
                        ref.inside(key, "s", 2, 3);
                        s.returnLease(lease);
                    }
                    default -> {
                        try (LeaderLatch latch = new LeaderLatch(c, path)) {
                            latch.start();
                            Checks.that(latch.await(40, TimeUnit.SECONDS), "leadership in time");
                            // A latch removes its node after its connection was cut. So write nothing in
                            // here: a write would wait for the next connection.
                            ref.inside(key, "x", 1, 1);
                        }
                    }
                }
            }
        }
    }

    private static void locked(InterProcessLock l, Checks.Body body) throws Exception {
        Checks.that(l.acquire(40, TimeUnit.SECONDS), "acquired in time");
        try {
            body.run();
        } finally {
            l.release();
        }
    }

    private static void fenced(CuratorFramework c, Checks.Referee ref, String kind, String key, String mode) throws Exception {
        Checks.equal(ref.say("enter " + key + " " + mode), "ok", "referee");
        int token = bump(c, counter(kind));
        Checks.equal(ref.say("fence " + key + " " + token), "ok", "referee");
        ref.say("leave " + key);
    }

    /** Writes the counter, which nobody else may write meanwhile, and returns its new version. */
    private static int bump(CuratorFramework c, String path) throws Exception {
        byte[] mine = UUID.randomUUID().toString().getBytes();
        Stat st = new Stat();
        c.getData().storingStatIn(st).forPath(path);
        try {
            return c.setData().withVersion(st.getVersion()).forPath(path, mine).getVersion();
        } catch (KeeperException.BadVersionException e) {
            // A write whose answer was lost has been repeated, or another client has written.
            byte[] now = c.getData().storingStatIn(st).forPath(path);
            Checks.that(Arrays.equals(now, mine), "the counter was written by somebody else");
            return st.getVersion();
        }
    }
}
