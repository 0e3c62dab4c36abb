"""kill_load.py MOUNTPOINT: six processes that create and remove while 200 leases expire at a time, so that the daemon
always has something to tell the kernel.  Prints "busy" when all are at work.  Ends when the mount does."""
import os
import sys
import time

CREATORS, LEASES = 6, 200
mnt = sys.argv[1]


def path(name):
    return os.path.join(mnt, name)


def create():
    for n in range(10**9):
        name = path(f"{os.getpid()}.{n % 50}")
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.unlink(name)
        yield n == 20


def expire():
    for n in range(10**9):
        for i in range(LEASES):
            name = path(f"{os.getpid()}.{n}.{i}")
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            os.setxattr(name, "user.lease.ttl", b"100ms")
        yield n == 0


def work(steps, ready):
    try:
        for is_busy in steps:
            if is_busy:
                os.write(ready, b"x")
    except OSError:
        pass  # the mount has ended


def main():
    busy, ready = os.pipe()
    for steps in [expire()] + [create() for _ in range(CREATORS)]:
        if os.fork() == 0:
            os.close(busy)
            work(steps, ready)
            os._exit(0)
    os.close(ready)
    at_work = 0
    while at_work < CREATORS + 1:
        got = os.read(busy, 64)
        if not got:
            sys.exit("the load ended before the daemon did")
        at_work += len(got)
    print("busy", flush=True)
    for _ in range(CREATORS + 1):
        os.wait()


main()
