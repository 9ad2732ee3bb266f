/* What the C driver needs: checks that print a line each, the referee, events. */
#ifndef CHECKS_H
#define CHECKS_H

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <zookeeper/zookeeper.h>

/* Ends the running check if the condition does not hold. */
#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) fail_check(__LINE__, #cond, 0);                                               \
    } while (0)
/* Ends the running check if `rc` is not `want`. */
#define RC(rc, want)                                                                               \
    do {                                                                                           \
        int rc_ = (rc);                                                                            \
        if (rc_ != (want)) fail_check(__LINE__, #rc, rc_);                                         \
    } while (0)

extern const char *hosts, *relay;
extern char root[64];

void fail_check(int line, const char *what, int rc) __attribute__((noreturn));
void run_check(const char *name, void (*body)(void));
int checks_run(void);

/* Events of one handle: "TYPE path" in order, and the last session state. */
struct events {
    pthread_mutex_t mu;
    pthread_cond_t more;
    char list[256][96];
    int n, taken;
    int state;
};

void events_init(struct events *e);
void events_watch(zhandle_t *zh, int type, int state, const char *path, void *ctx);
int events_next_is(struct events *e, int type, const char *path);
int events_silent(struct events *e);
int events_state(struct events *e, int state);

/* Returns a connected handle. Ends the check if it cannot connect. */
zhandle_t *connect_to(const char *where, struct events *e, const clientid_t *id);
/* Waits until the handle's server has seen everything written before. */
void catch_up(zhandle_t *zh);
/* Makes a directory of its own for a check and returns its path. */
const char *fresh(zhandle_t *zh, const char *name, char *buf, size_t size);

/* The referee. */
struct referee {
    int fd;
};
void referee_open(struct referee *r);
int referee_say(struct referee *r, const char *fmt, ...); /* 1: answered ok */
void referee_close(struct referee *r);

void sleep_ms(int ms);

#endif
