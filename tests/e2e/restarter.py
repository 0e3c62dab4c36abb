#!/usr/bin/python3
"""restarter: takes and releases named locks while the daemon is killed and started again.

    restarter MOUNT WITNESSES JOURNAL SEED NAMES

Whoever holds NAME makes WITNESSES/NAME with O_EXCL, outside the mount: a second
holder at the same time finds it there.  WITNESSES/NAME.token has the highest
token seen, which each holder must exceed.  The journal gets a line `held`,
`error ERRNO` or `VIOLATION …`, each with one write(2).  An error says nothing
about the outcome, so after one it looks whose the lease is.  SIGTERM ends it
between two locks.
"""
import errno
import os
import random
import signal
import sys
import time

mount, witnesses, journal, seed, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
rng = random.Random(seed)
out = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
me = str(os.getpid())
ending = False
AWAY = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV)


def note(*words):
    os.write(out, (" ".join(str(w) for w in words) + "\n").encode())


def end(*_):
    global ending
    ending = True


def attribute(path, name):
    return os.getxattr(path, "user.lease." + name).decode()


def is_mine(path):
    return attribute(path, "owner").split()[1] == me


def patiently(call):
    """Calls until the daemon answers; the errors that it answers with are raised."""
    while True:
        try:
            return call()
        except OSError as error:
            if error.errno not in AWAY:
                raise
            note("error", errno.errorcode[error.errno])
            time.sleep(0.001)


def acquire(path):
    unknown = False
    while True:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            return True
        except FileExistsError:
            if not unknown:
                return False
            try:
                return patiently(lambda: is_mine(path))
            except OSError:  # gone meanwhile
                return False
        except OSError as error:
            if error.errno not in AWAY:
                raise
            unknown = True
            note("error", errno.errorcode[error.errno])
            time.sleep(0.001)


def release(path, token):
    try:
        patiently(lambda: os.unlink(path))
    except FileNotFoundError:
        pass  # an answer that was lost
    except PermissionError:
        if attribute(path, "token") == token:
            note("VIOLATION", "its own lease cannot be released", path)


def work(path, witness):
    token = patiently(lambda: attribute(path, "token"))
    try:
        os.close(os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        note("VIOLATION", "two hold", path)
    try:
        with open(witness + ".token") as last:
            if int(last.read() or 0) >= int(token):
                note("VIOLATION", "token", token, "is not new:", path)
    except FileNotFoundError:
        pass
    with open(witness + ".token", "w") as last:
        last.write(token)
    time.sleep(rng.random() * 0.004)
    if not patiently(lambda: is_mine(path)):
        note("VIOLATION", "lost while it held", path)
    os.unlink(witness)
    return token


def main():
    while not ending:
        name = "n%d" % rng.randrange(count)
        path = os.path.join(mount, name)
        if acquire(path):
            release(path, work(path, os.path.join(witnesses, name)))
            note("held")
        else:
            time.sleep(rng.random() * 0.002)


signal.signal(signal.SIGTERM, end)
try:
    main()
    note("ended")
except OSError as error:
    note("VIOLATION", error)
