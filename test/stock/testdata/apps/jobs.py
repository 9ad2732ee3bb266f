"""Posts jobs to a TaskFlow job board, or works on them.

jobs.py post SERVERS FILE         posts a job every 20 ms until killed; FILE has one line for each that the board took
jobs.py work SERVERS FILE NAME    claims, does and consumes jobs until killed; FILE has one line for each job done

If the connection of a request is lost, the request may have been carried out or
not. Then both programs look at the board, as its manual says: each job has a
name of its own, and the board shows who has claimed or consumed a job.
"""
import sys
import time

from kazoo.retry import KazooRetry
from taskflow import engines, exceptions as excp, task
from taskflow.jobs import backends
from taskflow.patterns import linear_flow
from taskflow.utils import kazoo_utils

role, servers, out = sys.argv[1:4]
client = kazoo_utils.make_client({"hosts": servers, "timeout": 10, "randomize_hosts": True,
                                  "connection_retry": KazooRetry(max_tries=-1, delay=0.05, max_delay=1)})
client.start(timeout=30)
board = backends.fetch("apps", {"board": "zookeeper", "path": "/taskflow/jobs"}, client=client)
board.connect()
wait = KazooRetry(max_tries=-1, delay=0.02, max_delay=0.5)  # for requests that may be sent twice


def note(text):
    with open(out, "a") as f:
        f.write(text + "\n")


def posted(name):
    """Whether a job with this name is on the board or was."""
    client.retry(client.sync, "/taskflow/jobs")
    for child in client.retry(client.get_children, "/taskflow/jobs"):
        if child.startswith("job") and not child.endswith(".lock"):
            try:
                data, _ = client.retry(client.get, "/taskflow/jobs/" + child)
                if ('"name": "%s"' % name).encode() in data:
                    return True
            except Exception as e:  # another worker has consumed the job
                if type(e).__name__ != "NoNodeError":
                    raise
    with open(sys.argv[4]) as f:
        return name in f.read().split()


def post():
    n = 0
    while True:
        name = "work-%d" % n
        while True:
            try:
                board.post(name)
                break
            except excp.JobFailure as e:
                print("post %s: %s" % (name, e))
                time.sleep(0.5)  # a worker that has the job notes it within this time
                if posted(name):
                    break
        note(name)
        n += 1
        time.sleep(0.02)


class Work(task.Task):
    def execute(self, name):
        note(name)


def mine(job, who):
    while True:
        try:
            return board.find_owner(job) == who
        except excp.JobFailure as e:
            print("owner of %s: %s" % (job.name, e))
            time.sleep(0.05)


def gone(job):
    client.retry(client.sync, job.path)
    return client.retry(client.exists, job.path) is None


def work(who):
    while True:
        try:
            jobs = list(board.iterjobs(only_unclaimed=True, ensure_fresh=True))
        except excp.JobFailure as e:
            print("list: %s" % e)
            time.sleep(0.05)
            continue
        for job in jobs:
            try:
                board.claim(job, who)
            except excp.NotFound:
                continue
            except (excp.UnclaimableJob, excp.JobFailure) as e:
                print("claim %s: %s" % (job.name, e))
                if not mine(job, who):
                    continue
            engines.run(linear_flow.Flow(job.name).add(Work()), store={"name": job.name})
            while True:
                try:
                    board.consume(job, who)
                    break
                except (excp.NotFound, excp.JobFailure) as e:
                    print("consume %s: %s" % (job.name, e))
                    if gone(job):
                        break
                    time.sleep(0.05)
        time.sleep(0.01)


print("session 0x%x" % client.client_id[0])
if role == "post":
    post()
else:
    work(sys.argv[4])
