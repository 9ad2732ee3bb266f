"""A distributed lock over HTTP: tickets of zlockd, with nothing but the standard library.

    import zlock

    with zlock.Lock("/jobs/nightly", servers=["https://lock1:8183", "https://lock2:8183"], ttl=60) as lock:
        for part in parts:
            lock.check()  # raises zlock.Lost once the lock may be another's
            write(part, fencing_token=lock.token)

A thread renews the lock while the block runs. If the lock is lost, lock.lost is set, and lock.check() and the
end of the block raise Lost: then work may have overlapped with the work of the next holder. No lock can stop
a write that comes late; only a resource that checks lock.token refuses it.

Copy this file, or import it from here. See docs/tickets.md of zlockd for the interface.
"""

import http.client
import json
import logging
import random
import secrets
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

log = logging.getLogger("zlock")

__all__ = ["Lock", "Lost", "NotHeld", "Refused"]


class Lost(Exception):
    """Another holder may have the lock. Work that was done since then may overlap with its work."""


class NotHeld(Exception):
    """The lock was not free in time."""


class Refused(Exception):
    """The server refuses the request, and would refuse it again."""


def _now():
    """The seconds of a clock that goes on while the machine sleeps, if the system has such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Lock:
    """A lock at a path. `ttl` is how many seconds the lock lives if this process dies. `wait` is how many
    seconds to wait for the lock (None: without an end). `parameters` are further parameters of a request, as
    docs/tickets.md lists them, such as mode="permit", limit=8."""

    def __init__(self, path, servers=("http://127.0.0.1:8183",), *, ttl=60, wait=None, reason="", bearer=None,
                 ca=None, on_lost=None, **parameters):
        self.path, self.servers, self.ttl, self.wait = path, list(servers), ttl, wait
        self.parameters = {"ttl": "%gs" % ttl, "reason": reason, **parameters}
        self.bearer, self.on_lost = bearer, on_lost
        context = ssl.create_default_context(cafile=ca)
        self._open = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirects()).open
        self.lost = threading.Event()
        self.token = None  # rises with each holder of the lock
        self.slots = []  # numbers of permits
        self._secret, self._deadline, self._over = None, 0.0, threading.Event()

    def valid(self):
        """Whether the lock is surely ours at this moment, also after this process was paused."""
        return self.token is not None and not self.lost.is_set() and _now() < self._deadline

    def check(self):
        if not self.valid():
            raise Lost("%s is lost, or was not renewed in time" % self.path)

    def acquire(self):
        self._secret = secrets.token_urlsafe(24)  # ticket and idempotency key in one
        self.token, self.slots, self._over = None, [], threading.Event()
        self.lost.clear()
        end = None if self.wait is None else _now() + self.wait
        try:
            while True:
                left = 60.0 if end is None else min(max(end - _now(), 0.0), 60.0)
                sent, code, answer = self._ask("POST", {**self.parameters, "wait": "%dms" % (left * 1000)}, end=end)
                if code in (404, 410):
                    raise NotHeld("%s: %s" % (self.path, answer["text"]))
                if code in (200, 201):
                    self._deadline = sent + answer["safeMs"] / 1000
                    self.token, self.slots = int(answer["token"]), answer.get("slots", [])
                    break
                if end is not None and _now() >= end:
                    behind = answer.get("behind", {})
                    raise NotHeld("%s is held by %s (%s)" % (
                        self.path, behind.get("user") or behind.get("host") or "another", behind.get("reason", "")))
        except BaseException:
            self._leave()
            raise
        threading.Thread(target=self._renew, name="zlock " + self.path, daemon=True).start()
        return self

    def release(self):
        """Give the lock back. It raises Lost if the lock was lost before."""
        self._over.set()
        if self.token is None:
            return
        in_time = self.valid()
        try:
            _, code, answer = self._ask("DELETE", {}, end=_now() + 10)
            in_time = not self.lost.is_set() and (code == 204 or answer.get("error") == "given")
        except (NotHeld, Refused) as e:
            log.warning("%s is not given back, and ends in %g s: %s", self.path, self.ttl, e)
        self.token = None
        if not in_time:
            raise Lost("%s was lost: the work may have overlapped with the next holder's" % self.path)

    def __enter__(self):
        return self.acquire()

    def __exit__(self, kind, error, trace):
        try:
            self.release()
        except Lost as e:
            if kind is None:
                raise
            log.error("%s", e)

    def _leave(self):
        """Leave the queue, so that no place of this ticket blocks others."""
        try:
            self._ask("DELETE", {}, end=_now() + 5)
        except (NotHeld, Refused):
            pass  # the ticket ends by itself

    def _renew(self):
        over, held = self._over, {"If-Match": '"h-%d"' % self.token}
        while not over.wait(max(min(self.ttl / 3, (self._deadline - _now()) / 2), 0.05)):
            try:
                sent, code, answer = self._ask("POST", {}, held, self._deadline)
            except (NotHeld, Refused) as e:
                code, answer = 0, {"text": str(e)}
            if over.is_set():
                return
            if code == 200:
                self._deadline = sent + answer["safeMs"] / 1000
                continue
            log.error("%s is lost: %s", self.path, answer.get("text"))
            self.lost.set()
            if self.on_lost is not None:
                self.on_lost(self)
            return

    def _ask(self, method, query, head=None, end=None):
        """Send a request to one server after another until one answers, or until the time `end`. Only the
        codes 404 and 410 say that the ticket is over. Return when the request was sent, the code and the answer."""
        wait = float(query.get("wait", "0ms")[:-2]) / 1000
        attempt, last = 0, None
        while attempt < len(self.servers) or end is None or _now() < end:
            url = "%s/v1/locks%s?%s" % (self.servers[attempt % len(self.servers)].rstrip("/"),
                                        urllib.parse.quote(self.path), urllib.parse.urlencode(query))
            request = urllib.request.Request(url, method=method, headers={"Zlock-Ticket": self._secret, **(head or {})})
            if self.bearer:
                request.add_header("Authorization", "Bearer " + self.bearer)
            patience = 10.0 if end is None else min(max(end - _now(), 0.5), 10.0)
            sent = _now()
            try:
                code, body = self._send(request, wait + patience)
            except (OSError, http.client.HTTPException) as e:  # no answer: the server may have done it
                last = e
            else:
                try:
                    answer = json.loads(body or b"{}")
                except ValueError:
                    answer = {"text": "%d, and not as a port for tickets answers" % code}
                    code = code if code >= 300 else 502
                if code < 300 or code in (404, 410, 412):
                    return sent, code, answer
                if code == 409 and answer.get("error") == "held":
                    raise NotHeld(answer["text"])
                if code < 500 and code != 429:
                    raise Refused(answer.get("text"))
                last = answer.get("text")
            attempt += 1
            if attempt % len(self.servers) == 0:
                time.sleep(random.uniform(0.1, 0.4))
        raise NotHeld("no server answers for %s: %s" % (self.path, last))

    def _send(self, request, patience):
        try:
            with self._open(request, timeout=patience) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as e:
            with e:
                return e.code, e.read()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None
