#!/usr/bin/python3
"""deaths.py PID…: prints "ready", and when all have ended the milliseconds of CLOCK_BOOTTIME at which the last one did.

It runs before ordinary programs where it may, so that a busy machine does not make a death look late.
"""
import os
import select
import sys
import time

try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except PermissionError:
    pass
poll = select.poll()
alive = set()
for pid in map(int, sys.argv[1:]):
    alive.add(os.pidfd_open(pid))
for fd in alive:
    poll.register(fd, select.POLLIN)
print("ready", flush=True)
while alive:
    for fd, _ in poll.poll():
        poll.unregister(fd)
        alive.remove(fd)
print(int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000), flush=True)
