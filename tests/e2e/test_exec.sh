#!/bin/bash
# A descriptor that is closed on exec: while the daemon answers that FLUSH, the kernel keeps others from reading
# /proc/PID/stat of the process, and a daemon that reads it waits for ever.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
[ -n "$PYTHON" ] || skip_all "no python3"

program() { # CODE ARGUMENT…: its descriptors are closed on exec, as Python's are
    timeout -s KILL 30 "$PYTHON" -S -E -c "import os, sys
lock = sys.argv[1]
$1" "${@:2}"
}

it "children that inherit a handle and exec do not stop the daemon"
expect program '
f = open(lock, "x")
for i in range(20):
    if os.fork() == 0:
        os.execvp("true", ["true"])
    assert os.wait()[1] == 0
' "$MNT/children"
expect exists children

it "exec of the opener does not stop the daemon"
expect program '
f = os.open(lock, os.O_WRONLY | os.O_CREAT)
os.execvp("true", ["true"])
' "$MNT/opener"
expect program 'open(lock, "x")' "$MNT/next"

it "nor does it while a child of that process acquires and releases"
expect program '
for i in range(100):
    if os.fork() == 0:
        f = os.open("%s.%d" % (lock, i), os.O_WRONLY | os.O_CREAT)
        if os.fork() == 0:
            for j in range(20):
                child = "%s.%d.%d" % (lock, i, j)
                os.close(os.open(child, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                os.unlink(child)
            os._exit(0)
        os.execvp("true", ["true"])
    assert os.wait()[1] == 0
' "$MNT/parent"

finish
