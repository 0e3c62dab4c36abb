"""records.py TMPFS MOUNT SEED STEPS: random programs of record locks get the same answers on both.

The kernel's own locks are the oracle.  Processes that were forked with three handles open, and open
one of their own, set, try and probe POSIX and OFD locks, from any thread; close, reopen, fork and end.
After each step every byte of the file is probed.  Everything that F_GETLK tells is compared, but:

 - of several locks in the way the mount tells that with the lowest range;
 - of an open file description lock tmpfs tells no process, the mount the one that took it, or opened the file
   (the kernel does not tell a filesystem which kind was asked for); and it tells none to who asks for such a lock.
"""
import errno
import fcntl
import os
import random
import struct
import sys
import threading
import time

SIZE = 24
FORMAT = "hhqqi4x"  # struct flock
OFD = {"SETLK": 37, "GETLK": 36}
POSIX = {"SETLK": fcntl.F_SETLK, "GETLK": fcntl.F_GETLK}
NAMES = {fcntl.F_RDLCK: "RDLCK", fcntl.F_WRLCK: "WRLCK", fcntl.F_UNLCK: "UNLCK"}
KINDS = {name: kind for kind, name in NAMES.items()}


def record(fd, command, kind, start, length, ofd=False):
    asked = struct.pack(FORMAT, KINDS[kind], os.SEEK_SET, start, length, 0)
    try:
        told = struct.unpack(FORMAT, fcntl.fcntl(fd, (OFD if ofd else POSIX)[command], asked))
    except OSError as error:
        return "EAGAIN" if error.errno in (errno.EAGAIN, errno.EACCES) else errno.errorcode[error.errno]
    if command == "SETLK":
        return "ok"
    return [NAMES[told[0]]] + list(told[1:]) if told[0] != fcntl.F_UNLCK else ["UNLCK"]


class Worker:
    """A child that does what it is told, on both places."""

    def __init__(self, handles, paths):
        here, there = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self.own = [None, None]
            self.serve(handles, paths, os.fdopen(here[0]), os.fdopen(there[1], "w"))
        os.close(here[0])
        os.close(there[1])
        self.requests, self.answers = os.fdopen(here[1], "w"), os.fdopen(there[0])

    def serve(self, handles, paths, requests, answers):
        for line in requests:
            request, result = eval(line), []
            if not request:
                break

            def run():
                result.append(self.do(handles, paths, *request[1:]))

            if request[0]:
                thread = threading.Thread(target=run)
                thread.start()
                thread.join()
            else:
                run()
            answers.write(repr(result[0]) + "\n")
            answers.flush()
        os._exit(0)

    def do(self, handles, paths, what, place, which=None, *rest):
        if what == "open":
            self.own[place] = os.open(paths[place], os.O_RDWR | os.O_CREAT)
            # on the mount it may be provisional: decide that
            answer = record(self.own[place], "SETLK", "WRLCK", 1000000, 1)
            return record(self.own[place], "SETLK", "UNLCK", 1000000, 1) if answer == "ok" else answer
        if what == "close":
            os.close(self.own[place])
            return "ok"
        if what == "fork":
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            return "ok"
        return record(self.own[place] if which == 3 else handles[place][which], *rest)

    def ask(self, *request):
        self.requests.write(repr(request) + "\n")
        self.requests.flush()
        return eval(self.answers.readline())

    def end(self):
        self.requests.write("()\n")
        self.requests.close()
        self.answers.close()
        os.waitpid(self.pid, 0)


def same(oracle, told, pids, ofd=False):
    """One lock is in the way, at most."""
    if oracle[0] != told[0] or oracle[0] == "UNLCK":
        return oracle == told
    if oracle[0] == "RDLCK":
        return True  # one of several: nothing else is known of it
    if ofd:
        return oracle[:4] == told[:4] and told[4] == -1
    return oracle[:4] == told[:4] and (told[4] == oracle[4] or oracle[4] == -1 and told[4] in pids)


def whole(probe):
    """What is in the way of each byte, on both."""
    return [[record(probe[place], "GETLK", "WRLCK", byte, 1) for byte in range(SIZE)] for place in (0, 1)]


def differs(probe, pids):
    oracle, told = whole(probe)
    return [(byte, a, b) for byte, (a, b) in enumerate(zip(oracle, told)) if not same(a, b, pids)]


def main():
    directories, seed, steps = sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
    dice = random.Random(seed)
    paths = [os.path.join(directory, "records") for directory in directories]
    handles = [[os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(3)] for path in paths]
    for place in (0, 1):
        assert record(handles[place][0], "SETLK", "WRLCK", 0, 0) == "ok"
        assert record(handles[place][0], "SETLK", "UNLCK", 0, 0) == "ok"
    probe = [os.open(path, os.O_RDONLY | os.O_CREAT) for path in paths]
    pids = {os.getpid()}

    def born():
        worker = Worker(handles, paths)
        pids.add(worker.pid)
        for place in (0, 1):
            worker.ask(False, "open", place)
        return worker

    workers = [born() for _ in range(3)]
    trace = []

    def fail(*why):
        print("seed %d:" % seed, *why)
        for line in trace[-30:]:
            print("   ", *line)
        for one in workers:
            one.end()
        sys.exit(1)

    for _ in range(steps):
        at = dice.randrange(len(workers))
        worker, threaded, roll = workers[at], dice.random() < 0.3, dice.random()
        if roll < 0.04:
            trace.append((worker.pid, "ends"))
            worker.end()
            workers[at] = born()
            trace.append((workers[at].pid, "begins"))
        elif roll < 0.1:
            what = dice.choice(["reopen", "fork"])
            trace.append((worker.pid, what))
            for place in (0, 1):
                for step in ["close", "open"] if what == "reopen" else ["fork"]:
                    worker.ask(False, step, place)
        else:
            command = dice.choice(["SETLK", "SETLK", "GETLK"])
            kind = dice.choice(["RDLCK", "WRLCK"] + ["UNLCK"] * (command == "SETLK"))
            start = dice.randrange(SIZE)
            length = dice.choice([0, SIZE - start, 1, dice.randrange(1, SIZE - start + 1)])
            which, ofd = dice.randrange(4), dice.random() < 0.3
            answers = [worker.ask(threaded, "record", place, which, command, kind, start, length, ofd) for place in (0, 1)]
            trace.append((worker.pid, which, command, kind, start, length, "OFD" if ofd else "POSIX", answers))
            if command == "GETLK":
                # The lowest in the way begins at the first byte that is refused, or before all.
                asked = [worker.ask(False, "record", 0, which, command, kind, byte, 1, ofd) for byte in range(start, SIZE)]
                asked = asked[: length or SIZE]
                lowest = next((one for one in asked if one[0] != "UNLCK"), answers[0])
                if not same(lowest, answers[1], pids, ofd):
                    fail("tmpfs tells", lowest, "as the lowest, the mount", answers[1])
            elif answers[0] != answers[1]:
                fail("tmpfs says", answers[0], "the mount", answers[1])
        # A close returns before its RELEASE is heard of.
        limit = time.monotonic() + 2
        while differs(probe, pids) and time.monotonic() < limit:
            time.sleep(0.002)
        wrong = differs(probe, pids)
        if wrong:
            fail("byte, tmpfs, mount:", wrong)
    for worker in workers:
        worker.end()
    print("%d steps of seed %d: the same" % (steps, seed))


main()
