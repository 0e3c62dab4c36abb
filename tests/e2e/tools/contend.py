#!/usr/bin/python3
"""contend.py KIND L: gets the lock L as a Python program does, tells "held", lasts until its input ends, gives it back.

When the lock is refused it ends with status 1 and says why on stderr."""

import contextlib
import errno
import fcntl
import os
import pathlib
import struct
import sys


def hold():
    print("held", flush=True)
    sys.stdin.read()


@contextlib.contextmanager
def made(path, make):
    make()
    yield
    os.unlink(path)


@contextlib.contextmanager
def locked(path, lock, mode="w"):
    with open(path, mode) as file:
        lock(file)
        yield


def ofd_lock(file):
    # struct flock: l_type, l_whence, l_start, l_len (0: to the end), l_pid
    fcntl.fcntl(file, fcntl.F_OFD_SETLKW, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))


@contextlib.contextmanager
def between(acquire, release):
    if acquire() is False:
        raise BlockingIOError(errno.EAGAIN, "refused")
    yield
    release()


def open_x(path):
    return made(path, lambda: open(path, "x").close())


def path_touch(path):
    return made(path, pathlib.Path(path).touch)


def path_touch_new(path):
    return made(path, lambda: pathlib.Path(path).touch(exist_ok=False))


def flock(path):
    return locked(path, lambda file: fcntl.flock(file, fcntl.LOCK_EX))


def flock_nb(path):
    return locked(path, lambda file: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))


def lockf(path):
    return locked(path, lambda file: fcntl.lockf(file, fcntl.LOCK_EX))


def lockf_nb(path):
    return locked(path, lambda file: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB))


def ofd(path):
    return locked(path, ofd_lock)


def mailbox(path):
    import mailbox as library

    box = library.mbox(path)
    return between(box.lock, box.unlock)


def filelock(path):
    import filelock as library

    return library.FileLock(path)


def filelock_try(path):
    import filelock as library

    return library.FileLock(path, timeout=0)


def filelock_soft(path):
    import filelock as library

    return library.SoftFileLock(path, timeout=0)


def portalocker(path):
    import portalocker as library

    return library.Lock(path, timeout=60)


def portalocker_try(path):
    import portalocker as library

    return library.Lock(path, fail_when_locked=True)


def fasteners(path):
    import fasteners as library

    return library.InterProcessLock(path)


def fasteners_try(path):
    import fasteners as library

    lock = library.InterProcessLock(path)
    return between(lambda: lock.acquire(blocking=False), lock.release)


def fasteners_read(path):
    import fasteners as library

    return library.InterProcessReaderWriterLock(path).read_lock()


def fasteners_write(path):
    import fasteners as library

    lock = library.InterProcessReaderWriterLock(path)
    return between(lambda: lock.acquire_write_lock(blocking=False), lock.release_write_lock)


def lockfile_with(path, kind):
    lock = kind(path, timeout=0)
    return between(lock.acquire, lock.release)


def lockfile_link(path):
    from lockfile.linklockfile import LinkLockFile

    return lockfile_with(path, LinkLockFile)


def lockfile_mkdir(path):
    from lockfile.mkdirlockfile import MkdirLockFile

    return lockfile_with(path, MkdirLockFile)


def lockfile_symlink(path):
    from lockfile.symlinklockfile import SymlinkLockFile

    return lockfile_with(path, SymlinkLockFile)


def lockfile_pid(path):
    from lockfile.pidlockfile import PIDLockFile

    return lockfile_with(path, PIDLockFile)


def flufl(path):
    from flufl.lock import Lock

    lock = Lock(path)
    return between(lock.lock, lock.unlock)


@contextlib.contextmanager
def zc(path):
    from zc.lockfile import LockFile

    lock = LockFile(path)
    yield
    lock.close()


@contextlib.contextmanager
def mercurial(path):
    from mercurial import lock as library
    from mercurial import vfs

    directory, name = os.path.split(os.fsencode(path))
    lock = library.lock(vfs.vfs(directory), name, timeout=0)
    yield
    lock.release()


def borg(path):
    from borg.locking import ExclusiveLock

    return ExclusiveLock(path, timeout=0)


@contextlib.contextmanager
def apt(path):
    import apt_pkg

    descriptor = apt_pkg.get_lock(path, True)
    yield
    os.close(descriptor)


def main():
    kind, path = sys.argv[1:]
    try:
        context = globals()[kind](path)
        with context:
            hold()
    except Exception as error:  # each library has errors of its own
        sys.exit(f"{kind}: {type(error).__name__}: {error}")


main()
