#!/usr/bin/python3
"""counts.py MOUNTPOINT COUNTED PID TRACING STORE WHO: what an operation costs, in counts; and that none costs more than TABLE says.

PID is the daemon, the program counted, which counts into the file COUNTED (see counted.c); TRACING is where tracefs is
mounted, which counts system calls, or empty.  STORE is memory, local or redis, and
WHO private or others (allow_other): a column of the table.  Each operation is done some times over, and what is counted is
an operation's share, rounded: so what happens once in a while is none of it.  The kernel keeps some attributes for
a moment only, and a machine that is busy may be slower than that: so of several tries the first within the bounds counts.

Environment: COUNTS_TRIES (20); REDIS_SOCKET: of the server, whose commands are counted, too.
"""
import collections
import ctypes
import fcntl
import mmap
import os
import re
import struct
import subprocess
import sys
import time

OPERATIONS = 8  # in a try
TRIES = int(os.environ.get("COUNTS_TRIES", 20))
NAMES = {1: "LOOKUP", 3: "GETATTR", 4: "SETATTR", 10: "UNLINK", 14: "OPEN", 15: "READ", 18: "RELEASE", 25: "FLUSH",
         32: "SETLK", 33: "SETLKW", 35: "CREATE"}
PERF_EVENT_OPEN = {"x86_64": 298}.get(os.uname().machine, 241)
FORGETS = (2, 42)  # the kernel sends them when it likes, many at once

base, counted_path, pid, tracing, store, who = sys.argv[1:]
lock = os.path.join(base, "lock")
free = os.path.join(base, "free")
queue = os.path.join(base, "queue")


def touch(name):
    return subprocess.run(["touch", name], stderr=subprocess.DEVNULL, check=False).returncode


def acquire():
    os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def cycle():
    acquire()
    os.unlink(lock)


def cycle_below():
    name = os.path.join(queue, "lock")
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    os.unlink(name)


def touch_and_rm():
    assert touch(lock) == 0
    subprocess.run(["rm", lock], check=True)


def refused_touch():
    assert touch(lock) != 0


def flock_cycle():
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def stat_held():
    os.stat(lock)


def stat_free():
    assert not os.path.exists(free)


def ticket_cycle():
    ticket = os.open(os.path.join(queue, "job-"), os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(ticket, fcntl.LOCK_EX)
    os.close(ticket)


def read_status():
    with open(os.path.join(base, ".leasefs/status"), "rb", buffering=0) as file:
        while file.read(65536):
            pass


def nothing():
    pass


def hold_for_a_second():
    """From then on the file can be opened, and times that are set are refused."""
    acquire()
    time.sleep(1.1)


# The most of each: the requests of every mount, and those of allow_other besides; then for each STORE WHO the system calls,
# allocations and readings of the clock, with room for FORGETs, each by itself or many at once, and for a turn of the
# loop, with two readings of the clock, for each request: a caller on another processor may be quick enough to save some.
# When touch(1) ends, the daemon reads which children its ancestors have got: the calls depend on the machine.
WHAT = ("calls", "allocations", "clocks", "round trips", "commands")
COLUMNS = ("memory private", "memory others", "local private", "local others")
TABLE = (
    (cycle, nothing, "LOOKUP CREATE FLUSH RELEASE UNLINK", "2*GETATTR",
     (20, 19, 39), (26, 23, 48), (22, 19, 41), (29, 23, 49)),
    (touch_and_rm, nothing, "2*LOOKUP CREATE 4*FLUSH SETATTR RELEASE GETATTR UNLINK", "2*GETATTR",
     (200, 41, 95), (200, 45, 103), (200, 41, 99), (200, 45, 108)),
    (flock_cycle, nothing, "2*SETLKW", "",
     (7, 9, 17), (7, 9, 17), (7, 9, 20), (7, 9, 20)),
    (ticket_cycle, nothing, "2*LOOKUP CREATE SETLKW FLUSH RELEASE", "GETATTR",
     (30, 31, 47), (34, 33, 55), (31, 31, 49), (35, 33, 56)),
    (stat_free, nothing, "", "",
     (0, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0)),
    (read_status, nothing, "OPEN GETATTR 2*READ RELEASE", "2*GETATTR",
     (18, 80, 31), (24, 85, 44), (18, 90, 32), (24, 95, 45)),
    (stat_held, hold_for_a_second, "GETATTR", "",
     (4, 3, 7), (4, 3, 7), (4, 3, 7), (4, 3, 7)),
    (refused_touch, nothing, "OPEN 3*FLUSH SETATTR RELEASE", "GETATTR",
     (33, 16, 40), (37, 18, 46), (33, 16, 40), (37, 18, 46)),
)

# The same on Redis, and besides the requests of the server that an operation is, and the commands that these are made of.
REDIS_TABLE = (
    (cycle, nothing, "LOOKUP CREATE FLUSH RELEASE UNLINK", (30, 59, 60, 3, 15)),
    (cycle_below, nothing, "3*LOOKUP CREATE FLUSH RELEASE UNLINK", (43, 121, 92, 5, 22)),
    (touch_and_rm, nothing, "2*LOOKUP CREATE 4*FLUSH SETATTR RELEASE GETATTR UNLINK", (200, 91, 125, 4, 22)),
    (flock_cycle, nothing, "2*SETLKW", (15, 37, 33, 2, 14)),
    (ticket_cycle, nothing, "3*LOOKUP CREATE SETLKW FLUSH RELEASE", (44, 112, 78, 4, 65)),
    (stat_free, nothing, "LOOKUP", (8, 14, 13, 1, 1)),
    (stat_held, hold_for_a_second, "GETATTR", (4, 3, 8, 0, 0)),
    (refused_touch, nothing, "OPEN 3*FLUSH SETATTR RELEASE", (34, 17, 41, 0, 0)),
)

class Server:
    """What a Redis server was asked for: the requests of the mount, and all commands."""

    def __init__(self):
        self.socket = os.environ.get("REDIS_SOCKET")

    def read(self):
        if not self.socket:
            return ()
        text = subprocess.run(["redis-cli", "-s", self.socket, "INFO", "commandstats"], capture_output=True, text=True,
                              check=True).stdout
        calls = {name: int(n) for name, n in re.findall(r"^cmdstat_([^:]+):calls=(\d+)", text, re.M) if name != "info"}
        with open(os.path.join(base, ".leasefs/metrics"), encoding="ascii") as file:
            requests = int(re.search(r"^leasefs_backend_round_trips_total (\d+)", file.read(), re.M)[1])
        return requests, sum(calls.values())


class Counters:
    def __init__(self):
        self.map = mmap.mmap(os.open(counted_path, os.O_RDWR), mmap.PAGESIZE)

    def read(self):
        return struct.unpack_from("68Q", self.map)

    def are_comparable(self):
        """Neither is the daemon built with a sanitizer, nor does the kernel tell less of a process (before Linux 6.9)."""
        return self.read()[0] and tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (6, 9)

    def pause(self, still):
        struct.pack_into("Q", self.map, 8, still)

    def quiet(self):
        """What stands there when the kernel has nothing more to ask for."""
        before = None
        while (now := self.read()) != before:
            before = now
            time.sleep(0.02)
        return now


class Calls:
    """The system calls of a process, as the kernel's tracepoint counts them, which stops nobody."""

    def __init__(self):
        self.events = []
        if tracing:
            with open(os.path.join(tracing, "events/raw_syscalls/sys_enter/id"), encoding="ascii") as file:
                number = int(file.read())
            self.events = [self.open(number, int(thread)) for thread in os.listdir(f"/proc/{pid}/task")]

    @staticmethod
    def open(number, thread):
        # struct perf_event_attr: type PERF_TYPE_TRACEPOINT, size PERF_ATTR_SIZE_VER0, config
        attributes = struct.pack("IIQ48x", 2, 64, number)
        event = ctypes.CDLL(None, use_errno=True).syscall(PERF_EVENT_OPEN, attributes, thread, -1, -1, 0)
        if event < 0:
            raise OSError(ctypes.get_errno(), "perf_event_open")
        return event

    def read(self):
        return sum(int.from_bytes(os.read(event, 8), sys.byteorder) for event in self.events)


def measure(counters, calls, server, operation):
    operation()  # once, to be met
    counters.pause(True)
    asked_before, before, calls_before = server.read(), counters.quiet(), calls.read()
    for _ in range(OPERATIONS):
        operation()
    after, calls_after, asked_after = counters.quiet(), calls.read(), server.read()
    counters.pause(False)
    counts = [b - a for a, b in zip(before, after)]
    requests = {NAMES.get(i, str(i)): n for i, n in enumerate(counts[4:]) if n and i not in FORGETS}
    asked = [b - a for a, b in zip(asked_before, asked_after)]
    return requests, calls_after - calls_before, counts[2], counts[3], *asked


def share(count):
    return (count + OPERATIONS // 2) // OPERATIONS


def show(requests):
    return " ".join(name if n == 1 else f"{n}*{name}" for name, n in sorted(requests.items()) if n)


def attempt(counters, calls, server, operation):
    requests, *rest = measure(counters, calls, server, operation)
    return {name: share(n) for name, n in requests.items()}, [share(n) for n in rest]


def wanted(text):
    bounds = collections.Counter()
    for word in text.split():
        number, _, name = word.rpartition("*")
        bounds[name] += int(number or 1)
    return bounds


def bounds():
    """Operation, what stands before it, and its bounds: the requests, and the other counts."""
    if store == "redis":
        return [(operation, prepare, wanted(requests), most) for operation, prepare, requests, most in REDIS_TABLE]
    column = COLUMNS.index(f"{store} {who}")
    return [(operation, prepare, wanted(ours) + wanted(theirs if who == "others" else ""), costs[column])
            for operation, prepare, ours, theirs, *costs in TABLE]


def check(counters, calls, server, row):
    operation, prepare, requests_most, most = row
    prepare()
    for _ in range(TRIES):
        requests, costs = attempt(counters, calls, server, operation)
        good = all(n <= requests_most[name] for name, n in requests.items())
        good = good and (not counters.are_comparable() or all(n <= m for n, m in zip(costs, most)))
        if good:
            break
    counted = "  ".join(f"{n:3} {what} ({m})" for n, what, m in zip(costs, WHAT, most))
    print(f"{operation.__name__:14} {show(requests):60} {counted}{'' if good else '  OVER'}", flush=True)
    return good


descriptor = os.open(os.path.join(base, "flocked"), os.O_RDONLY | os.O_CREAT, 0o644)
os.mkdir(queue)
all_counters = Counters()
all_calls = Calls()
all_servers = Server()
print(f"{store} {who}{'' if tracing else ', system calls not counted'}")
sys.exit(not all([check(all_counters, all_calls, all_servers, row) for row in bounds()]))
