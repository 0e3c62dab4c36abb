#!/usr/bin/python3
"""jumps: how often the daemon jumps from one source file into another for a `touch` of a free name.

    tests/bench/jumps.py BUILD_DIRECTORY [STORE]

BUILD_DIRECTORY was configured with CFLAGS="-O0 -g -finstrument-functions" and --disable-hardening.  STORE is memory
unless it is told.  The name is the second that is touched: of the first the daemon learns who its caller's ancestors
are.  A function of a header belongs to the file that includes it, as the compiler puts it there.  Tells how many
functions and files the requests of that touch pass and how many calls go from one file into another, then which.
"""
import collections
import os
import struct
import subprocess
import sys
import tempfile
import time

build, store = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "memory"
daemon = os.path.join(build, "leasefs")
here = os.path.dirname(os.path.abspath(__file__))


def wait_for(condition):
    limit = time.monotonic() + 20
    while not condition():
        if time.monotonic() > limit:
            sys.exit("jumps: waited in vain")
        time.sleep(0.02)


def record(directory):
    """The words that the touch adds to the recording, and where the program was loaded."""
    recorder, words, mount = (os.path.join(directory, name) for name in ("jumps.so", "words", "mount"))
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-o", recorder, os.path.join(here, "jumps.c")],
                   check=True)
    os.mkdir(mount)
    environment = dict(os.environ, LD_PRELOAD=recorder, JUMPS=words)
    process = subprocess.Popen([daemon, "-f", store, mount], env=environment, stderr=subprocess.DEVNULL)

    def count():
        with open(words, "rb") as file:
            return struct.unpack("Q", file.read(8))[0]

    def quiet():
        before = count()
        time.sleep(0.2)
        return count() == before

    try:
        wait_for(lambda: os.path.ismount(mount))
        counts = []
        for name in ("first", "second"):
            subprocess.run(["touch", os.path.join(mount, name)], check=True)
            wait_for(quiet)
            counts.append(count())
        with open("/proc/%d/maps" % process.pid) as maps:
            base = next(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith("leasefs"))
        with open(words, "rb") as file:
            file.seek(8 * (counts[0] + 1))
            return struct.unpack("%dQ" % (counts[1] - counts[0]), file.read(8 * (counts[1] - counts[0]))), base
    finally:
        subprocess.run(["umount", mount], check=False)
        process.wait()


def places(addresses, base):
    """address -> (function, its source)"""
    out = subprocess.run(["addr2line", "-f", "-e", daemon] + [hex(a - base) for a in addresses], check=True,
                         capture_output=True, text=True).stdout.splitlines()
    found = [(out[2 * i], os.path.normpath(out[2 * i + 1].split(":")[0])) for i in range(len(addresses))]
    top = os.path.commonpath([os.path.dirname(path) for _, path in found])
    return {a: (function, os.path.relpath(path, top)) for a, (function, path) in zip(addresses, found)}


def main():
    with tempfile.TemporaryDirectory() as directory:
        words, base = record(directory)
    known = places(sorted({word >> 1 for word in words}), base)
    functions, files, pairs, stack = set(), set(), collections.Counter(), []
    for word in words:
        if word & 1:
            if stack:
                stack.pop()
            continue
        function, file = known[word >> 1]
        if file.endswith(".h") and stack:
            file = stack[-1][1]
        elif stack and stack[-1][1] != file:
            pairs["%s %s -> %s %s" % (stack[-1][1], stack[-1][0], file, function)] += 1
        functions.add(function)
        files.add(file)
        stack.append((function, file))
    print("touch of a free name: %d functions in %d files, %d calls from file to file"
          % (len(functions), len(files), sum(pairs.values())))
    for pair, count in pairs.most_common():
        print("%4d  %s" % (count, pair))


main()
