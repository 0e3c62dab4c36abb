#!/usr/bin/python3
"""actor: a process of a test, which makes system calls on command.

Each line of its input is `ID EXPRESSION`; each line of its output `ID ANSWER`: the
value, `ok` for none, or the name of the errno that the call failed with.  Names
are relative to the directory given as argument.  The calls are made by this
very process, unless child() or thread() is asked for, so that a test can say
exactly who does what.
"""
import ctypes
import errno
import fcntl
import os
import select
import signal
import struct
import sys
import threading
import time

BASE = sys.argv[1]
ALIASES = {"EDEADLOCK": "EDEADLK", "EWOULDBLOCK": "EAGAIN", "ENOTSUP": "EOPNOTSUPP"}
scope = globals()


def path(name):
    return os.path.join(BASE, name)


def where(target):
    return target if isinstance(target, int) else path(target)


def op(name, flags="WRONLY|CREAT", mode=0o666):
    bits = 0
    for flag in flags.split("|"):
        bits |= getattr(os, "O_" + flag)
    return os.open(path(name), bits, mode)


def acquire(name, content=None):
    """A lease, as `set -C; >L` takes it: the descriptor is closed again."""
    fd = op(name, "WRONLY|CREAT|EXCL")
    try:
        if content is not None:
            os.write(fd, content.encode())
    finally:
        os.close(fd)


def opens_beside_timer(name, count, period):
    """The errors of `count` calls open(2) of a free name, while a timer's signal is handled each `period` seconds."""
    libc = ctypes.CDLL(None, use_errno=True)  # os.open() repeats the call after EINTR
    errors = set()
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, period, period)
    for i in range(count):
        fd = libc.open(os.fsencode(path(name)), os.O_RDWR | os.O_CREAT | (os.O_EXCL if i % 2 else 0), 0o600)
        if fd < 0:
            errors.add(errno.errorcode[ctypes.get_errno()])
        else:
            os.close(fd)
            os.unlink(path(name))
    signal.setitimer(signal.ITIMER_REAL, 0)
    return " ".join(errors) or "none"


def close(fd):
    os.close(fd)


def write(fd, text):
    data = text.encode()
    if os.write(fd, data) != len(data):
        return "short"
    return None


def read(fd, size=65536, at=0):
    return os.pread(fd, size, at).decode()


def content(name):
    fd = op(name, "RDONLY")
    try:
        return read(fd)
    finally:
        os.close(fd)


def rm(name):
    os.unlink(path(name))


def getdents(fd, size=65536):
    """How many bytes of entries there are from where the directory was read to; 0: it is at its end."""
    libc = ctypes.CDLL(None, use_errno=True)
    count = libc.getdents64(fd, ctypes.create_string_buffer(size), ctypes.c_size_t(size))
    if count < 0:
        raise OSError(ctypes.get_errno(), "getdents64")
    return count


def ln(target, name):
    os.symlink(target, path(name))


def hardlink(old, new):
    os.link(path(old), path(new))


def mv(old, new):
    os.rename(path(old), path(new))


def renameat2(old, new, flags):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(path(old)), -100, os.fsencode(path(new)), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def utime(target, seconds=None):
    if seconds is None:
        os.utime(where(target))  # now, by the daemon's clock, as touch does
    else:
        os.utime(where(target), ns=(int(seconds * 10**9), int(seconds * 10**9)))


def truncate(target, size):
    os.truncate(where(target), size)


def get(target, attribute):
    return os.getxattr(where(target), "user.lease." + attribute).decode()


def put(target, attribute, value):
    os.setxattr(where(target), "user.lease." + attribute, str(value).encode())


def stat(target, field):
    return getattr(os.stat(where(target)), "st_" + field)


def exists(name):
    return os.path.lexists(path(name))


def ls(name=""):
    return " ".join(sorted(os.listdir(path(name))))


def flock(fd, how):
    bits = 0
    for word in how.split("|"):
        bits |= getattr(fcntl, "LOCK_" + word)
    fcntl.flock(fd, bits)


RECORD = "hhqqi4x"  # struct flock
OFD = {"GETLK": 36, "SETLK": 37, "SETLKW": 38}


def record(fd, command, kind, start=0, length=0, ofd=False):
    """fcntl(2) record locks; GETLK answers `UNLCK` or `KIND START LENGTH PID`."""
    number = OFD[command] if ofd else getattr(fcntl, "F_" + command)
    asked = struct.pack(RECORD, getattr(fcntl, "F_" + kind), os.SEEK_SET, start, length, 0)
    told = struct.unpack(RECORD, fcntl.fcntl(fd, number, asked))
    if command != "GETLK":
        return None
    names = {fcntl.F_RDLCK: "RDLCK", fcntl.F_WRLCK: "WRLCK", fcntl.F_UNLCK: "UNLCK"}
    if told[0] == fcntl.F_UNLCK:
        return "UNLCK"
    return "%s %d %d %d" % (names[told[0]], told[2], told[3], told[4])


def pid():
    return os.getpid()


def poll(fd, events="IN", milliseconds=0):
    poller = select.poll()
    mask = 0
    for event in events.split("|"):
        mask |= getattr(select, "POLL" + event)
    poller.register(fd, mask)
    got = poller.poll(milliseconds)
    names = ("IN", "PRI", "OUT", "ERR", "HUP")
    return "|".join(n for n in names if got and got[0][1] & getattr(select, "POLL" + n)) or "none"


def boottime():
    """Microseconds of CLOCK_BOOTTIME."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def holds_still(fd):
    """Uses a lock until that is ESTALE: when the last use that succeeded began."""
    last = 0
    while True:
        began = boottime()
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            return last
        last = began
        time.sleep(0.001)


def child(expression):
    """The answer of a child of this process, which then exits without closing anything."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        answer = b"crashed"
        try:
            os.close(reader)
            answer = evaluate(expression).encode()
        finally:
            os.write(writer, answer)
            os._exit(0)
    os.close(writer)
    answer = b""
    while True:
        part = os.read(reader, 65536)
        if not part:
            break
        answer += part
    os.close(reader)
    os.waitpid(process, 0)
    return answer.decode()


def fork(expression):
    """The pid of a child that evaluates the expression and then lives on; it is not reaped."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.close(reader)
            os.write(writer, evaluate(expression).encode())
            os.close(writer)
            while True:
                signal.pause()
        finally:
            os._exit(0)
    os.close(writer)
    answer = os.read(reader, 65536).decode()
    os.close(reader)
    if answer != "ok":
        return answer
    return process


def kill(process, number=9):
    os.kill(process, number)


def reap(process):
    os.waitpid(process, 0)


def thread(expression):
    """The answer of another thread of this process, which has ended when it is told."""
    answers = []
    worker = threading.Thread(target=lambda: answers.append(evaluate(expression)))
    worker.start()
    worker.join()
    return answers[0]


def evaluate(text):
    try:
        try:
            code = compile(text, "request", "eval")
        except SyntaxError:
            exec(compile(text, "request", "exec"), scope)
            return "ok"
        value = eval(code, scope)
    except OSError as error:
        name = errno.errorcode.get(error.errno, "errno %d" % error.errno)
        return ALIASES.get(name, name)
    except Exception as error:  # a mistake of the test
        return "%s: %s" % (type(error).__name__, error)
    return "ok" if value is None else str(value).replace("\n", "\\n")


def interrupted(*_):
    raise InterruptedError(errno.EINTR, "SIGUSR1")


def main():
    signal.signal(signal.SIGUSR1, interrupted)
    for line in sys.stdin:
        identity, _, expression = line.rstrip("\n").partition(" ")
        answer = evaluate(expression)
        sys.stdout.write("%s %s\n" % (identity, answer))
        sys.stdout.flush()


main()
