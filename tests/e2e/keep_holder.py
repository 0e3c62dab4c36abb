"""keep_holder.py MOUNTPOINT: holds locks of each kind, while its daemons end and others go on.

For each line of stdin a line of stdout: `check`, does all go on as before?  `end`, releases all, and tells what became
of the one that waited.
"""
import fcntl
import os
import subprocess
import sys
import threading
import time

mountpoint = sys.argv[1]
directory = os.path.join(mountpoint, f"holder-{os.getpid()}")


def path(name):
    return os.path.join(directory, name)


def open_at(name, *flags):
    return os.open(path(name), os.O_RDWR | os.O_CREAT | sum(flags), 0o666)


os.mkdir(directory)
os.chdir(directory)
flocked = open_at("flock")
fcntl.flock(flocked, fcntl.LOCK_EX)
ranged = open_at("range")
fcntl.lockf(ranged, fcntl.LOCK_EX, 10, 5)
lease = open_at("lease", os.O_EXCL)
os.write(lease, b"content")
inherited = open_at("inherited")
fcntl.flock(inherited, fcntl.LOCK_EX)
child = subprocess.Popen(["sleep", "1000"], pass_fds=[inherited])
os.close(inherited)
watched = os.open(path("lease"), os.O_PATH)
before = [os.fstat(fd) for fd in (flocked, ranged, lease, watched)]
waited = []


def wait():
    fd = os.open(path("flock"), os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        waited.append("granted")
    except OSError as error:
        waited.append(error.strerror)


waiter = threading.Thread(target=wait)
waiter.start()
time.sleep(0.3)


def refused(name, lock):
    fd = os.open(path(name), os.O_RDWR)
    try:
        lock(fd)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def check(count=[0]):
    count[0] += 1
    for old, new in zip(before, [os.fstat(fd) for fd in (flocked, ranged, lease, watched)]):
        if (old.st_ino, old.st_size, old.st_ctime_ns // 10**9) != (new.st_ino, new.st_size, new.st_ctime_ns // 10**9):
            return f"stat changed: {old} {new}"
    if os.pread(lease, 100, 0) != b"content":
        return "another content"
    for name in ("flock", "inherited"):
        if not refused(name, lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)):
            return f"{name} was granted to another"
    probe = [sys.executable, "-c", "import fcntl,os,sys; fcntl.lockf(os.open(sys.argv[1],os.O_RDWR),fcntl.LOCK_EX|fcntl.LOCK_NB,1,7)"]
    if subprocess.run(probe + [path("range")], stderr=subprocess.DEVNULL).returncode == 0:
        return "a range was granted to another"
    try:
        os.close(open_at("lease", os.O_EXCL))
        return "the lease was granted to another"
    except FileExistsError:
        pass
    os.close(os.open(f"new{count[0]}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))  # in the working directory
    os.unlink(f"new{count[0]}")
    return f"the waiter: {waited[0]}" if waited else "ok"


def end():
    fcntl.flock(flocked, fcntl.LOCK_UN)
    waiter.join(10)
    child.kill()
    child.wait()
    for fd in (flocked, ranged, lease, watched):
        os.close(fd)
    os.unlink(path("lease"))
    os.chdir("/")
    return waited[0] if waited else "still waiting"


print("ready", flush=True)
for line in sys.stdin:
    try:
        print(check() if line.strip() == "check" else end(), flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
os._exit(0)
