#!/usr/bin/python3
"""renames: one process renames its lease as fast as it can, while others open and stat
whatever name it has.

    renames DIRECTORY SECONDS OPENERS

Tells `renames N opens N ESTALE N`, and which other errors there were.
"""
import collections
import errno
import os
import random
import sys
import time

directory, seconds, openers = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
NAMES = [os.path.join(directory, "n%d" % i) for i in range(3)]
end = time.monotonic() + seconds


def attempt(counts, what, call, *args):
    try:
        value = call(*args)
        counts[what] += 1
        return value
    except OSError as error:
        counts[what + " " + errno.errorcode[error.errno]] += 1
        return None


def use(counts):
    rng = random.Random(os.getpid())
    while time.monotonic() < end:
        name = rng.choice(NAMES)
        if rng.randrange(8) == 0:
            attempt(counts, "stat", os.stat, name)
        fd = attempt(counts, "open", os.open, name, os.O_RDONLY)
        if fd is not None:
            os.close(fd)
        time.sleep(rng.random() / 500)  # what is open is not renamed


def rename(counts):
    held = NAMES[0]
    os.close(os.open(held, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    while time.monotonic() < end:
        target = random.choice([name for name in NAMES if name != held])
        try:
            os.rename(held, target)
        except OSError as error:
            counts["rename " + errno.errorcode[error.errno]] += 1
            continue
        counts["rename"] += 1
        held = target
    os.unlink(held)


def run(work):
    """In a child; returns where its counts come from."""
    out, into = os.pipe()
    if os.fork() == 0:
        counts = collections.Counter()
        work(counts)
        os.write(into, repr(dict(counts)).encode())
        os._exit(0)
    os.close(into)
    return out


pipes = [run(rename)] + [run(use) for _ in range(openers)]
total = collections.Counter()
for pipe in pipes:
    text = b""
    while part := os.read(pipe, 65536):
        text += part
    total.update(eval(text))  # its own repr
stale = sum(count for what, count in total.items() if what.endswith("ESTALE"))
print("renames %d opens %d ESTALE %d" % (total["rename"], total["open"], stale))
print(sorted(total.items()), file=sys.stderr)
