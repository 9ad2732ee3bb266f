import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** What every Java driver needs: checks that print a line each, the referee, waiting. */
final class Checks {
    static final String ZK = System.getenv("ZK");
    static final String RELAY = System.getenv("RELAY");
    static final String ROOT = "/java-" + ProcessHandle.current().pid();

    interface Body {
        void run() throws Exception;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    private record Check(String name, Body body) {}

    private static final List<Check> checks = new ArrayList<>();

    private Checks() {}

    static void check(String name, Body body) {
        checks.add(new Check(name, body));
    }

    /** Runs all checks, or those named, and prints a line for each. */
    static void runAll(String... wanted) {
        int n = 0;
        for (Check c : checks) {
            if (wanted.length > 0 && !Arrays.asList(wanted).contains(c.name)) {
                continue;
            }
            n++;
            try {
                c.body.run();
                System.out.println("ok " + c.name);
            } catch (Throwable e) {
                e.printStackTrace();
                System.out.println("fail " + c.name + ": " + e.toString().replace('\n', ' '));
            }
        }
        System.out.println("done " + n);
        System.out.flush();
    }

    static void that(boolean ok, String what) {
        if (!ok) {
            throw new AssertionError(what);
        }
    }

    static void equal(Object got, Object want, String what) {
        if (!(want == null ? got == null : want.equals(got))) {
            throw new AssertionError(what + ": got " + got + ", want " + want);
        }
    }

    static void raises(Class<? extends Exception> kind, Body body) throws Exception {
        try {
            body.run();
        } catch (Exception e) {
            if (kind.isInstance(e)) {
                return;
            }
            throw e;
        }
        throw new AssertionError(kind.getSimpleName() + " expected");
    }

    static void eventually(String what, Condition c) throws Exception {
        eventually(what, 60_000, c);
    }

    static void eventually(String what, long ms, Condition c) throws Exception {
        long end = System.nanoTime() + ms * 1_000_000;
        while (!c.holds()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("never came true: " + what);
            }
            Thread.sleep(5);
        }
    }

    /** Runs each body in a thread of its own, and throws the first failure again. */
    static void together(List<Body> bodies) throws Exception {
        ExecutorService pool = Executors.newCachedThreadPool(r -> {
            Thread t = new Thread(r);
            t.setDaemon(true);
            return t;
        });
        try {
            List<Future<Object>> futures = new ArrayList<>();
            for (Body b : bodies) {
                futures.add(pool.submit((Callable<Object>) () -> {
                    b.run();
                    return null;
                }));
            }
            for (Future<Object> f : futures) {
                f.get(180, TimeUnit.SECONDS);
            }
        } finally {
            pool.shutdownNow();
        }
    }

    /** A contender's connection to the referee. */
    static final class Referee implements AutoCloseable {
        private final Socket socket;
        private final BufferedReader in;

        Referee() throws IOException {
            String[] a = System.getenv("REFEREE").split(":");
            socket = new Socket(a[0], Integer.parseInt(a[1]));
            in = new BufferedReader(new InputStreamReader(socket.getInputStream()));
        }

        synchronized String say(String line) throws IOException {
            socket.getOutputStream().write((line + "\n").getBytes());
            return in.readLine();
        }

        /** Stays in the critical section for some ms. */
        void inside(String key, String mode, int limit, long ms) throws Exception {
            equal(say("enter " + key + " " + mode + " " + limit), "ok", "referee");
            Thread.sleep(ms);
            say("leave " + key);
        }

        void alone(String key) throws Exception {
            inside(key, "x", 1, 2);
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }
}
