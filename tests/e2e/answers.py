#!/usr/bin/python3
"""answers.py HERE [THERE]: how often an answer came before its effect.

For each operation that gives a lock back, at the mount HERE: right after it has
returned the name is looked for at HERE and THERE, the other mount of the store,
and taken at THERE.  Prints a line `OPERATION WRONG ROUNDS` for each; what was
wrong first goes to stderr.
"""
import errno
import fcntl
import os
import struct
import sys

ROUNDS = int(os.environ.get("ANSWERS_ROUNDS", "400"))
F_OFD_SETLK = 37
here, there = sys.argv[1], sys.argv[-1]
mounts = [here] if here == there else [here, there]
EXCL = os.O_CREAT | os.O_EXCL | os.O_RDWR


def record(fd, command, kind, start=0, length=0):
    fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))


def token(path):
    return os.getxattr(path, "user.lease.token")


def lease(path):
    os.close(os.open(path, EXCL))


def create(path):
    return os.open(path, os.O_CREAT | os.O_RDWR)


def close(fd):
    try:
        os.close(fd)
    except OSError:  # its loss is reported once more
        pass


def unlink(path):
    lease(path)
    os.unlink(path)


def release(path):
    lease(path)
    os.setxattr(path, "user.lease.release", token(path))


def release_of_a_flock(path):
    fd = create(path)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.setxattr(path, "user.lease.release", token(path))
    return fd


def release_there(path):
    there_path = os.path.join(there, os.path.basename(path))
    fd = os.open(there_path, EXCL)
    os.setxattr(path, "user.lease.release", token(path))
    try:
        os.write(fd, b"late")
        return "the handle there still writes"
    except OSError as error:
        return None if error.errno == errno.ESTALE else str(error)
    finally:
        close(fd)


def break_(path):
    lease(path)
    os.setxattr(path, "user.lease.break", b"1")


def break_there(path):
    fd = os.open(os.path.join(there, os.path.basename(path)), EXCL)
    os.setxattr(path, "user.lease.break", b"1")
    try:
        os.write(fd, b"late")
        return "the handle there still writes"
    except OSError as error:
        return None if error.errno == errno.ESTALE else str(error)
    finally:
        close(fd)


def break_of_shared(path):
    fds = [os.open(path, os.O_CREAT | os.O_RDONLY) for i in range(8)]
    for fd in fds:
        fcntl.flock(fd, fcntl.LOCK_SH)
    os.stat(path)
    os.setxattr(path, "user.lease.break", b"1")
    return fds


def unlock_flock(path):
    fd = create(path)
    fcntl.flock(fd, fcntl.LOCK_EX)
    fcntl.flock(fd, fcntl.LOCK_UN)
    return fd


def unlock_flock_that_was_a_lease(path):
    lease(path)
    os.stat(path)
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.stat(path)
    fcntl.flock(fd, fcntl.LOCK_UN)
    return fd


def unlock_file(path):
    fd = create(path)
    record(fd, fcntl.F_SETLK, fcntl.F_WRLCK)
    record(fd, fcntl.F_SETLK, fcntl.F_UNLCK)
    return fd


def unlock_file_that_was_a_lease(path):
    lease(path)
    os.stat(path)
    fd = os.open(path, os.O_RDWR)
    record(fd, fcntl.F_SETLK, fcntl.F_WRLCK)
    record(fd, fcntl.F_SETLK, fcntl.F_UNLCK)
    return fd


def unlock_ranges(path):
    fd = create(path)
    record(fd, fcntl.F_SETLK, fcntl.F_WRLCK, 0, 20)
    record(fd, fcntl.F_SETLK, fcntl.F_UNLCK, 0, 10)
    record(fd, fcntl.F_SETLK, fcntl.F_UNLCK, 10, 10)
    return fd


def unlock_ofd(path):
    fd = create(path)
    record(fd, F_OFD_SETLK, fcntl.F_WRLCK)
    record(fd, F_OFD_SETLK, fcntl.F_UNLCK)
    return fd


def close_with_record_locks(path):
    fd = create(path)
    record(fd, fcntl.F_SETLK, fcntl.F_WRLCK)
    record(fd, fcntl.F_SETLK, fcntl.F_WRLCK, 100, 10)
    os.close(fd)


def close_with_a_record_lock_that_was_a_lease(path):
    lease(path)
    os.stat(path)
    fd = os.open(path, os.O_RDWR)
    record(fd, fcntl.F_SETLK, fcntl.F_WRLCK)
    os.stat(path)
    os.close(fd)


def close_of_another_handle(path):
    fd = create(path)
    record(fd, fcntl.F_SETLK, fcntl.F_WRLCK)
    os.close(os.open(path, os.O_RDONLY))
    return fd


def rename(path):
    lease(path)
    os.rename(path, path + ".new")
    for mount in mounts:
        if not os.path.exists(os.path.join(mount, os.path.basename(path) + ".new")):
            return "the new name is not there"
    os.unlink(path + ".new")


def rmdir(path):
    os.mkdir(path)
    for mount in mounts:
        if not os.path.isdir(os.path.join(mount, os.path.basename(path))):
            return "it is not there"
    os.rmdir(path)


def touch(path):
    """The old holder asks again: it is told that it has it, so it has it."""
    lease(path)
    os.setxattr(path, "user.lease.release", token(path))
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    for mount in mounts:
        if not os.path.exists(os.path.join(mount, os.path.basename(path))):
            return "touch said 0 and holds nothing"
    os.unlink(path)


def touch_by_who_had_ranges(path):
    fd = unlock_ranges(path)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    if not os.path.exists(path):
        return "touch said 0 and holds nothing"
    os.unlink(path)
    return fd


def look(path):
    """What is wrong now that nobody holds it, or None."""
    name = os.path.basename(path)
    if os.access(path, os.F_OK):
        return "it is still accessible"
    for mount in mounts:
        if os.path.exists(os.path.join(mount, name)):
            return "it still exists at " + mount
    try:
        lease(os.path.join(there, name))
    except OSError as error:
        return "it cannot be taken: %s" % error
    try:
        lease(path)
        return "two have it"
    except FileExistsError:
        pass
    os.unlink(os.path.join(there, name))
    return None


def once(operation, path):
    try:
        left = operation(path)
        if isinstance(left, str):
            return left
        wrong = look(path)
        for fd in [left] if isinstance(left, int) else left or []:
            os.close(fd)
        return wrong
    except OSError as error:
        return "%s" % error


operations = [unlink, release, release_of_a_flock, break_, break_of_shared, touch, unlock_flock,
              unlock_flock_that_was_a_lease, unlock_file, unlock_file_that_was_a_lease, unlock_ranges, unlock_ofd,
              touch_by_who_had_ranges, close_with_record_locks,
              close_with_a_record_lock_that_was_a_lease, close_of_another_handle, rename, rmdir]
if there != here:
    operations += [release_there, break_there]
for operation in operations:
    wrong = 0
    name = operation.__name__.rstrip("_").replace("_", "-")
    for i in range(ROUNDS):
        # some names are old acquaintances of the kernel
        path = os.path.join(here, "%s-%d" % (name, i % 7 if i % 2 else i) + "x")
        what = once(operation, path)
        if what and not wrong:
            print("%s, round %d: %s" % (name, i, what), file=sys.stderr)
        if what:
            wrong += 1
            for mount in mounts:
                for left in (path, path + ".new"):
                    try:
                        os.setxattr(os.path.join(mount, os.path.basename(left)), "user.lease.break", b"1")
                    except OSError:
                        pass
    print(name, wrong, ROUNDS, flush=True)
