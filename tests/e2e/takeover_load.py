#!/usr/bin/python3
"""takeover_load: calls by path on a mount whose daemon is replaced meanwhile.

    takeover_load.py DIRECTORY STOP WORKER PAUSE

Until the file STOP is there, with so many seconds between: makes a lease, looks at it, lists the directory, takes a
flock, and removes the lease.  A call by path must not fail.  A call through an open file
may fail with ENOTCONN or ECONNABORTED.  At the end it prints the number of calls by path,
and the longest of them in milliseconds; for each that failed, a line before.
"""
import errno
import fcntl
import os
import sys
import time

BASE, STOP, WORKER, PAUSE = sys.argv[1:]
GONE = (errno.ENOTCONN, errno.ECONNABORTED)
calls, longest, held = 0, 0.0, 0


def by_path(call, *arguments):
    global calls, longest
    since = time.monotonic()
    try:
        return call(*arguments)
    except OSError as error:
        print("failed:", call.__name__, arguments, errno.errorcode[error.errno], flush=True)
        return None
    finally:
        calls += 1
        longest = max(longest, time.monotonic() - since)


def by_file(call, *arguments):
    try:
        call(*arguments)
        return True
    except OSError as error:
        if error.errno not in GONE:
            print("failed through a file:", call.__name__, errno.errorcode[error.errno], flush=True)
        return False


lease, lock = os.path.join(BASE, "lease-" + WORKER), os.path.join(BASE, "lock-" + WORKER)
while not os.path.exists(STOP):
    fd = by_path(os.open, lease, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    if fd is not None:
        by_file(os.close, fd)
    by_path(os.stat, lease)
    by_path(os.listdir, BASE)
    fd = by_path(os.open, lock, os.O_RDONLY | os.O_CREAT)
    if fd is not None:
        held += by_file(fcntl.flock, fd, fcntl.LOCK_EX)
        by_file(os.close, fd)
    by_path(os.unlink, lease)
    time.sleep(float(PAUSE))
print("%d %d %d\n" % (calls, round(longest * 1000), held), end="")  # in one write: others have the same file
