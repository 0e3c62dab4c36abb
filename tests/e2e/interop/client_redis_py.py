#!/usr/bin/python3
"""client_redis_py PORT: redis-py's Lock, told what to do by test_interop.sh.

All clients here understand the same lines, `ID REQUEST`, and answer each with
`ID ANSWER`; they take one lock at a time, by the client's own means, and end,
without giving it back, when their input does:

    acquire KEY MILLISECONDS        tries once: held or refused
    wait KEY MILLISECONDS SECONDS   tries again and again, as the client does
    extend MILLISECONDS             ok or not-held
    release                         ok or not-held
    forge KEY                       releases KEY as a holder with another token
                                    would: ok or not-held
"""
import sys

import redis
from redis.exceptions import LockError
from redis.lock import Lock

client = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]))
lock = None


def take(key, milliseconds, patience):
    global lock
    lock = Lock(client, key, timeout=int(milliseconds) / 1000, sleep=0.02, thread_local=False)
    held = lock.acquire(blocking=patience > 0, blocking_timeout=patience or None)
    return "held" if held else "refused"


def forge(key):
    other = Lock(client, key, thread_local=False)
    other.local.token = b"forged"
    other.release()
    return "ok"


REQUESTS = {
    "acquire": lambda key, milliseconds: take(key, milliseconds, 0),
    "wait": lambda key, milliseconds, seconds: take(key, milliseconds, float(seconds)),
    "extend": lambda milliseconds: "ok" if lock.extend(int(milliseconds) / 1000, replace_ttl=True) else "not-held",
    "release": lambda: lock.release() or "ok",
    "forge": forge,
}

for line in sys.stdin:
    mark, request, *arguments = line.split()
    try:
        answer = REQUESTS[request](*arguments)
    except LockError:
        answer = "not-held"
    except Exception as wrong:  # pylint: disable=broad-except
        answer = f"{type(wrong).__name__}: {wrong}"
    print(mark, answer, flush=True)
