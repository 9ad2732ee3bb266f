import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;

/** Nodes, queues, barriers, counters. */
final class CuratorNodes {
    private CuratorNodes() {}

    static void register() {
        Checks.check("persistent-node-survives-its-session", CuratorNodes::persistentNode);
        Checks.check("persistent-ttl-node-is-kept-alive", CuratorNodes::ttlNode);
        Checks.check("group-member", CuratorNodes::groupMember);
        Checks.check("shared-count-and-value", CuratorNodes::shared);
        Checks.check("distributed-atomic-long-adds-up", CuratorNodes::atomicLong);
        Checks.check("distributed-barrier", CuratorNodes::barrier);
        Checks.check("distributed-double-barrier", CuratorNodes::doubleBarrier);
        Checks.check("distributed-queue-gives-each-item-once", CuratorNodes::queue);
        Checks.check("priority-and-delay-queue", CuratorNodes::otherQueues);
        Checks.check("simple-distributed-queue", CuratorNodes::simpleQueue);
    }

    static void persistentNode() throws Exception {
        String p = Curators.path("persistent/node");
        try (Curators c = new Curators(2);
             PersistentNode n = new PersistentNode(c.get(0), CreateMode.EPHEMERAL, true, p, "v".getBytes())) {
            n.start();
            Checks.that(n.waitForInitialCreate(60, TimeUnit.SECONDS), "created");
            String actual = n.getActualPath();
            c.catchUp();
            c.get(1).delete().forPath(actual);
            Checks.eventually("created again after a delete", () -> c.get(1).checkExists().forPath(actual) != null);
            long old = c.get(0).getZookeeperClient().getZooKeeper().getSessionId();
            c.get(0).getZookeeperClient().getZooKeeper().getTestable().injectSessionExpiration();
            Checks.eventually("created again by the new session", () -> {
                org.apache.zookeeper.data.Stat s = c.get(1).checkExists().forPath(actual);
                return s != null && s.getEphemeralOwner() != old;
            });
        }
    }

    static void ttlNode() throws Exception {
        String p = Curators.path("ttl/node");
        try (Curators c = new Curators(2); PersistentTtlNode n = new PersistentTtlNode(c.get(0), p, 8_000, "v".getBytes())) {
            n.start();
            Checks.that(n.waitForInitialCreate(60, TimeUnit.SECONDS), "created");
            Checks.eventually("touched", () -> c.get(1).checkExists().forPath(p + "/" + PersistentTtlNode.DEFAULT_CHILD_NODE_NAME) != null);
            Thread.sleep(10_000);
            Checks.that(c.get(1).checkExists().forPath(p) != null, "alive after its time to live");
        }
    }

    static void groupMember() throws Exception {
        String p = Curators.path("group");
        try (Curators c = new Curators(2);
             GroupMember a = new GroupMember(c.get(0), p, "ann", "A".getBytes());
             GroupMember b = new GroupMember(c.get(1), p, "bob", "B".getBytes())) {
            a.start();
            b.start();
            Checks.eventually("both", () -> a.getCurrentMembers().size() == 2 && b.getCurrentMembers().size() == 2);
            b.setThisData("B2".getBytes());
            Checks.eventually("data", () -> new String(a.getCurrentMembers().get("bob")).equals("B2"));
            b.close();
            Checks.eventually("bob left", () -> a.getCurrentMembers().size() == 1);
        }
    }

    static void shared() throws Exception {
        try (Curators c = new Curators(2);
             SharedCount a = new SharedCount(c.get(0), Curators.path("count"), 3);
             SharedCount b = new SharedCount(c.get(1), Curators.path("count"), 3);
             SharedValue v = new SharedValue(c.get(0), Curators.path("value"), "seed".getBytes())) {
            a.start();
            b.start();
            v.start();
            Checks.eventually("seed", () -> b.getCount() == 3);
            a.setCount(10);
            Checks.eventually("seen by the other", () -> b.getCount() == 10);
            Checks.that(b.trySetCount(b.getVersionedValue(), 11), "versioned set");
            v.setValue("new".getBytes());
            Checks.equal(new String(v.getValue()), "new", "value");
        }
    }

    static void atomicLong() throws Exception {
        String p = Curators.path("atomic");
        try (Curators c = new Curators(4)) {
            List<Checks.Body> bodies = new ArrayList<>();
            for (CuratorFramework f : c.all) {
                bodies.add(() -> {
                    DistributedAtomicLong n = new DistributedAtomicLong(f, p, new RetryNTimes(5, 5),
                        PromotedToLock.builder().lockPath(p + "-lock").retryPolicy(new RetryNTimes(50, 5)).build());
                    for (int i = 0; i < 25; i++) {
                        AtomicValue<Long> v = n.increment();
                        Checks.that(v.succeeded(), "increment");
                    }
                });
            }
            Checks.together(bodies);
            c.catchUp();
            Checks.equal(new DistributedAtomicLong(c.get(0), p, new RetryNTimes(5, 5)).get().postValue(), 100L, "sum");
        }
    }

    static void barrier() throws Exception {
        try (Curators c = new Curators(2)) {
            DistributedBarrier a = new DistributedBarrier(c.get(0), Curators.path("barrier"));
            DistributedBarrier b = new DistributedBarrier(c.get(1), Curators.path("barrier"));
            a.setBarrier();
            c.catchUp();
            Checks.that(!b.waitOnBarrier(200, TimeUnit.MILLISECONDS), "shut");
            Checks.together(List.of(() -> Checks.that(b.waitOnBarrier(60, TimeUnit.SECONDS), "open"), () -> {
                Thread.sleep(200);
                a.removeBarrier();
            }));
        }
    }

    static void doubleBarrier() throws Exception {
        try (Curators c = new Curators(4)) {
            AtomicInteger in = new AtomicInteger();
            AtomicInteger out = new AtomicInteger();
            List<Checks.Body> bodies = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                CuratorFramework f = c.get(i);
                int wait = 50 * i;
                bodies.add(() -> {
                    DistributedDoubleBarrier b = new DistributedDoubleBarrier(f, Curators.path("double"), 4);
                    Thread.sleep(wait);
                    in.incrementAndGet();
                    Checks.that(b.enter(60, TimeUnit.SECONDS), "entered");
                    Checks.equal(in.get(), 4, "all have come");
                    Thread.sleep(wait);
                    out.incrementAndGet();
                    Checks.that(b.leave(60, TimeUnit.SECONDS), "left");
                    Checks.equal(out.get(), 4, "all are leaving");
                });
            }
            Checks.together(bodies);
        }
    }

    private static final QueueSerializer<String> STRINGS = new QueueSerializer<>() {
        @Override
        public byte[] serialize(String s) {
            return s.getBytes();
        }

        @Override
        public String deserialize(byte[] b) {
            return new String(b);
        }
    };

    private static QueueConsumer<String> into(java.util.Collection<String> seen) {
        return new QueueConsumer<>() {
            @Override
            public void consumeMessage(String s) {
                seen.add(s);
            }

            @Override
            public void stateChanged(CuratorFramework c, ConnectionState s) {
                // nothing to do
            }
        };
    }

    static void queue() throws Exception {
        String p = Curators.path("queue");
        try (Curators c = new Curators(3)) {
            List<String> seen = new CopyOnWriteArrayList<>();
            List<DistributedQueue<String>> consumers = new ArrayList<>();
            for (int i = 1; i < 3; i++) {
                DistributedQueue<String> q = QueueBuilder.builder(c.get(i), into(seen), STRINGS, p).lockPath(p + "-lock").buildQueue();
                q.start();
                consumers.add(q);
            }
            try (DistributedQueue<String> put = QueueBuilder.builder(c.get(0), null, STRINGS, p).buildQueue()) {
                put.start();
                for (int i = 0; i < 50; i++) {
                    put.put("item" + i);
                }
                Checks.that(put.flushPuts(60, TimeUnit.SECONDS), "flushed");
            }
            Checks.eventually("all consumed", () -> seen.size() >= 50);
            Checks.equal(Set.copyOf(seen).size(), 50, "distinct items");
            Checks.equal(seen.size(), 50, "each once");
            for (DistributedQueue<String> q : consumers) {
                q.close();
            }
        }
    }

    static void otherQueues() throws Exception {
        try (Curators c = new Curators(1)) {
            List<String> seen = new CopyOnWriteArrayList<>();
            String p = Curators.path("priority");
            try (DistributedPriorityQueue<String> put =
                     QueueBuilder.builder(c.get(0), null, STRINGS, p).buildPriorityQueue(0)) {
                put.start();
                put.put("later", 5);
                put.put("first", 1);
                put.put("last", 9);
                Checks.that(put.flushPuts(60, TimeUnit.SECONDS), "flushed");
            }
            try (DistributedPriorityQueue<String> take =
                     QueueBuilder.builder(c.get(0), into(seen), STRINGS, p).buildPriorityQueue(0)) {
                take.start();
                Checks.eventually("by priority", () -> seen.equals(List.of("first", "later", "last")));
            }
            seen.clear();
            long due = System.currentTimeMillis() + 700;
            try (DistributedDelayQueue<String> delay =
                     QueueBuilder.builder(c.get(0), into(seen), STRINGS, Curators.path("delay")).buildDelayQueue()) {
                delay.start();
                delay.put("delayed", due);
                Checks.eventually("delivered", () -> seen.equals(List.of("delayed")));
                Checks.that(System.currentTimeMillis() >= due, "not before its time");
            }
        }
    }

    static void simpleQueue() throws Exception {
        try (Curators c = new Curators(2)) {
            SimpleDistributedQueue a = new SimpleDistributedQueue(c.get(0), Curators.path("simple"));
            SimpleDistributedQueue b = new SimpleDistributedQueue(c.get(1), Curators.path("simple"));
            Checks.together(List.of(() -> Checks.equal(new String(b.poll(60, TimeUnit.SECONDS)), "x", "waited for"), () -> {
                Thread.sleep(100);
                a.offer("x".getBytes());
            }));
            for (int i = 0; i < 5; i++) {
                a.offer(("" + i).getBytes());
            }
            c.catchUp();
            for (int i = 0; i < 5; i++) {
                Checks.equal(new String(b.remove()), "" + i, "in order");
            }
            Checks.equal(b.poll(), null, "empty");
        }
    }
}
