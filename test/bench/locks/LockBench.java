import java.io.ByteArrayOutputStream;
import java.net.Socket;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;

/** LockBench HOST:PORT PATH CLIENTS WARM_MS DURATION_MS: Curator's InterProcessMutex, as a line of JSON. */
public final class LockBench {
    private static volatile boolean on;
    private static volatile boolean stop;
    private static final AtomicLong inside = new AtomicLong();
    private static final AtomicLong violations = new AtomicLong();
    private static final AtomicLong waiting = new AtomicLong();
    private static final AtomicLong released = new AtomicLong();
    private static final List<Long> acquire = new ArrayList<>();
    private static final List<Long> handoff = new ArrayList<>();

    public static void main(String[] a) throws Exception {
        int n = Integer.parseInt(a[2]);
        List<CuratorFramework> clients = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            CuratorFramework c = CuratorFrameworkFactory.newClient(a[0], 20_000, 15_000, new RetryForever(100));
            c.start();
            if (!c.blockUntilConnected(30, TimeUnit.SECONDS)) {
                throw new IllegalStateException("no connection");
            }
            clients.add(c);
            threads.add(new Thread(() -> work(new InterProcessMutex(c, a[1]))));
        }
        threads.forEach(Thread::start);
        Thread.sleep(Long.parseLong(a[3]));
        long before = received(a[0]);
        long begun = System.nanoTime();
        on = true;
        Thread.sleep(Long.parseLong(a[4]));
        on = false;
        double seconds = (System.nanoTime() - begun) / 1e9;
        long requests = received(a[0]) - before - 1; // without the request that asks for the number
        stop = true;
        for (Thread t : threads) {
            t.join();
        }
        clients.forEach(CuratorFramework::close);
        synchronized (acquire) {
            System.out.printf(
                    "{\"acquired\":%d,\"perSecond\":%.1f,\"acquireMs\":%s,\"handoffMs\":%s,\"serverRequestsPerAcquire\":%.2f,\"violations\":%d}%n",
                    acquire.size(), acquire.size() / seconds, percentiles(acquire), percentiles(handoff),
                    requests / (double) Math.max(1, acquire.size()), violations.get());
        }
    }

    private static void work(InterProcessMutex lock) {
        try {
            while (!stop) {
                long begun = System.nanoTime();
                waiting.incrementAndGet();
                lock.acquire();
                long now = System.nanoTime();
                waiting.decrementAndGet();
                if (inside.incrementAndGet() != 1) {
                    violations.incrementAndGet();
                }
                long sent = released.getAndSet(0);
                if (on) {
                    synchronized (acquire) {
                        acquire.add(now - begun);
                        if (sent != 0 && begun < sent) {
                            handoff.add(now - sent);
                        }
                    }
                }
                inside.decrementAndGet();
                if (waiting.get() > 0) {
                    released.set(System.nanoTime());
                }
                lock.release();
            }
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static String percentiles(List<Long> ns) {
        if (ns.isEmpty()) {
            return "{\"n\":0}";
        }
        Collections.sort(ns);
        return String.format("{\"n\":%d,\"p50\":%.3f,\"p99\":%.3f}", ns.size(), at(ns, 0.5), at(ns, 0.99));
    }

    private static double at(List<Long> ns, double q) {
        return ns.get(Math.min(ns.size() - 1, (int) (q * ns.size()))) / 1e6;
    }

    /** How many requests the server says it has received. */
    private static long received(String server) throws Exception {
        int colon = server.lastIndexOf(':');
        try (Socket s = new Socket(server.substring(0, colon), Integer.parseInt(server.substring(colon + 1)))) {
            s.getOutputStream().write("srvr".getBytes());
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            s.getInputStream().transferTo(all);
            for (String line : all.toString().split("\n")) {
                if (line.startsWith("Received: ")) {
                    return Long.parseLong(line.substring("Received: ".length()).trim());
                }
            }
        }
        throw new IllegalStateException("the server does not say what it has received");
    }
}
