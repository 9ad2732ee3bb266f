import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A distributed lock over HTTP: a ticket of zlockd, with nothing but the JDK (11 or newer).
 *
 * <pre>{@code
 * List<URI> servers = List.of(URI.create("https://lock1:8183"), URI.create("https://lock2:8183"));
 * try (TicketLock lock = TicketLock.take(servers, null, "/jobs/nightly", Duration.ofMinutes(1),
 *         Duration.ofHours(1), "the nightly job")) {
 *     for (Part part : parts) {
 *         lock.check(); // throws Lost once the lock may be another's
 *         write(part, lock.token());
 *     }
 * }
 * }</pre>
 *
 * A thread renews the lock. If the lock is lost, check() and close() throw Lost: then work may have
 * overlapped with the work of the next holder. No lock can stop a write that comes late; only a resource that
 * checks the token refuses it. While the machine sleeps, Java's clock may stand still. After that, check()
 * may not notice a loss, and only the token protects.
 */
public final class TicketLock implements AutoCloseable {
    /** Another holder may have the lock. Work that was done since then may overlap with its work. */
    public static final class Lost extends IllegalStateException {
        private static final long serialVersionUID = 1;

        Lost(String text) {
            super(text);
        }
    }

    private static final Duration GIVE = Duration.ofSeconds(10);
    private static final SecureRandom RANDOM = new SecureRandom();

    private final List<URI> servers;
    private final String bearer;
    private final String path;
    private final String secret;
    private final HttpClient http =
            HttpClient.newBuilder().followRedirects(HttpClient.Redirect.NEVER).connectTimeout(Duration.ofSeconds(5))
                    .build();
    private volatile long deadline; // of System.nanoTime
    private volatile long token;
    private volatile String lost;
    private volatile boolean over;
    private Thread renews;

    private TicketLock(List<URI> servers, String bearer, String path) {
        byte[] b = new byte[24];
        RANDOM.nextBytes(b);
        this.servers = List.copyOf(servers);
        this.bearer = bearer;
        this.path = path;
        this.secret = Base64.getUrlEncoder().withoutPadding().encodeToString(b); // ticket and idempotency key in one
    }

    /**
     * Takes the lock at a path. {@code ttl} is how long the lock lives if this process dies, {@code wait} is
     * how long to wait for the lock. {@code bearer} is the caller's token, or null.
     */
    public static TicketLock take(List<URI> servers, String bearer, String path, Duration ttl, Duration wait,
            String reason) throws IOException, InterruptedException, TimeoutException {
        TicketLock lock = new TicketLock(servers, bearer, path);
        long end = System.nanoTime() + wait.toNanos();
        try {
            while (true) {
                long left = Math.max(0, Math.min(end - System.nanoTime(), Duration.ofMinutes(1).toNanos()));
                Answer a = lock.ask("POST", "?ttl=" + ttl.toMillis() + "ms&wait=" + left / 1_000_000 + "ms&reason="
                        + URLEncoder.encode(reason, StandardCharsets.UTF_8), null, Duration.ofNanos(left), end);
                if (a.code == 200 || a.code == 201) {
                    lock.token = Long.parseLong(a.text("token"));
                    lock.deadline = a.sent + Long.parseLong(a.number("safeMs")) * 1_000_000;
                    break;
                }
                if (a.code == 404 || a.code == 410) {
                    throw new IOException(path + ": " + a.text("text"));
                }
                if (System.nanoTime() - end >= 0) {
                    throw new TimeoutException(path + " is held: " + a.body);
                }
            }
        } catch (Throwable e) {
            lock.leave();
            throw e;
        }
        lock.renews = new Thread(() -> lock.renew(ttl), "zlock " + path);
        lock.renews.setDaemon(true);
        lock.renews.start();
        return lock;
    }

    /** The fencing token, which rises with each holder of the lock. */
    public long token() {
        return token;
    }

    /** Whether the lock is surely ours at this moment, also after this process was paused. */
    public boolean valid() {
        return !over && lost == null && System.nanoTime() - deadline < 0;
    }

    /** Throws Lost unless the lock is surely ours. */
    public void check() {
        if (!valid()) {
            throw new Lost(path + " is lost, or was not renewed in time: " + lost);
        }
    }

    /** Gives the lock back. It throws Lost if the lock was lost before. */
    @Override
    public void close() {
        if (over) {
            return;
        }
        boolean inTime = valid();
        over = true;
        renews.interrupt();
        try {
            Answer a = ask("DELETE", "", null, Duration.ZERO, System.nanoTime() + GIVE.toNanos());
            inTime = lost == null && (a.code == 204 || a.body.contains("\"error\":\"given\""));
        } catch (IOException | TimeoutException e) {
            // No server has taken the lock back. It ends by itself.
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        if (!inTime) {
            throw new Lost(path + " was lost: the work may have overlapped with the next holder's");
        }
    }

    /** Leaves the queue, so that no place of this ticket blocks others. */
    private void leave() {
        boolean interrupted = Thread.interrupted();
        try {
            ask("DELETE", "", null, Duration.ZERO, System.nanoTime() + GIVE.toNanos());
        } catch (IOException | TimeoutException e) {
            // The ticket ends by itself.
        } catch (InterruptedException e) {
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void renew(Duration ttl) {
        try {
            while (!over) {
                long half = (deadline - System.nanoTime()) / 2_000_000;
                Thread.sleep(Math.max(50, Math.min(ttl.toMillis() / 3, half)));
                Answer a = ask("POST", "", "\"h-" + token + "\"", Duration.ZERO, deadline);
                if (a.code != 200) {
                    lost = a.body;
                    return;
                }
                deadline = a.sent + Long.parseLong(a.number("safeMs")) * 1_000_000;
            }
        } catch (InterruptedException e) {
            // close() was called. It gives the lock back.
        } catch (IOException | TimeoutException e) {
            lost = e.getMessage();
        }
    }

    private static final class Answer {
        final long sent;
        final int code;
        final String body;

        Answer(long sent, int code, String body) {
            this.sent = sent;
            this.code = code;
            this.body = body;
        }

        String text(String name) throws IOException {
            return field("\"" + name + "\":\"((?:[^\"\\\\]|\\\\.)*)\"");
        }

        String number(String name) throws IOException {
            return field("\"" + name + "\":(-?\\d+)");
        }

        private String field(String pattern) throws IOException {
            Matcher m = Pattern.compile(pattern).matcher(body);
            if (!m.find()) {
                throw new IOException("the answer is not of a port for tickets: " + code + " " + body);
            }
            return m.group(1);
        }
    }

    /** Sends a request until a server answers it. Only 404 and 410 say that the ticket is over. */
    private Answer ask(String method, String query, String ifMatch, Duration wait, long end)
            throws IOException, InterruptedException, TimeoutException {
        String last = "";
        for (int n = 0; n < servers.size() || System.nanoTime() - end < 0; n++) {
            URI at = servers.get(n % servers.size());
            String encoded = URLEncoder.encode(path, StandardCharsets.UTF_8).replace("%2F", "/").replace("+", "%20");
            HttpRequest.Builder r = HttpRequest.newBuilder(URI.create(at.toString().replaceAll("/$", "") + "/v1/locks"
                    + encoded + query)).timeout(wait.plusSeconds(10)).header("Zlock-Ticket", secret)
                    .method(method, HttpRequest.BodyPublishers.noBody());
            if (bearer != null) {
                r.header("Authorization", "Bearer " + bearer);
            }
            if (ifMatch != null) {
                r.header("If-Match", ifMatch);
            }
            long sent = System.nanoTime();
            try {
                HttpResponse<String> a = http.send(r.build(), BodyHandlers.ofString());
                int code = a.statusCode();
                if (code < 300 || code == 404 || code == 410 || code == 412) {
                    return new Answer(sent, code, a.body());
                }
                if (code < 500 && code != 429) {
                    throw new IllegalArgumentException(path + ": " + a.body());
                }
                last = a.body();
            } catch (IOException e) { // no answer: the server may have done it
                last = e.toString();
            }
            Thread.sleep((n + 1) % servers.size() == 0 ? ThreadLocalRandom.current().nextInt(100, 400) : 0);
        }
        throw new TimeoutException("no server answers for " + path + ": " + last);
    }
}
