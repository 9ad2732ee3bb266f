/*
 * The floor of the benchmark: what the processor, the sockets and the disk take
 * if a server does nothing else. It answers the requests that the benchmark's
 * client sends, with the same bytes, makes the same syncs and sends the same
 * messages between servers. It checks nothing, keeps no tree and survives no
 * fault. It is one thread that waits for all its sockets.
 *
 *   floor ID DIRECTORY CLIENT-PORT LEADER-PORT SERVERS
 *
 * Server 1 leads. Its followers connect to LEADER-PORT.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CREATE = 1, DELETE = 2, EXISTS = 3, GET = 4, SET = 5, CHILDREN = 8, SYNC = 9, PING = 11, CLOSE = -11 };
enum { MAX_FDS = 65536, MAX_NODES = 4096, LOG_SIZE = 64 << 20, NO_NODE = -101 };

struct buffer {
	char *p;
	size_t n, room;
};

/* A connection of a client or of another server. */
struct conn {
	int fd, peer, open; /* peer: the id of a server, -1: not yet known; open: the session exists */
	struct buffer in, out;
	int touched; /* it is in the list of those to write to */
};

/* A write that the log carries: whose it is, and the request as it came. */
struct entry {
	uint32_t length, origin, fd, pad;
};

/* What servers send each other. */
struct message {
	uint32_t length, type; /* of what follows */
	uint64_t index;
};
enum { HELLO, FORWARD, APPEND, ACK, COMMIT };

static int self, servers, epoll, disk;
static off_t end;
static struct conn *conns[MAX_FDS];
static int touched[MAX_FDS], touches;
static struct conn *followers[8], *leader;
static struct buffer filling, flying, queued; /* entries: next batch, batch in flight, a follower's log */
static uint64_t sealed, synced, acks, commit, taken; /* numbers of batches */
static uint64_t zxid;
static char *names[MAX_NODES]; /* of sequential nodes */
static int count;
static uint32_t sequence;
static struct watch { uint64_t hash; int fd; } *watches;
static int watching, watchRoom;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void put(struct buffer *b, const void *p, size_t n)
{
	if (b->n + n > b->room) {
		b->room = (b->n + n) * 2;
		if (!(b->p = realloc(b->p, b->room)))
			die("realloc");
	}
	memcpy(b->p + b->n, p, n);
	b->n += n;
}

static void put32(struct buffer *b, uint32_t v) { v = htobe32(v), put(b, &v, 4); }
static void put64(struct buffer *b, uint64_t v) { v = htobe64(v), put(b, &v, 8); }

static uint32_t get32(const char *p)
{
	uint32_t v;
	memcpy(&v, p, 4);
	return be32toh(v);
}

static void touch(struct conn *c)
{
	if (!c->touched)
		c->touched = 1, touched[touches++] = c->fd;
}

static void drop(struct conn *c)
{
	for (int i = 0; i < watching; i++)
		if (watches[i].fd == c->fd)
			watches[i--] = watches[--watching];
	close(c->fd);
	conns[c->fd] = NULL;
	free(c->in.p), free(c->out.p), free(c);
}

static void flush(void)
{
	for (int i = 0; i < touches; i++) {
		struct conn *c = conns[touched[i]];
		size_t done = 0;
		if (!c)
			continue;
		c->touched = 0;
		while (done < c->out.n) { /* the benchmark keeps reading, so the wait for room is short and rare */
			ssize_t n = send(c->fd, c->out.p + done, c->out.n - done, MSG_NOSIGNAL);
			if (n < 0 && errno != EAGAIN && errno != EINTR)
				break;
			if (n > 0)
				done += n;
		}
		c->out.n = 0;
	}
	touches = 0;
}

static void tell(struct conn *c, int type, uint64_t index, const void *p, size_t n)
{
	struct message m = {n, type, index};
	put(&c->out, &m, sizeof m);
	put(&c->out, p, n);
	touch(c);
}

static uint64_t hash(const char *p, size_t n)
{
	uint64_t h = 14695981039346656037u;
	while (n--)
		h = (h ^ (unsigned char)*p++) * 1099511628211u;
	return h;
}

static void watch(int fd, const char *path, size_t n)
{
	if (watching == watchRoom) {
		watchRoom = watchRoom * 2 + 64;
		if (!(watches = realloc(watches, watchRoom * sizeof *watches)))
			die("realloc");
	}
	watches[watching++] = (struct watch){hash(path, n), fd};
}

static void fire(const char *path, size_t n, int type)
{
	uint64_t h = watching ? hash(path, n) : 0;
	for (int i = 0; i < watching; i++) {
		struct conn *c = conns[watches[i].fd];
		if (watches[i].hash != h)
			continue;
		watches[i--] = watches[--watching];
		if (!c)
			continue;
		put32(&c->out, 28 + n);
		put32(&c->out, -1), put64(&c->out, -1), put32(&c->out, 0);
		put32(&c->out, type), put32(&c->out, 3), put32(&c->out, n), put(&c->out, path, n);
		touch(c);
	}
}

static int find(const char *path, size_t n)
{
	for (int i = 0; i < count; i++)
		if (strlen(names[i]) == n && !memcmp(names[i], path, n))
			return i;
	return -1;
}

/* header begins a reply whose body has n bytes. */
static void header(struct conn *c, uint32_t xid, int err, size_t n)
{
	put32(&c->out, 16 + n), put32(&c->out, xid), put64(&c->out, zxid), put32(&c->out, err);
	touch(c);
}

static const char stat_[68], data[100];

/* apply carries a write out and, if its client is here, answers it. */
static void apply(const struct entry *e, const char *frame)
{
	struct conn *c = (int)e->origin == self ? conns[e->fd] : NULL;
	uint32_t xid = get32(frame), op = get32(frame + 4);
	size_t n;
	const char *path;
	char name[512];
	zxid++;
	if ((int)op == CLOSE) {
		if (c) {
			header(c, xid, 0, 0);
			flush();
			drop(c);
		}
		return;
	}
	n = get32(frame + 8), path = frame + 12;
	if (n > 400)
		n = 400;
	switch (op) {
	case CREATE:
		if (get32(frame + e->length - 4) & 2) {
			memcpy(name, path, n);
			n += snprintf(name + n, 11, "%010u", sequence++);
			path = name;
			if (count == MAX_NODES)
				die("too many nodes");
			names[count++] = strndup(name, n);
		}
		fire(path, n, 1);
		if (c)
			header(c, xid, 0, 4 + n), put32(&c->out, n), put(&c->out, path, n);
		return;
	case DELETE: {
		int i = find(path, n);
		if (i >= 0)
			free(names[i]), names[i] = names[--count];
		if (c) /* the event goes to other connections, so it may come before or after this reply */
			header(c, xid, 0, 0);
		fire(path, n, 2);
		return;
	}
	case SET:
		if (c)
			header(c, xid, 0, 68), put(&c->out, stat_, 68);
		fire(path, n, 3);
	}
}

static void applyAll(struct buffer *b)
{
	for (size_t at = 0; at < b->n;) {
		struct entry *e = (struct entry *)(b->p + at);
		apply(e, (char *)(e + 1));
		at += sizeof *e + (e->length + 7) / 8 * 8;
	}
	b->n = 0;
}

static void read_(struct conn *c, uint32_t xid, uint32_t op, const char *p, size_t length)
{
	size_t n = op == PING ? 0 : get32(p);
	const char *path = p + 4;
	int wanted = op != PING && op != SYNC && length > 4 + n && path[n];
	switch (op) {
	case PING:
		header(c, xid, 0, 0);
		return;
	case SYNC:
		header(c, xid, 0, 4 + n), put32(&c->out, n), put(&c->out, path, n);
		return;
	case EXISTS:
		if (wanted)
			watch(c->fd, path, n);
		if (wanted && find(path, n) < 0)
			header(c, xid, NO_NODE, 0);
		else
			header(c, xid, 0, 68), put(&c->out, stat_, 68);
		return;
	case GET:
		if (wanted)
			watch(c->fd, path, n);
		header(c, xid, 0, 172), put32(&c->out, 100), put(&c->out, data, 100), put(&c->out, stat_, 68);
		return;
	case CHILDREN: {
		uint32_t found = 0;
		size_t size = 4, at;
		for (int i = 0; i < count; i++)
			if (strlen(names[i]) > n + 1 && names[i][n] == '/' && !memcmp(names[i], path, n))
				found++, size += 4 + strlen(names[i]) - n - 1;
		header(c, xid, 0, size);
		at = c->out.n;
		put32(&c->out, found);
		for (int i = 0; i < count && found; i++)
			if (strlen(names[i]) > n + 1 && names[i][n] == '/' && !memcmp(names[i], path, n)) {
				put32(&c->out, strlen(names[i]) - n - 1);
				put(&c->out, names[i] + n + 1, strlen(names[i]) - n - 1);
			}
		if (c->out.n - at != size)
			die("children");
		return;
	}
	}
	fprintf(stderr, "floor: operation %d is not known\n", (int)op);
	exit(1);
}

static void take(uint32_t origin, uint32_t fd, const char *frame, size_t n)
{
	struct entry e = {n, origin, fd, 0};
	char pad[8] = {0};
	put(&filling, &e, sizeof e);
	put(&filling, frame, n);
	put(&filling, pad, (8 - n % 8) % 8);
}

static void request(struct conn *c, const char *p, size_t n)
{
	uint32_t xid, op;
	if (!c->open) { /* the handshake */
		char password[16] = {0};
		c->open = 1;
		put32(&c->out, 37), put32(&c->out, 0), put32(&c->out, get32(p + 12));
		put64(&c->out, (uint64_t)self << 56 | c->fd), put32(&c->out, 16), put(&c->out, password, 16);
		put(&c->out, password, 1);
		touch(c);
		return;
	}
	xid = get32(p), op = get32(p + 4);
	if (op != CREATE && op != DELETE && op != SET && (int)op != CLOSE)
		read_(c, xid, op, p + 8, n - 8);
	else if (self == 1)
		take(1, c->fd, p, n);
	else
		tell(leader, FORWARD, c->fd, p, n);
}

static void store(const struct buffer *b)
{
	size_t n = (b->n + 511) / 512 * 512 + 512; /* whole sectors, as a log does */
	static char *room;
	static size_t have;
	if (n > have && !(room = realloc(room, have = n * 2)))
		die("realloc");
	memcpy(room, b->p, b->n);
	if (end + n > LOG_SIZE)
		end = 0;
	if (pwrite(disk, room, n, end) != (ssize_t)n || fdatasync(disk))
		die("log");
	end += n;
}

/* advance commits what a majority has, and sends the next batch. */
static void advance(void)
{
	for (int i = 2; i <= servers; i++)
		if (!followers[i])
			return;
	if (commit < sealed && synced == sealed && (servers == 1 || acks > 0)) {
		commit = sealed;
		applyAll(&flying);
		for (int i = 2; i <= servers; i++)
			tell(followers[i], COMMIT, commit, NULL, 0);
	}
	if (commit == sealed && filling.n) {
		struct buffer b = flying;
		flying = filling, filling = b, filling.n = 0;
		sealed++, acks = 0;
		for (int i = 2; i <= servers; i++)
			tell(followers[i], APPEND, sealed, flying.p, flying.n);
		flush();
		store(&flying);
		synced = sealed;
		advance();
	}
}

static void hear(struct conn *c, struct message *m, const char *p)
{
	switch (m->type) {
	case HELLO:
		c->peer = m->index, followers[c->peer] = c;
		return;
	case FORWARD:
		take(c->peer, m->index, p, m->length);
		return;
	case APPEND:
		put(&queued, p, m->length);
		store(&(struct buffer){(char *)p, m->length, 0});
		taken = m->index;
		tell(c, ACK, m->index, NULL, 0);
		flush();
		return;
	case ACK:
		acks += m->index == sealed;
		return;
	case COMMIT:
		applyAll(&queued);
	}
}

/* received takes what a connection has sent; it reports whether the connection goes on. */
static int received(struct conn *c)
{
	char room[1 << 16];
	size_t at = 0;
	for (;;) {
		ssize_t n = recv(c->fd, room, sizeof room, 0);
		if (n <= 0 && !(n < 0 && (errno == EAGAIN || errno == EINTR)))
			return 0;
		if (n > 0)
			put(&c->in, room, n);
		if (n < (ssize_t)sizeof room)
			break;
	}
	while (c->in.n - at >= 4) {
		const char *p = c->in.p + at;
		if (c->peer) {
			struct message m;
			if (c->in.n - at < sizeof m)
				break;
			memcpy(&m, p, sizeof m);
			if (c->in.n - at < sizeof m + m.length)
				break;
			hear(c, &m, p + sizeof m);
			at += sizeof m + m.length;
			continue;
		}
		size_t n = get32(p);
		if (n > 1 << 20)
			return 0; /* a four-letter word: close the connection */
		if (c->in.n - at < 4 + n)
			break;
		request(c, p + 4, n);
		at += 4 + n;
	}
	memmove(c->in.p, c->in.p + at, c->in.n -= at);
	return 1;
}

static int listens(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(0x7f000001)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 4096))
		die("listen");
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {.fd = fd}});
	return fd;
}

static struct conn *begin(int fd, int peer)
{
	struct conn *c = calloc(1, sizeof *c);
	int on = 1;
	if (fd < 0 || fd >= MAX_FDS || !c)
		die("connection");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	c->fd = fd, c->peer = peer, conns[fd] = c;
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {.fd = fd}});
	return c;
}

static void join(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(0x7f000001)};
	for (int try = 0;; try++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (!connect(fd, (struct sockaddr *)&a, sizeof a)) {
			fcntl(fd, F_SETFL, O_NONBLOCK);
			leader = begin(fd, 1);
			tell(leader, HELLO, self, NULL, 0);
			flush();
			return;
		}
		close(fd);
		if (try == 1000)
			die("the leader does not answer");
		usleep(10000);
	}
}

int main(int argc, char **argv)
{
	struct epoll_event events[256];
	int clients, peers = -1;
	char name[4096], *zeros = calloc(1, 1 << 20);
	if (argc != 6)
		return 2;
	self = atoi(argv[1]), servers = atoi(argv[5]);
	snprintf(name, sizeof name, "%s/log", argv[2]);
	if ((disk = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600)) < 0)
		die(name);
	for (int i = 0; i < LOG_SIZE >> 20; i++) /* so that a sync changes no metadata */
		if (pwrite(disk, zeros, 1 << 20, (off_t)i << 20) != 1 << 20)
			die("log");
	fsync(disk);
	epoll = epoll_create1(0);
	if (self == 1 && servers > 1)
		peers = listens(atoi(argv[4]));
	else if (self > 1)
		join(atoi(argv[4]));
	clients = listens(atoi(argv[3]));
	for (;;) {
		int n = epoll_wait(epoll, events, 256, -1);
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == clients || fd == peers) {
				int got = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
				if (got >= 0)
					begin(got, fd == peers ? -1 : 0);
			} else if (conns[fd] && !received(conns[fd])) {
				if (conns[fd] && conns[fd]->peer)
					return 0; /* another server has ended: the benchmark is over */
				if (conns[fd])
					drop(conns[fd]);
			}
		}
		if (self == 1)
			advance();
		flush();
	}
}
