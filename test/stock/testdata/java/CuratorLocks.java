import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;

/** Locks, semaphores and elections. */
final class CuratorLocks {
    private CuratorLocks() {}

    static void register() {
        for (String kind : new String[] {"mutex", "semaphore-mutex", "read-write", "semaphore", "latch"}) {
            Checks.check(kind + "-excludes-across-clients", () -> threads(kind));
        }
        Checks.check("mutex-excludes-across-jvms", CuratorLocks::jvms);
        Checks.check("mutex-is-reentrant-and-names-participants", CuratorLocks::reentrant);
        Checks.check("mutex-times-out-and-leaves-nothing", CuratorLocks::timesOut);
        Checks.check("mutex-can-be-revoked", CuratorLocks::revoke);
        Checks.check("mutex-excludes-while-connections-are-cut", CuratorLocks::cuts);
        Checks.check("read-write-lock-shares-and-downgrades", CuratorLocks::readWrite);
        Checks.check("semaphore-with-shared-count", CuratorLocks::sharedSemaphore);
        Checks.check("multi-lock-takes-all-or-none", CuratorLocks::multiLock);
        Checks.check("leader-latch-hands-over", CuratorLocks::latch);
        Checks.check("leader-selector-takes-turns", CuratorLocks::selector);
    }

    static void threads(String kind) throws Exception {
        String path = Curators.path("locks/" + kind);
        try (Curators c = new Curators(4)) {
            List<Checks.Body> bodies = new ArrayList<>();
            for (CuratorFramework f : c.all) {
                bodies.add(() -> Contender.contend(f, kind, path, "curator-" + kind, kind.equals("latch") ? 5 : 15));
            }
            Checks.together(bodies);
        }
    }

    static void jvms() throws Exception {
        String path = Curators.path("locks/jvms");
        List<Process> ps = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            ps.add(new ProcessBuilder("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", System.getProperty("java.class.path"),
                "CuratorDriver", "contend", "mutex", path, "curator-jvms", "40")
                .redirectError(ProcessBuilder.Redirect.INHERIT).start());
        }
        try (Curators c = new Curators(1)) {
            Contender.contend(c.get(0), "mutex", path, "curator-jvms", 20);
        }
        for (Process p : ps) {
            Checks.that(p.waitFor(180, TimeUnit.SECONDS), "the process ends");
            Checks.equal(p.exitValue(), 0, "exit status");
        }
    }

    static void reentrant() throws Exception {
        try (Curators c = new Curators(2)) {
            InterProcessMutex a = new InterProcessMutex(c.get(0), Curators.path("reentrant"));
            InterProcessMutex b = new InterProcessMutex(c.get(1), Curators.path("reentrant"));
            a.acquire();
            a.acquire();
            a.release();
            Checks.that(!b.acquire(200, TimeUnit.MILLISECONDS), "still held");
            c.catchUp();
            Collection<String> nodes = a.getParticipantNodes();
            Checks.equal(nodes.size(), 1, "participants");
            Checks.that(nodes.iterator().next().matches(".*/_c_[-0-9a-f]{36}-lock-[0-9]{10}"), nodes.toString());
            a.release();
            Checks.that(b.acquire(60, TimeUnit.SECONDS), "given on");
            b.release();
            Checks.raises(IllegalMonitorStateException.class, b::release);
        }
    }

    static void timesOut() throws Exception {
        try (Curators c = new Curators(2)) {
            String path = Curators.path("timeout");
            InterProcessMutex a = new InterProcessMutex(c.get(0), path);
            a.acquire();
            for (int i = 0; i < 3; i++) {
                Checks.that(!new InterProcessMutex(c.get(1), path).acquire(50, TimeUnit.MILLISECONDS), "held");
            }
            c.catchUp();
            Checks.equal(c.get(0).getChildren().forPath(path).size(), 1, "contenders");
            a.release();
        }
    }

    static void revoke() throws Exception {
        try (Curators c = new Curators(2)) {
            String path = Curators.path("revoke");
            InterProcessMutex a = new InterProcessMutex(c.get(0), path);
            CountDownLatch asked = new CountDownLatch(1);
            a.makeRevocable(l -> asked.countDown());
            a.acquire();
            c.catchUp();
            Revoker.attemptRevoke(c.get(1), a.getParticipantNodes().iterator().next());
            Checks.that(asked.await(60, TimeUnit.SECONDS), "asked to release");
            a.release();
        }
    }

    static void cuts() throws Exception {
        String path = Curators.path("cuts");
        try (Curators c = new Curators(3, Checks.RELAY); Checks.Referee ref = new Checks.Referee()) {
            List<Checks.Body> bodies = new ArrayList<>();
            for (CuratorFramework f : c.all) {
                bodies.add(() -> Contender.contend(f, "mutex", path, "curator-cuts", 25));
            }
            bodies.add(() -> {
                for (int i = 0; i < 4; i++) {
                    Thread.sleep(150);
                    ref.say("cut");
                }
            });
            Checks.together(bodies);
            Checks.eventually("no contender left behind", () -> c.get(0).getChildren().forPath(path).isEmpty());
        }
    }

    static void readWrite() throws Exception {
        try (Curators c = new Curators(2)) {
            String path = Curators.path("rw");
            InterProcessReadWriteLock a = new InterProcessReadWriteLock(c.get(0), path);
            InterProcessReadWriteLock b = new InterProcessReadWriteLock(c.get(1), path);
            a.writeLock().acquire();
            Checks.that(!b.readLock().acquire(100, TimeUnit.MILLISECONDS), "no reader beside the writer");
            a.readLock().acquire(); // a writer may read
            a.writeLock().release();
            Checks.that(b.readLock().acquire(60, TimeUnit.SECONDS), "readers share");
            Checks.that(!b.writeLock().acquire(100, TimeUnit.MILLISECONDS), "no writer beside readers");
            a.readLock().release();
            b.readLock().release();
            Checks.that(b.writeLock().acquire(60, TimeUnit.SECONDS), "writer");
            b.writeLock().release();
        }
    }

    static void sharedSemaphore() throws Exception {
        try (Curators c = new Curators(2); SharedCount count = new SharedCount(c.get(0), Curators.path("leases"), 1)) {
            count.start();
            InterProcessSemaphoreV2 s = new InterProcessSemaphoreV2(c.get(0), Curators.path("shared-semaphore"), count);
            Lease first = s.acquire(60, TimeUnit.SECONDS);
            Checks.equal(s.acquire(200, TimeUnit.MILLISECONDS), null, "one lease only");
            count.setCount(2);
            Lease second = s.acquire(60, TimeUnit.SECONDS);
            Checks.that(second != null, "a second lease after the count was raised");
            s.returnAll(Arrays.asList(first, second));
            Checks.equal(s.acquire(2, 60, TimeUnit.SECONDS).size(), 2, "several at once");
        }
    }

    static void multiLock() throws Exception {
        try (Curators c = new Curators(2)) {
            List<String> paths = Arrays.asList(Curators.path("multi/a"), Curators.path("multi/b"));
            InterProcessMultiLock all = new InterProcessMultiLock(c.get(0), paths);
            InterProcessSemaphoreMutex one = new InterProcessSemaphoreMutex(c.get(1), paths.get(1));
            InterProcessMutex b = new InterProcessMutex(c.get(1), paths.get(1));
            b.acquire();
            Checks.that(!all.acquire(300, TimeUnit.MILLISECONDS), "b is held");
            InterProcessMutex a = new InterProcessMutex(c.get(1), paths.get(0));
            Checks.that(a.acquire(60, TimeUnit.SECONDS), "a was given back");
            a.release();
            b.release();
            Checks.that(all.acquire(60, TimeUnit.SECONDS), "both free");
            Checks.that(!b.acquire(100, TimeUnit.MILLISECONDS), "b held by the multi lock");
            all.release();
            Checks.that(!one.isAcquiredInThisProcess(), "never acquired");
        }
    }

    static void latch() throws Exception {
        try (Curators c = new Curators(3)) {
            String path = Curators.path("latch");
            List<LeaderLatch> latches = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                LeaderLatch l = new LeaderLatch(c.get(i), path, "id-" + i);
                l.start();
                latches.add(l);
                int n = i + 1;
                Checks.eventually("participant " + i, () -> l.getParticipants().size() == n);
            }
            Checks.that(latches.get(0).await(60, TimeUnit.SECONDS), "the first leads");
            Checks.equal(latches.get(2).getLeader().getId(), "id-0", "leader");
            latches.get(0).close();
            Checks.that(latches.get(1).await(60, TimeUnit.SECONDS), "the second follows");
            c.get(1).getZookeeperClient().getZooKeeper().close(); // its session ends
            Checks.that(latches.get(2).await(60, TimeUnit.SECONDS), "the third follows");
            latches.get(2).close();
        }
    }

    static void selector() throws Exception {
        try (Curators c = new Curators(3)) {
            String path = Curators.path("selector");
            AtomicInteger turns = new AtomicInteger();
            List<LeaderSelector> selectors = new ArrayList<>();
            for (CuratorFramework f : c.all) {
                LeaderSelector s = new LeaderSelector(f, path, new LeaderSelectorListenerAdapter() {
                    @Override
                    public void takeLeadership(CuratorFramework client) throws Exception {
                        try (Checks.Referee ref = new Checks.Referee()) {
                            ref.alone("curator-selector");
                        }
                        turns.incrementAndGet();
                    }
                });
                s.autoRequeue();
                s.start();
                selectors.add(s);
            }
            Checks.eventually("thirty turns", () -> turns.get() >= 30);
            Checks.equal(selectors.get(0).getParticipants().size() <= 3, true, "participants");
            for (LeaderSelector s : selectors) {
                s.close();
            }
        }
    }
}
