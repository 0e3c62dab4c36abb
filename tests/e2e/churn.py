#!/usr/bin/python3
"""churn: takes and releases leases as fast as it can, and records the results.

    churn DIRECTORY JOURNAL SEED NAMES

Each line of the journal, written with one write(2): `try NAME`, `held NAME TOKEN
CONTENT`, `drop NAME`, `free NAME`.  It goes on until the filesystem goes away.
Names are its own, so that nobody else's lease is in its way.
"""
import os
import random
import signal
import sys

directory, journal, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
out = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
held = {}


def note(*words):
    os.write(out, (" ".join(str(w) for w in words) + "\n").encode())


def main():
    turn = 0
    while True:
        turn += 1
        name = "c%d" % rng.randrange(count)
        path = os.path.join(directory, name)
        if name in held:
            note("drop", name)
            os.unlink(path)
            note("free", name)
            del held[name]
            continue
        text = "%s-%d" % (name, turn)
        note("try", name)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(fd, text.encode())
        token = os.getxattr(path, "user.lease.token").decode()
        os.close(fd)
        held[name] = token
        note("held", name, token, text)


note("began")
try:
    main()
except OSError as error:
    note("ended", error.errno)
signal.pause()  # it stays the owner
