#!/usr/bin/python3
"""clients.py: a lock taken and given back by the clients of others, as they come, from Python.

    clients.py redis-py PORT COUNT          redis-py's Lock
    clients.py kazoo HOST:PORT/ROOT COUNT   kazoo's Lock
    clients.py filelock FILE COUNT          python3-filelock's FileLock
    clients.py lease FILE COUNT             open(FILE, 'x') and unlink, on a mount

Prints the median, 90 and 99 percent in nanoseconds.  clients.js is the same for node.
"""
import os
import sys
import time

WARM_UP = 50
kind, where, count = sys.argv[1], sys.argv[2], int(sys.argv[3])


def redis_lock():
    import redis
    lock = redis.Redis(host="127.0.0.1", port=int(where)).lock("clients", timeout=30)
    return lock.acquire, lock.release


def kazoo_lock():
    from kazoo.client import KazooClient
    client = KazooClient(hosts=where)
    client.start()
    lock = client.Lock("/clients")
    return lock.acquire, lock.release


def file_lock():
    import filelock
    lock = filelock.FileLock(where)
    return lock.acquire, lock.release


def lease():
    return lambda: open(where, "x").close(), lambda: os.unlink(where)


acquire, release = {"redis-py": redis_lock, "kazoo": kazoo_lock, "filelock": file_lock, "lease": lease}[kind]()
took = []
for _ in range(WARM_UP + count):
    began = time.monotonic_ns()
    acquire()
    release()
    took.append(time.monotonic_ns() - began)
took = sorted(took[WARM_UP:])
print(*(took[(count - 1) * permille // 1000] for permille in (500, 900, 990)))
