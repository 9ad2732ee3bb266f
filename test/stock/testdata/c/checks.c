#include "checks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

const char *hosts, *relay;
char root[64];

static jmp_buf end_of_check;
static pthread_t checking;
static char why[256];
static int run;

void fail_check(int line, const char *what, int rc) {
    snprintf(why, sizeof why, "line %d: %s (%d %s)", line, what, rc, rc ? zerror(rc) : "");
    if (!pthread_equal(checking, pthread_self())) { /* a helper thread cannot return */
        printf("fail thread: %s\n", why);
        fflush(stdout);
        _exit(1);
    }
    longjmp(end_of_check, 1);
}

void run_check(const char *name, void (*body)(void)) {
    run++;
    checking = pthread_self();
    if (setjmp(end_of_check) == 0) {
        body();
        printf("ok %s\n", name);
    } else {
        printf("fail %s: %s\n", name, why);
    }
    fflush(stdout);
}

int checks_run(void) { return run; }

void sleep_ms(int ms) {
    struct timespec t = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&t, NULL);
}

void events_init(struct events *e) {
    memset(e, 0, sizeof *e);
    pthread_mutex_init(&e->mu, NULL);
    pthread_cond_init(&e->more, NULL);
}

void events_watch(zhandle_t *zh, int type, int state, const char *path, void *ctx) {
    struct events *e = ctx;
    pthread_mutex_lock(&e->mu);
    if (type == ZOO_SESSION_EVENT) {
        e->state = state;
    } else if (e->n < 256) {
        snprintf(e->list[e->n++], sizeof e->list[0], "%d %s", type, path);
    }
    pthread_cond_broadcast(&e->more);
    pthread_mutex_unlock(&e->mu);
}

static struct timespec in_ms(int ms) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += (long)ms % 1000 * 1000000L;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000L;
    t.tv_nsec %= 1000000000L;
    return t;
}

int events_next_is(struct events *e, int type, const char *path) {
    char want[96];
    struct timespec end = in_ms(60000);
    int ok = 0;
    snprintf(want, sizeof want, "%d %s", type, path);
    pthread_mutex_lock(&e->mu);
    while (e->taken == e->n && pthread_cond_timedwait(&e->more, &e->mu, &end) != ETIMEDOUT) {
    }
    if (e->taken < e->n) {
        ok = strcmp(e->list[e->taken++], want) == 0;
        if (!ok) fprintf(stderr, "event %s, expected %s\n", e->list[e->taken - 1], want);
    }
    pthread_mutex_unlock(&e->mu);
    return ok;
}

int events_silent(struct events *e) {
    int silent;
    sleep_ms(100);
    pthread_mutex_lock(&e->mu);
    silent = e->taken == e->n;
    pthread_mutex_unlock(&e->mu);
    return silent;
}

int events_state(struct events *e, int state) {
    struct timespec end = in_ms(60000);
    int ok;
    pthread_mutex_lock(&e->mu);
    while (e->state != state && pthread_cond_timedwait(&e->more, &e->mu, &end) != ETIMEDOUT) {
    }
    ok = e->state == state;
    pthread_mutex_unlock(&e->mu);
    return ok;
}

zhandle_t *connect_to(const char *where, struct events *e, const clientid_t *id) {
    zhandle_t *zh;
    events_init(e);
    zh = zookeeper_init(where, events_watch, 30000, id, e, 0);
    EXPECT(zh != NULL);
    EXPECT(events_state(e, ZOO_CONNECTED_STATE));
    return zh;
}

static void caught_up(int rc, const char *value, const void *done) { *(volatile int *)done = 1; }

void catch_up(zhandle_t *zh) {
    static volatile int done;
    int i;
    done = 0;
    RC(zoo_async(zh, "/", caught_up, (const void *)&done), ZOK);
    for (i = 0; i < 6000 && !done; i++) sleep_ms(10);
    EXPECT(done);
}

const char *fresh(zhandle_t *zh, const char *name, char *buf, size_t size) {
    int rc = zoo_create(zh, root, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    EXPECT(rc == ZOK || rc == ZNODEEXISTS);
    snprintf(buf, size, "%s/%s", root, name);
    RC(zoo_create(zh, buf, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK);
    return buf;
}

void referee_open(struct referee *r) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    char host[64];
    const char *where = getenv("REFEREE"), *colon = strrchr(where, ':');
    snprintf(host, sizeof host, "%.*s", (int)(colon - where), where);
    inet_pton(AF_INET, host, &a.sin_addr);
    a.sin_port = htons((unsigned short)atoi(colon + 1));
    r->fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(connect(r->fd, (struct sockaddr *)&a, sizeof a) == 0);
}

int referee_say(struct referee *r, const char *fmt, ...) {
    char line[256];
    va_list args;
    int n, got = 0;
    va_start(args, fmt);
    n = vsnprintf(line, sizeof line - 1, fmt, args);
    va_end(args);
    line[n++] = '\n';
    if (write(r->fd, line, n) != n) return 0;
    while (got < (int)sizeof line - 1 && read(r->fd, line + got, 1) == 1 && line[got] != '\n') got++;
    line[got] = 0;
    if (strcmp(line, "ok") != 0) fprintf(stderr, "referee: %s\n", line);
    return strcmp(line, "ok") == 0;
}

void referee_close(struct referee *r) { close(r->fd); }
