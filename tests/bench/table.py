#!/usr/bin/python3
"""table.py: how long others wait while the table of many locks is read.

    tests/bench/table.py [LOCKS]        default: 100000

Mounts the memory backend ($LEASEFS, default ./leasefs), makes that many leases, and measures cycles of O_EXCL, close
and unlink: alone, beside a process that reads .leasefs/locks over and over, and beside one that seeks to its end.
Times in microseconds; the longest is the scheduler's rather than leasefs' on a machine that has other work.
"""
import os
import subprocess
import sys
import tempfile
import time

SECONDS = 3


def make(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def cycles(mount):
    took = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        begin = time.monotonic()
        make(mount + "/probe")
        os.unlink(mount + "/probe")
        took.append((time.monotonic() - begin) * 1e6)
    return sorted(took)


def show(what, took):
    print("%-14s median %7.0f   99%% %7.0f   99.9%% %7.0f   longest %7.0f" % (
        what, took[len(took) // 2], took[len(took) * 99 // 100], took[len(took) * 999 // 1000], took[-1]))


def read_over_and_over(mount, seek):
    while True:
        with open(mount + "/.leasefs/locks", "rb", buffering=0) as file:
            if seek:
                file.seek(1 << 40)
            while file.read(1 << 17):
                pass


def beside(mount, what, seek):
    reader = os.fork()
    if reader == 0:
        try:
            read_over_and_over(mount, seek)
        finally:
            os._exit(1)
    try:
        show(what, cycles(mount))
    finally:
        os.kill(reader, 9)
        os.waitpid(reader, 0)


def main():
    locks = int(sys.argv[1]) if len(sys.argv) > 1 else 100000
    leasefs = os.environ.get("LEASEFS", "./leasefs")
    with tempfile.TemporaryDirectory(prefix="leasefs-table.") as mount:
        subprocess.run([leasefs, "memory", mount], check=True)
        try:
            for i in range(locks):
                make("%s/lock-number-%07d" % (mount, i))
            show("alone", cycles(mount))
            beside(mount, "beside reads", False)
            beside(mount, "beside seeks", True)
        finally:
            subprocess.run(["umount", mount], check=True)


main()
