import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.lang.reflect.Method;
import java.net.Socket;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryForever;

/** Peer SERVERS REFEREE KIND PATH ROUNDS THREADS: takes Curator's locks and tells the referee. */
public class Peer {
    public static void main(String[] a) throws Exception {
        int rounds = Integer.parseInt(a[4]), threads = Integer.parseInt(a[5]);
        Thread[] ts = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            int seed = i;
            ts[i] = new Thread(() -> {
                try {
                    contend(a[0], a[1], a[2], a[3], rounds, new Random(seed));
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            });
            ts[i].start();
        }
        for (Thread t : ts) {
            t.join();
        }
        System.exit(0);
    }

    static void contend(String servers, String referee, String kind, String path, int rounds, Random random) throws Exception {
        String[] hp = referee.split(":");
        try (CuratorFramework c = CuratorFrameworkFactory.newClient(servers, 20000, 10000, new RetryForever(100));
                Socket s = new Socket(hp[0], Integer.parseInt(hp[1]))) {
            s.setTcpNoDelay(true);
            c.start();
            PrintWriter out = new PrintWriter(s.getOutputStream(), true);
            BufferedReader in = new BufferedReader(new InputStreamReader(s.getInputStream()));
            InterProcessMutex mutex = new InterProcessMutex(c, path);
            InterProcessReadWriteLock rw = new InterProcessReadWriteLock(c, path);
            InterProcessSemaphoreV2 sem = new InterProcessSemaphoreV2(c, path, 3);
            for (int i = 0; i < rounds; i++) {
                if (kind.equals("semaphore")) {
                    Lease l = sem.acquire();
                    inside(out, in, "s", l.getNodeName());
                    sem.returnLease(l);
                    continue;
                }
                boolean write = kind.equals("mutex") || random.nextInt(3) == 0;
                InterProcessMutex m = kind.equals("mutex") ? mutex : write ? rw.writeLock() : rw.readLock();
                if (!m.acquire(60, TimeUnit.SECONDS)) {
                    throw new IllegalStateException("not acquired");
                }
                try {
                    inside(out, in, write ? "w" : "r", pathOf(m));
                } finally {
                    m.release();
                }
            }
        }
    }

    static void inside(PrintWriter out, BufferedReader in, String mode, String node) throws Exception {
        out.println("enter " + mode + " " + node.substring(node.lastIndexOf('/') + 1));
        in.readLine();
        out.println("exit");
        in.readLine();
    }

    static String pathOf(InterProcessMutex m) throws Exception {
        Method f = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        f.setAccessible(true);
        return (String) f.invoke(m);
    }
}
