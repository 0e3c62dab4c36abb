#!/usr/bin/python3
"""listing: reads a directory while it changes, and says what was wrong with what it read.

    listing DIRECTORY STABLE ROUNDS SEED

Holds STABLE leases s0, s1, … for all the time; while it lists the directory, a child
takes and releases leases x…, and between two reads of one listing it does so itself, before and
behind the place where the reading is.  In each listing every name that was there
from its beginning to its end must come exactly once, no name may come twice, and no name
may come that was never there.
"""
import os
import random
import signal
import sys

directory, stable, rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
wrong = 0


def complain(text):
    global wrong
    wrong += 1
    if wrong <= 20:
        print("# " + text)


def take(name):
    os.close(os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def drop(name):
    os.unlink(os.path.join(directory, name))


def churn():
    mine = random.Random(seed + 1)
    held = set()
    while True:
        name = "x%d" % mine.randrange(2000)
        if name in held:
            drop(name)
            held.discard(name)
        else:
            take(name)
            held.add(name)


def judge(number, seen, always, ever):
    if len(seen) != len(set(seen)):
        doubles = sorted({n for n in seen if seen.count(n) > 1})[:5] if len(seen) < 100000 else "some"
        complain("listing %d: %d names came twice, such as %s" % (number, len(seen) - len(set(seen)), doubles))
    missing = always - set(seen)
    if missing:
        complain("listing %d: %d names are missing, such as %s" % (number, len(missing), sorted(missing)[:5]))
    strange = [n for n in seen if n not in ever and n[0] != "x"]
    if strange:
        complain("listing %d: %d names that never were, such as %s" % (number, len(strange), strange[:5]))


names = ["s%d" % i for i in range(stable)]
rng.shuffle(names)
for n in names:
    take(n)
always = set(names)

# nothing changes
judge(0, os.listdir(directory), always, always)

# another process changes the directory all the time
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    churn()
for number in range(1, rounds + 1):
    judge(number, os.listdir(directory), always, always)
os.kill(child, signal.SIGTERM)
os.waitpid(child, 0)

# this process changes it, at known places of the reading
extra = set()
for number in range(rounds + 1, 2 * rounds + 1):
    ever, whole, seen = set(always) | extra, set(always) | extra, []
    with os.scandir(directory) as reading:
        for entry in reading:
            seen.append(entry.name)
            if len(seen) % 500 == 0:
                if extra and rng.random() < 0.5:
                    name = rng.choice(sorted(extra))
                    drop(name)
                    extra.discard(name)
                    whole.discard(name)
                name = rng.choice(("a", "s", "z")) + "-%d-%d" % (number, len(seen))
                take(name)
                extra.add(name)
                ever.add(name)
    judge(number, seen, whole, ever)

final = [n for n in os.listdir(directory) if n[0] != "x"]
if sorted(final) != sorted(always | extra):
    complain("at the end: %d names, not %d" % (len(final), len(always | extra)))
print("# %d stable names, %d listings, seed %d, %d wrong" % (stable, 2 * rounds + 2, seed, wrong))
sys.stdout.flush()
os._exit(1 if wrong else 0)
