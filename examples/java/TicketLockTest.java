import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;

/** Checks TicketLock against a server: java TicketLockTest URL. Any failure is an exception. */
public final class TicketLockTest {
    private static List<URI> servers;

    private static TicketLock take(String path, int ttl, int waitMillis) throws Exception {
        return TicketLock.take(servers, null, path, Duration.ofSeconds(ttl), Duration.ofMillis(waitMillis), "a test");
    }

    private static void want(boolean condition, String text) {
        if (!condition) {
            throw new AssertionError(text);
        }
    }

    public static void main(String[] args) throws Exception {
        servers = List.of(URI.create("http://127.0.0.1:1"), URI.create(args[0])); // nothing listens at port 1
        if (args.length > 1) {
            paused(args[1]);
            return;
        }
        oneAtATime();
        renewed();
        notHeld();
        lost(args[0]);
        System.out.println("done");
    }

    private static void oneAtATime() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger done = new AtomicInteger();
        List<Long> tokens = new ArrayList<>();
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            Thread t = new Thread(() -> {
                try (TicketLock lock = take("/java/a b", 20, 60_000)) {
                    want(inside.incrementAndGet() == 1, "two hold");
                    tokens.add(lock.token());
                    lock.check();
                    Thread.sleep(10);
                    inside.decrementAndGet();
                    done.incrementAndGet();
                } catch (Exception e) {
                    e.printStackTrace();
                }
            });
            all.add(t);
            t.start();
        }
        for (Thread t : all) {
            t.join();
        }
        want(done.get() == 6, done + " of 6 held");
        for (int i = 1; i < 6; i++) {
            want(tokens.get(i - 1) < tokens.get(i), "tokens " + tokens);
        }
    }

    private static void renewed() throws Exception {
        try (TicketLock lock = take("/java/renewed", 4, 0)) {
            for (int i = 0; i < 120; i++) { // for longer than the lock lives if nothing renews it
                Thread.sleep(50);
                lock.check();
            }
        }
    }

    private static void notHeld() throws Exception {
        try (TicketLock lock = take("/java/held", 30, 0)) {
            try (TicketLock other = take("/java/held", 30, 100)) {
                throw new AssertionError("two hold: " + other.token());
            } catch (TimeoutException e) {
                want(e.getMessage().contains("a test"), e.getMessage());
            }
            lock.check();
        }
        take("/java/held", 30, 0).close(); // the ticket of `other` has left the queue
        try {
            take("/java/held", 1, 0);
            throw new AssertionError("a ttl of a second is taken");
        } catch (IllegalArgumentException e) {
            want(e.getMessage().contains("ttl"), e.getMessage());
        }
    }

    /** The server ends the ticket because nothing renews it: its servers are out of reach. */
    private static void lost(String url) throws Exception {
        TicketLock lock = take("/java/lost", 4, 0);
        java.lang.reflect.Field f = TicketLock.class.getDeclaredField("servers");
        f.setAccessible(true);
        f.set(lock, List.of(URI.create("http://127.0.0.1:1")));
        try (TicketLock next = take("/java/lost", 30, 60_000)) {
            want(next.token() > lock.token(), "tokens");
            want(!lock.valid(), "two hold");
        }
        try {
            lock.close();
            throw new AssertionError("the loss is not told");
        } catch (TicketLock.Lost e) {
            want(e.getMessage().contains("overlapped"), e.getMessage());
        }
    }

    /** This process is stopped while it holds the lock, for longer than the lock lives. */
    private static void paused(String path) throws Exception {
        TicketLock lock = take(path, 4, 60_000);
        System.out.println(lock.token());
        System.in.read();
        System.out.println(lock.valid());
        try {
            lock.close();
        } catch (TicketLock.Lost e) {
            System.out.println("lost");
        }
    }
}
