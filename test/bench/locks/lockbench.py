"""lockbench.py HOST:PORT PATH CLIENTS WARM_MS DURATION_MS: kazoo's Lock, as a line of JSON."""

import json
import socket
import sys
import threading
import time

from kazoo.client import KazooClient


class Meter:
    on = stop = False
    inside = waiting = violations = 0
    released = 0.0


meter = Meter()
mutex = threading.Lock()
acquire, handoff = [], []


def work(lock):
    while not meter.stop:
        begun = time.perf_counter()
        with mutex:
            meter.waiting += 1
        lock.acquire()
        now = time.perf_counter()
        with mutex:
            meter.waiting -= 1
            meter.inside += 1
            meter.violations += meter.inside != 1
            sent, meter.released = meter.released, 0.0
            if meter.on:
                acquire.append(now - begun)
                if sent and begun < sent:
                    handoff.append(now - sent)
            meter.inside -= 1
            if meter.waiting:
                meter.released = time.perf_counter()
        lock.release()


def percentiles(seconds):
    if not seconds:
        return {"n": 0}
    seconds = sorted(seconds)
    at = lambda q: round(1000 * seconds[min(len(seconds) - 1, int(q * len(seconds)))], 3)
    return {"n": len(seconds), "p50": at(0.5), "p99": at(0.99)}


def received(server):
    """How many requests the server says it has received."""
    host, port = server.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as s:
        s.sendall(b"srvr")
        text = b""
        while part := s.recv(65536):
            text += part
    return next(int(l.split()[1]) for l in text.decode().splitlines() if l.startswith("Received: "))


def main(server, path, clients, warm, duration):
    sessions = []
    for _ in range(int(clients)):
        z = KazooClient(server, timeout=20)
        z.start(30)
        sessions.append(z)
    threads = [threading.Thread(target=work, args=(z.Lock(path, "bench"),)) for z in sessions]
    for t in threads:
        t.start()
    time.sleep(int(warm) / 1000)
    before, begun = received(server), time.perf_counter()
    meter.on = True
    time.sleep(int(duration) / 1000)
    meter.on = False
    seconds = time.perf_counter() - begun
    requests = received(server) - before - 1  # without the request that asks for the number
    meter.stop = True
    for t in threads:
        t.join()
    for z in sessions:
        z.stop()
        z.close()
    print(json.dumps({
        "acquired": len(acquire), "perSecond": len(acquire) / seconds, "acquireMs": percentiles(acquire),
        "handoffMs": percentiles(handoff), "serverRequestsPerAcquire": requests / max(1, len(acquire)),
        "violations": meter.violations,
    }))


main(*sys.argv[1:])
