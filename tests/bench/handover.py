#!/usr/bin/python3
"""handover.py: some that wait for a lock, in one process, a thread each.

    handover.py flock FILE COUNT [hold]            on a mount
    handover.py redis-py PORT COUNT [hold]         redis-py's Lock, as it is by default; the key is `lock`
    handover.py kazoo HOST:PORT/ROOT COUNT [hold]  kazoo's Lock, the same; its path is `/lock`

With `hold` it takes the lock first.  Talks by lines: says `ready`, and on the
line `wait` begins to wait, on `release` lets go of what it holds; when all have
had the lock it prints for each when it was granted and when its release was
sent, in nanoseconds of CLOCK_MONOTONIC, and for the holder only the latter.
redis_handover.js is the same for node-redlock, and CuratorLocks.java for Curator.
"""
import fcntl
import os
import sys
import threading
import time

kind, where, count = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Flock:
    def __init__(self):
        self.fd = os.open(where, os.O_RDONLY | os.O_CREAT, 0o666)

    def acquire(self):
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def release(self):
        fcntl.flock(self.fd, fcntl.LOCK_UN)


def redis_lock():
    import redis
    from redis.lock import Lock
    return Lock(redis.Redis(host="127.0.0.1", port=int(where)), "lock", timeout=60, thread_local=False)


def kazoo_lock():
    return zookeeper.Lock("/lock")


if kind == "kazoo":
    from kazoo.client import KazooClient
    zookeeper = KazooClient(hosts=where)
    zookeeper.start()
new = {"flock": Flock, "redis-py": redis_lock, "kazoo": kazoo_lock}[kind]
times = []


def wait():
    lock = new()
    lock.acquire()
    granted = time.monotonic_ns()
    times.append((granted, time.monotonic_ns()))
    lock.release()


threading.stack_size(256 * 1024)
holder = new() if "hold" in sys.argv[4:] else None
if holder:
    holder.acquire()
print("ready", flush=True)
threads = [threading.Thread(target=wait) for _ in range(count)]
for line in sys.stdin:
    if line.strip() == "wait":
        for thread in threads:
            thread.start()
    elif line.strip() == "release":
        if holder:
            print("-", time.monotonic_ns())
            holder.release()
        break
for thread in threads:
    thread.join()
for granted, released in times:
    print(granted, released)
