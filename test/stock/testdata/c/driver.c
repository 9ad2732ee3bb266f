/* Runs the C client, libzookeeper_mt, as Debian ships it. */
#include "checks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void operations(void) {
    struct events e;
    zhandle_t *zh = connect_to(hosts, &e, NULL);
    char dir[80], path[128], made[128], buf[64];
    struct Stat st, st2;
    struct String_vector names;
    int len = sizeof buf;
    fresh(zh, "ops", dir, sizeof dir);
    snprintf(path, sizeof path, "%s/a", dir);
    RC(zoo_create2(zh, path, "one", 3, &ZOO_OPEN_ACL_UNSAFE, 0, made, sizeof made, &st), ZOK);
    EXPECT(strcmp(made, path) == 0 && st.dataLength == 3 && st.version == 0);
    RC(zoo_create(zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZNODEEXISTS);
    RC(zoo_get(zh, path, 0, buf, &len, &st2), ZOK);
    EXPECT(len == 3 && memcmp(buf, "one", 3) == 0 && st.czxid == st2.czxid && st.pzxid == st2.pzxid && st.mtime == st2.mtime);
    RC(zoo_set2(zh, path, "two", 3, 0, &st), ZOK);
    EXPECT(st.version == 1);
    RC(zoo_set(zh, path, "x", 1, 0), ZBADVERSION);
    snprintf(path, sizeof path, "%s/none/x", dir);
    RC(zoo_create(zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZNONODE);
    snprintf(path, sizeof path, "%s/s-", dir);
    RC(zoo_create(zh, path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, made, sizeof made), ZOK);
    EXPECT(strcmp(made + strlen(path), "0000000001") == 0);
    len = sizeof buf;
    RC(zoo_get(zh, made, 0, buf, &len, &st), ZOK);
    EXPECT(len == -1 && st.ephemeralOwner == zoo_client_id(zh)->client_id); /* null stays null */
    RC(zoo_get_children2(zh, dir, 0, &names, &st), ZOK);
    EXPECT(names.count == 2 && st.numChildren == 2);
    deallocate_String_vector(&names);
    RC(zoo_delete(zh, dir, -1), ZNOTEMPTY);
    RC(zoo_delete(zh, made, 0), ZOK);
    RC(zoo_exists(zh, made, 0, &st), ZNONODE);
    snprintf(path, sizeof path, "%s/container", dir);
    RC(zoo_create(zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, NULL, 0), ZOK);
    snprintf(path, sizeof path, "%s/ttl", dir);
    RC(zoo_create_ttl(zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_WITH_TTL, 60000, NULL, 0), ZOK);
    RC(zookeeper_close(zh), ZOK);
}

static void watches(void) {
    struct events e, e2, mine;
    zhandle_t *zh = connect_to(hosts, &e, NULL), *w = connect_to(hosts, &e2, NULL);
    char dir[80], path[128], buf[8];
    struct Stat st;
    struct String_vector names;
    int len = sizeof buf;
    fresh(zh, "watches", dir, sizeof dir);
    snprintf(path, sizeof path, "%s/n", dir);
    events_init(&mine);
    RC(zoo_wexists(zh, path, events_watch, &mine, &st), ZNONODE);
    RC(zoo_wget_children(zh, dir, events_watch, &e2, &names), ZOK);
    deallocate_String_vector(&names);
    RC(zoo_create(w, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK);
    EXPECT(events_next_is(&mine, ZOO_CREATED_EVENT, path));
    EXPECT(events_next_is(&e2, ZOO_CHILD_EVENT, dir));
    catch_up(zh);
    RC(zoo_wget(zh, path, events_watch, &mine, buf, &len, &st), ZOK);
    RC(zoo_set(w, path, "1", 1, -1), ZOK);
    RC(zoo_set(w, path, "2", 1, -1), ZOK);
    EXPECT(events_next_is(&mine, ZOO_CHANGED_EVENT, path));
    EXPECT(events_silent(&mine));
    catch_up(zh);
    RC(zoo_wexists(zh, path, events_watch, &mine, &st), ZOK);
    RC(zoo_remove_watches(zh, path, ZWATCHTYPE_DATA, events_watch, &mine, 0), ZOK);
    RC(zoo_set(w, path, "3", 1, -1), ZOK);
    EXPECT(events_silent(&mine));
    catch_up(zh);
    RC(zoo_wexists(zh, path, events_watch, &mine, &st), ZOK);
    RC(zoo_delete(w, path, -1), ZOK);
    EXPECT(events_next_is(&mine, ZOO_DELETED_EVENT, path));
    zookeeper_close(w);
    zookeeper_close(zh);
}

static void multi(void) {
    struct events e;
    zhandle_t *zh = connect_to(hosts, &e, NULL);
    char dir[80], a[128], s[128], made[128], b[128];
    struct Stat st;
    zoo_op_t ops[4];
    zoo_op_result_t results[4];
    fresh(zh, "multi", dir, sizeof dir);
    snprintf(a, sizeof a, "%s/a", dir);
    snprintf(b, sizeof b, "%s/b", dir);
    snprintf(s, sizeof s, "%s/s-", dir);
    zoo_create_op_init(&ops[0], a, "1", 1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    zoo_create_op_init(&ops[1], s, "1", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, made, sizeof made);
    zoo_set_op_init(&ops[2], a, "2", 1, 0, &st);
    zoo_check_op_init(&ops[3], a, 1);
    RC(zoo_multi(zh, 4, ops, results), ZOK);
    EXPECT(strcmp(made + strlen(s), "0000000001") == 0 && st.version == 1);
    zoo_create_op_init(&ops[0], b, "1", 1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    zoo_delete_op_init(&ops[1], dir, -1);
    zoo_delete_op_init(&ops[2], a, -1);
    RC(zoo_multi(zh, 3, ops, results), ZNOTEMPTY);
    EXPECT(results[0].err == ZOK && results[1].err == ZNOTEMPTY && results[2].err == ZRUNTIMEINCONSISTENCY);
    RC(zoo_exists(zh, b, 0, &st), ZNONODE);
    zookeeper_close(zh);
}

static int authenticated = -1000;
static void auth_done(int rc, const void *data) { authenticated = rc; }

static void acl(void) {
    struct events e, e2;
    zhandle_t *zh = connect_to(hosts, &e, NULL), *other = connect_to(hosts, &e2, NULL);
    char dir[80], path[128], buf[8];
    struct ACL_vector list;
    struct Stat st;
    int len = sizeof buf;
    fresh(zh, "acl", dir, sizeof dir);
    snprintf(path, sizeof path, "%s/mine", dir);
    authenticated = -1000;
    RC(zoo_add_auth(zh, "digest", "carl:pw", 7, auth_done, NULL), ZOK);
    RC(zoo_create(zh, path, "m", 1, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0), ZOK);
    EXPECT(authenticated == ZOK);
    catch_up(other);
    RC(zoo_get(other, path, 0, buf, &len, &st), ZNOAUTH);
    RC(zoo_get_acl(zh, path, &list, &st), ZOK);
    EXPECT(list.count == 1 && strcmp(list.data[0].id.scheme, "digest") == 0 && strncmp(list.data[0].id.id, "carl:", 5) == 0);
    deallocate_ACL_vector(&list);
    RC(zoo_set_acl(other, path, -1, &ZOO_OPEN_ACL_UNSAFE), ZNOAUTH);
    RC(zoo_set_acl(zh, path, st.aversion, &ZOO_READ_ACL_UNSAFE), ZOK);
    catch_up(other);
    RC(zoo_get(other, path, 0, buf, &len, &st), ZOK);
    RC(zoo_set(zh, path, "x", 1, -1), ZNOAUTH);
    RC(zoo_add_auth(other, "nosuchscheme", "x", 1, auth_done, NULL), ZOK);
    EXPECT(events_state(&e2, ZOO_AUTH_FAILED_STATE));
    zookeeper_close(other);
    zookeeper_close(zh);
}

/* Asynchronous requests, all in flight at once; completions must come in order. */
static pthread_mutex_t async_mu = PTHREAD_MUTEX_INITIALIZER;
static int async_next, async_wrong;

static void in_order(long i, int rc) {
    pthread_mutex_lock(&async_mu);
    if (i != async_next || rc != ZOK) async_wrong++;
    async_next++;
    pthread_mutex_unlock(&async_mu);
}
static void created(int rc, const char *name, const void *i) { in_order((long)i, rc); }
static void set_done(int rc, const struct Stat *st, const void *i) { in_order((long)i, rc); }
static void deleted(int rc, const void *i) { in_order((long)i, rc); }

static void async(void) {
    struct events e;
    zhandle_t *zh = connect_to(hosts, &e, NULL);
    char dir[80], path[128];
    long i;
    fresh(zh, "async", dir, sizeof dir);
    async_next = async_wrong = 0;
    for (i = 0; i < 1500; i += 3) {
        snprintf(path, sizeof path, "%s/%ld", dir, i);
        RC(zoo_acreate(zh, path, "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, created, (void *)i), ZOK);
        RC(zoo_aset(zh, path, "y", 1, 0, set_done, (void *)(i + 1)), ZOK);
        RC(zoo_adelete(zh, path, 1, deleted, (void *)(i + 2)), ZOK);
    }
    for (i = 0; i < 6000 && async_next < 1500; i++) sleep_ms(10);
    EXPECT(async_next == 1500);
    EXPECT(async_wrong == 0);
    zookeeper_close(zh);
}

static int synced = -1000;
static void sync_done(int rc, const char *value, const void *data) { synced = rc == ZOK && strcmp(value, "/") == 0 ? ZOK : rc; }

static void sync_and_config(void) {
    struct events e;
    zhandle_t *zh = connect_to(hosts, &e, NULL);
    char buf[4096];
    int len = sizeof buf, i;
    struct Stat st;
    RC(zoo_async(zh, "/", sync_done, NULL), ZOK);
    RC(zoo_getconfig(zh, 0, buf, &len, &st), ZOK);
    for (i = 0; i < 6000 && synced == -1000; i++) sleep_ms(10);
    EXPECT(synced == ZOK);
    zookeeper_close(zh);
}

static void reconnect(void) {
    struct events e, e2, data, exist, child;
    zhandle_t *zh = connect_to(relay, &e, NULL), *w = connect_to(hosts, &e2, NULL);
    struct referee r;
    char dir[80], path[128], born[128], mine[128], buf[8];
    struct Stat st;
    struct String_vector names;
    int len = sizeof buf;
    int64_t id = zoo_client_id(zh)->client_id;
    referee_open(&r);
    events_init(&data);
    events_init(&exist);
    events_init(&child);
    RC(zoo_add_auth(zh, "digest", "carl:pw", 7, NULL, NULL), ZOK);
    fresh(zh, "reconnect", dir, sizeof dir);
    snprintf(path, sizeof path, "%s/n", dir);
    snprintf(born, sizeof born, "%s/born", dir);
    snprintf(mine, sizeof mine, "%s/mine", dir);
    RC(zoo_create(zh, path, "0", 1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK);
    RC(zoo_create(zh, mine, "0", 1, &ZOO_CREATOR_ALL_ACL, ZOO_EPHEMERAL, NULL, 0), ZOK);
    RC(zoo_wget(zh, path, events_watch, &data, buf, &len, &st), ZOK);
    RC(zoo_wexists(zh, born, events_watch, &exist, &st), ZNONODE);
    RC(zoo_wget_children(zh, dir, events_watch, &child, &names), ZOK);
    deallocate_String_vector(&names);
    EXPECT(referee_say(&r, "refuse 200"));
    RC(zoo_set(w, path, "1", 1, -1), ZOK);
    RC(zoo_create(w, born, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK);
    EXPECT(events_next_is(&data, ZOO_CHANGED_EVENT, path));
    EXPECT(events_next_is(&exist, ZOO_CREATED_EVENT, born));
    EXPECT(events_next_is(&child, ZOO_CHILD_EVENT, dir));
    EXPECT(events_state(&e, ZOO_CONNECTED_STATE));
    EXPECT(zoo_client_id(zh)->client_id == id);
    RC(zoo_set(zh, mine, "2", 1, -1), ZOK); /* still authenticated */
    referee_close(&r);
    zookeeper_close(w);
    zookeeper_close(zh);
}

static void expire(void) {
    struct events e, e2, e3;
    zhandle_t *zh = connect_to(hosts, &e, NULL), *w = connect_to(hosts, &e3, NULL), *second;
    char dir[80], path[128];
    struct Stat st;
    int i, k;
    fresh(zh, "expire", dir, sizeof dir);
    snprintf(path, sizeof path, "%s/e", dir);
    RC(zoo_create(zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0), ZOK);
    catch_up(w);
    RC(zoo_wexists(w, path, events_watch, &e3, &st), ZOK);
    /* The first handle may take the session back before the second handle can
       close the session. Then try again. */
    for (i = 0; i < 10 && e3.n == 0; i++) {
        events_init(&e2);
        second = zookeeper_init(hosts, events_watch, 30000, zoo_client_id(zh), &e2, 0);
        EXPECT(second != NULL);
        for (k = 0; k < 1000 && e2.state == 0; k++) sleep_ms(5);
        zookeeper_close(second);
        sleep_ms(500);
    }
    EXPECT(events_next_is(&e3, ZOO_DELETED_EVENT, path));
    EXPECT(events_state(&e, ZOO_EXPIRED_SESSION_STATE));
    zookeeper_close(zh);
    zookeeper_close(w);
}

/* A lock as the C recipe makes it: ephemeral sequential nodes, each contender
   watching the one before it. */
static char lock_dir[80];

static int by_number(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void *contend(void *unused) {
    struct events e;
    struct referee r;
    zhandle_t *zh = connect_to(hosts, &e, NULL);
    char mine[128], before[128], prefix[128];
    int round, i;
    referee_open(&r);
    snprintf(prefix, sizeof prefix, "%s/x-", lock_dir); /* a thread sees the directory after its create */
    for (round = 0; round < 15; round++) {
        RC(zoo_create(zh, prefix, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, mine, sizeof mine), ZOK);
        for (;;) {
            struct String_vector names;
            struct Stat st;
            struct events gone;
            int rc;
            RC(zoo_get_children(zh, lock_dir, 0, &names), ZOK);
            qsort(names.data, names.count, sizeof names.data[0], by_number);
            for (i = 0; i < names.count && strcmp(names.data[i], mine + strlen(lock_dir) + 1) != 0; i++) {
            }
            EXPECT(i < names.count);
            if (i > 0) snprintf(before, sizeof before, "%s/%s", lock_dir, names.data[i - 1]);
            deallocate_String_vector(&names);
            if (i == 0) break;
            events_init(&gone);
            rc = zoo_wexists(zh, before, events_watch, &gone, &st);
            if (rc == ZOK) {
                EXPECT(events_next_is(&gone, ZOO_DELETED_EVENT, before));
            } else {
                /* The node has gone already. The client now has a watch for its
                   creation. Remove the watch, because `gone` is about to end. */
                RC(rc, ZNONODE);
                RC(zoo_remove_watches(zh, before, ZWATCHTYPE_DATA, events_watch, &gone, 0), ZOK);
            }
        }
        EXPECT(referee_say(&r, "enter c-lock x"));
        sleep_ms(2);
        EXPECT(referee_say(&r, "leave c-lock"));
        RC(zoo_delete(zh, mine, -1), ZOK);
    }
    referee_close(&r);
    zookeeper_close(zh);
    return NULL;
}

static void lock(void) {
    struct events e;
    pthread_t t[4];
    zhandle_t *zh = connect_to(hosts, &e, NULL);
    int i;
    fresh(zh, "lock", lock_dir, sizeof lock_dir);
    for (i = 0; i < 4; i++) pthread_create(&t[i], NULL, contend, NULL);
    for (i = 0; i < 4; i++) pthread_join(t[i], NULL);
    zookeeper_close(zh);
}

int main(void) {
    hosts = getenv("ZK");
    relay = getenv("RELAY");
    snprintf(root, sizeof root, "/c-%d", (int)getpid());
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    run_check("operations", operations);
    run_check("watches-and-their-removal", watches);
    run_check("multi", multi);
    run_check("acl-and-auth", acl);
    run_check("async-completions-in-order", async);
    run_check("sync-and-config", sync_and_config);
    run_check("reconnect-keeps-watches-and-auth", reconnect);
    run_check("closing-a-second-handle-expires-the-first", expire);
    run_check("lock-excludes-across-handles", lock);
    printf("done %d\n", checks_run());
    return 0;
}
