#!/usr/bin/python3
"""client_redlock_py PORT,PORT,...: the algorithm of redlock-py, by hand over redis-py, told what to do by test_redlock.sh.

The lines are those of client_redis_py.py.
"""
import sys
import time
import uuid

import redis

RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
EXTEND = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"

servers = [redis.Redis(host="127.0.0.1", port=int(port), socket_timeout=0.5) for port in sys.argv[1].split(",")]
quorum = len(servers) // 2 + 1
held = None


def count(command):
    done = 0
    for server in servers:
        try:
            done += bool(command(server))
        except redis.RedisError:
            pass
    return done


def release(key, token):
    return count(lambda server: server.eval(RELEASE, 1, key, token))


def acquire(key, milliseconds):
    global held
    token, begin = uuid.uuid4().hex, time.monotonic()
    taken = count(lambda server: server.set(key, token, nx=True, px=int(milliseconds)))
    left = int(milliseconds) * 0.99 - 2 - (time.monotonic() - begin) * 1000
    if taken >= quorum and left > 0:
        held = key, token
        return "held"
    release(key, token)
    return "refused"


def wait(key, milliseconds, seconds):
    end = time.monotonic() + float(seconds)
    while acquire(key, milliseconds) == "refused":
        if time.monotonic() > end:
            return "refused"
        time.sleep(0.02)
    return "held"


REQUESTS = {
    "acquire": acquire,
    "wait": wait,
    "extend": lambda ms: "ok" if count(lambda s: s.eval(EXTEND, 1, *held, ms)) >= quorum else "not-held",
    "release": lambda: "ok" if release(*held) >= quorum else "not-held",
}

for line in sys.stdin:
    mark, request, *arguments = line.split()
    try:
        answer = REQUESTS[request](*arguments)
    except Exception as wrong:  # pylint: disable=broad-except
        answer = f"{type(wrong).__name__}: {wrong}"
    print(mark, answer, flush=True)
