import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/** Contends for a recipe and reports every stay inside to the referee. */
final class Contender {
    private Contender() {}

    /** contend KIND PATH KEY ROUNDS. */
    static void main(String[] a) throws Exception {
        try (Curators c = new Curators(1)) {
            contend(c.get(0), a[1], a[2], a[3], Integer.parseInt(a[4]));
        }
    }

    static void contend(CuratorFramework c, String kind, String path, String key, int rounds) throws Exception {
        try (Checks.Referee ref = new Checks.Referee()) {
            switch (kind) {
                case "mutex" -> lock(new InterProcessMutex(c, path), ref, key, "x", rounds);
                case "semaphore-mutex" -> lock(new InterProcessSemaphoreMutex(c, path), ref, key, "x", rounds);
                case "read-write" -> {
                    InterProcessReadWriteLock rw = new InterProcessReadWriteLock(c, path);
                    for (int i = 0; i < rounds; i++) {
                        boolean write = i % 4 == 0;
                        lock(write ? rw.writeLock() : rw.readLock(), ref, key, write ? "w" : "r", 1);
                    }
                }
                case "semaphore" -> {
                    InterProcessSemaphoreV2 s = new InterProcessSemaphoreV2(c, path, 3);
                    for (int i = 0; i < rounds; i++) {
                        Lease lease = s.acquire(60, TimeUnit.SECONDS);
                        Checks.that(lease != null, "lease");
                        ref.inside(key, "s", 3, 4);
                        s.returnLease(lease);
                    }
                }
                case "latch" -> {
                    for (int i = 0; i < rounds; i++) {
                        try (LeaderLatch latch = new LeaderLatch(c, path)) {
                            latch.start();
                            Checks.that(latch.await(60, TimeUnit.SECONDS), "leadership");
                            ref.alone(key);
                        }
                    }
                }
                default -> throw new IllegalArgumentException(kind);
            }
        }
    }

    private static void lock(InterProcessLock l, Checks.Referee ref, String key, String mode, int rounds) throws Exception {
        for (int i = 0; i < rounds; i++) {
            Checks.that(l.acquire(60, TimeUnit.SECONDS), "acquired in time");
            try {
                ref.inside(key, mode, 1, 2);
            } finally {
                l.release();
            }
        }
    }
}
