"""Runs kazoo, as Debian ships it, against the servers in ZK."""

import logging
import sys

import basics  # noqa: F401
import caches  # noqa: F401
import recipes  # noqa: F401
import sessions  # noqa: F401
import contention  # noqa: F401
from checks import run_all

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    run_all()
