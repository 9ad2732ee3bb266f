"""Tests of zlock.py against the servers of ZLOCK_HTTP: python3 -m unittest"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import uuid

import zlock

SERVERS = os.environ.get("ZLOCK_HTTP", "http://127.0.0.1:8183").split(",")


def lock(path, **more):
    return zlock.Lock(path, servers=SERVERS, reason="a test", **more)


class LockTest(unittest.TestCase):
    def setUp(self):
        self.path = "/python/" + uuid.uuid4().hex

    def free(self):
        with lock(self.path, wait=30) as after:
            return after.token

    def test_one_holds_at_a_time(self):
        inside, most, tokens = [], [], []

        def work():
            with lock(self.path, ttl=20) as held:
                inside.append(held)
                most.append(len(inside))
                tokens.append(held.token)
                held.check()
                time.sleep(0.01)
                inside.remove(held)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(most, [1] * 8)
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_a_held_lock_is_not_had_in_time(self):
        with lock(self.path) as held:
            with self.assertRaisesRegex(zlock.NotHeld, "a test"):
                lock(self.path, wait=0.1).acquire()
            with self.assertRaises(zlock.NotHeld):
                lock(self.path, queue="no").acquire()
            held.check()
        self.assertGreater(self.free(), 0)

    def test_it_is_renewed(self):
        with lock(self.path, ttl=4) as held:
            first = held._deadline
            while held._deadline < first + 4:  # for longer than the lock lives if nothing renews it
                held.check()
                time.sleep(0.05)
            with self.assertRaises(zlock.NotHeld):
                lock(self.path, queue="no").acquire()

    def test_permits_have_numbers(self):
        with lock(self.path, mode="permit", limit=2) as one, lock(self.path, mode="permit") as two:
            self.assertEqual(sorted(one.slots + two.slots), [1, 2])

    def test_a_loss_is_told(self):
        told = threading.Event()
        with self.assertRaises(zlock.Lost):
            with lock(self.path, ttl=4, on_lost=lambda _: told.set()) as held:
                thief = lock(self.path)
                thief._secret = held._secret
                thief._ask("DELETE", {})  # as if an operator ended the ticket
                self.assertTrue(held.lost.wait(60))
                self.assertFalse(held.valid())
        self.assertTrue(told.wait(60))

    def test_an_error_of_the_block_is_not_hidden(self):
        with self.assertRaises(KeyError):
            with lock(self.path):
                raise KeyError
        self.assertGreater(self.free(), 0)

    def test_a_paused_process_knows(self):
        """A process is stopped for longer than its lock lives. When it goes on, valid() is False at once, and
        the token of the next holder is larger than its own."""
        program = (
            "import sys, zlock\n"
            "held = zlock.Lock(sys.argv[1], servers=sys.argv[2:], ttl=4).acquire()\n"
            "print(held.token, flush=True)\n"
            "sys.stdin.readline()\n"
            "print(held.valid(), flush=True)\n"
            "try:\n    held.release()\nexcept zlock.Lost:\n    print('lost')\n")
        here = os.path.dirname(os.path.abspath(__file__))
        p = subprocess.Popen([sys.executable, "-c", program, self.path] + SERVERS, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, cwd=here)
        self.addCleanup(p.kill)
        token = int(p.stdout.readline())
        p.send_signal(signal.SIGSTOP)
        later = self.free()
        self.assertGreater(later, token)
        p.send_signal(signal.SIGCONT)
        out, _ = p.communicate("\n", timeout=60)
        self.assertEqual(out.split(), ["False", "lost"])

    def test_a_server_that_is_gone_is_passed_over(self):
        held = zlock.Lock(self.path, servers=["http://127.0.0.1:1"] + SERVERS)
        with held:
            held.check()
        with self.assertRaises(zlock.NotHeld):
            zlock.Lock(self.path, servers=["http://127.0.0.1:1"], wait=0.2).acquire()

    def test_an_answer_that_breaks_off_is_none(self):
        """A server begins an answer, of success or of an error, and dies. The client asks the next server."""
        for code in "200 OK", "503 Busy":
            with socket.create_server(("127.0.0.1", 0)) as port:
                def die(code=code, port=port):
                    with port.accept()[0] as c:
                        c.recv(65536)
                        c.sendall(("HTTP/1.1 %s\r\nContent-Length: 99\r\n\r\n{" % code).encode())

                threading.Thread(target=die, daemon=True).start()
                dying = "http://127.0.0.1:%d" % port.getsockname()[1]
                with zlock.Lock(self.path, servers=[dying] + SERVERS) as held:
                    held.check()

    def test_what_is_refused_is_told(self):
        with self.assertRaisesRegex(zlock.Refused, "ttl"):
            lock(self.path, ttl=1).acquire()


if __name__ == "__main__":
    unittest.main()
