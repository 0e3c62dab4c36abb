#!/usr/bin/python3
"""crossings: releases by token that meet who removes and renames the same names.

    crossings.py MOUNTPOINT ROUNDS

The kernel holds the lock of the file during setxattr(2), and that of the directory before the file's during unlink(2)
and rename(2): who waits for one with the other would wait for ever.  Prints the longest release in milliseconds.
"""
import multiprocessing
import os
import sys
import time


def meddle(mountpoint):
    while True:
        for name in "LM":
            for call in (lambda: os.unlink(f"{mountpoint}/{name}"), lambda: os.rename(f"{mountpoint}/{name}", f"{mountpoint}/N")):
                try:
                    call()
                except OSError:
                    pass


def main():
    mountpoint, rounds = sys.argv[1], int(sys.argv[2])
    longest = 0
    for _ in range(2):
        multiprocessing.Process(target=meddle, args=(mountpoint,), daemon=True).start()
    for i in range(rounds):
        path = f"{mountpoint}/{'LM'[i % 2]}"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            token = os.getxattr(path, "user.lease.token")
            begun = time.monotonic()
            os.setxattr(path, "user.lease.release", token)
            longest = max(longest, time.monotonic() - begun)
        except OSError:
            pass
    print(int(longest * 1000))


main()
