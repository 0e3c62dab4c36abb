"""Every kind of call on a mount whose store stands still: which are answered, and when.

    stopped.py MOUNTPOINT LIMIT

Prepares, says "ready", and begins with a line of standard input: each call in a thread of its own, and in a directory of
its own, so that none waits for another in the kernel.  Fails if one takes longer than LIMIT seconds.  Waits (F_SETLKW,
flock without -n) are no part of it.  A conversion to a weaker mode is undone in the store before
its caller gets an error: UNDO seconds more.
"""
import errno
import fcntl
import os
import struct
import sys
import threading
import time

ATTRIBUTES = ("state kind mode owner token acquired remaining ttl waiters position name guarantee guard width delay "
              "tickets").split()
UNDO = 10  # REMOTE_UNDO_MAX
FREE = os.O_RDWR | os.O_CREAT
ANY = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)


def lease(path):
    return os.open(path, FREE | os.O_EXCL)


def locked(path):
    fd = os.open(path, FREE)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def recorded(path):
    fd = os.open(path, FREE)
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def idle(path):
    return os.open(path, os.O_RDONLY | os.O_CREAT)


def directory(path):
    os.mkdir(path)


def nothing(_path):
    return None


def setting(name, value):
    return lambda p, _: os.setxattr(p, "user.lease." + name, value)


# name: what is there before, the call
CALLS = {
    "open to read": (nothing, lambda p, _: os.open(p, os.O_RDONLY)),
    "open to read, O_CREAT": (nothing, lambda p, _: os.open(p, os.O_RDONLY | os.O_CREAT)),
    "open to write": (nothing, lambda p, _: os.open(p, FREE)),
    "open O_EXCL": (nothing, lambda p, _: os.open(p, FREE | os.O_EXCL)),
    "open to write, held": (lease, lambda p, _: os.open(p, os.O_RDWR)),
    "symlink": (nothing, lambda p, _: os.symlink("target", p)),
    "link": (lease, lambda p, _: os.link(p, p + "-")),
    "rename": (lease, lambda p, _: os.rename(p, p + "-")),
    "unlink": (lease, lambda p, _: os.unlink(p)),
    "unlink, free": (nothing, lambda p, _: os.unlink(p)),
    "mkdir": (nothing, lambda p, _: os.mkdir(p)),
    "rmdir": (directory, lambda p, _: os.rmdir(p)),
    "readdir": (directory, lambda p, _: os.listdir(p)),
    "stat": (lease, lambda p, _: os.stat(p)),
    "stat, free": (nothing, lambda p, _: os.stat(p)),
    "stat of a directory": (directory, lambda p, _: os.stat(p)),
    "fstat": (lease, lambda _, fd: os.fstat(fd)),
    "statfs": (nothing, lambda p, _: os.statvfs(os.path.dirname(p))),
    "read": (lease, lambda _, fd: os.pread(fd, 10, 0)),
    "write": (lease, lambda _, fd: os.write(fd, b"text")),
    "ftruncate": (lease, lambda _, fd: os.ftruncate(fd, 0)),
    "fsync": (lease, lambda _, fd: os.fsync(fd)),
    "close": (lease, lambda _, fd: os.close(fd)),
    "close of a handle lock": (locked, lambda _, fd: os.close(fd)),
    "close of a record lock": (recorded, lambda _, fd: os.close(fd)),
    "chmod": (lease, lambda p, _: os.chmod(p, 0o600)),
    "chmod of a directory": (directory, lambda p, _: os.chmod(p, 0o700)),
    "utimens": (lease, lambda p, _: os.utime(p)),
    "utimens, free": (nothing, lambda p, _: os.utime(p)),
    "flock -n": (idle, lambda _, fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)),
    "flock -n, weaker": (locked, lambda _, fd: fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)),
    "flock -u": (locked, lambda _, fd: fcntl.flock(fd, fcntl.LOCK_UN)),
    "F_SETLK": (idle, lambda _, fd: fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)),
    "F_SETLK, weaker": (recorded, lambda _, fd: fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)),
    "F_SETLK, unlock": (recorded, lambda _, fd: fcntl.lockf(fd, fcntl.LOCK_UN)),
    "F_GETLK": (idle, lambda _, fd: fcntl.fcntl(fd, fcntl.F_GETLK, ANY)),
    "set ttl": (lease, setting("ttl", b"60s")),
    "set check": (lease, setting("check", b"17")),
    "set release": (lease, setting("release", b"17")),
    "set break": (lease, setting("break", b"1")),
    "set guard": (lease, setting("guard", b"1s")),
    "set ttl of a directory": (directory, setting("ttl", b"60s")),
    "set width": (directory, setting("width", b"2")),
    "set delay": (directory, setting("delay", b"2s")),
    ".leasefs/status": (nothing, lambda p, _: open(".leasefs/status").read()),
    ".leasefs/locks": (nothing, lambda p, _: open(".leasefs/locks").read()),
    ".leasefs/metrics": (nothing, lambda p, _: open(".leasefs/metrics").read()),
}
for attribute in ATTRIBUTES:
    for make, of in (lease, "a lock"), (directory, "a directory"):
        CALLS[f"get {attribute} of {of}"] = (make, lambda p, _, a=attribute: os.getxattr(p, "user.lease." + a))


def main():
    os.chdir(sys.argv[1])
    limit = float(sys.argv[2])
    answers = {}
    threads = []
    begin = threading.Event()

    def call(name, function, path, fd):
        begin.wait()
        began = time.monotonic()
        try:
            function(path, fd)
            answer = "ok"
        except OSError as e:
            answer = errno.errorcode[e.errno]
        answers[name] = (time.monotonic() - began, answer)

    for number, (name, (make, function)) in enumerate(CALLS.items()):
        os.mkdir(f"d{number}")
        path = f"d{number}/L"
        threads.append(threading.Thread(target=call, args=(name, function, path, make(path)), daemon=True))
        threads[-1].start()
    print("ready", flush=True)
    sys.stdin.readline()
    begin.set()
    until = time.monotonic() + 2 * limit + UNDO
    for thread in threads:
        thread.join(max(0, until - time.monotonic()))
    late = 0
    for name in CALLS:
        took, answer = answers.get(name, (float("inf"), "nothing"))
        if took > limit + (UNDO if "weaker" in name else 0):
            late += 1
            print(f"{name}: {answer} after {took:.2f} s", flush=True)
    longest = max(answers, key=lambda name: answers[name])
    print(f"{len(CALLS)} calls, {late} late; the longest: {longest}, {answers[longest][0]:.2f} s", flush=True)
    os._exit(1 if late else 0)


main()
