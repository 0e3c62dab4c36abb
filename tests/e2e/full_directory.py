"""Makes a leasefs directory on ZooKeeper that has given all of its numbers, which would take weeks to be reached.

    full_directory.py DATA-DIRECTORY PATH

The directory is that of a server that does not run; what PATH is in must be there.  What is written is a log of two
transactions, as of ZooKeeper's FileTxnLog: the same in 3.4 to 3.9, whose Java differs.
"""
import os
import struct
import sys
import time
import zlib

CREATE = 1  # ZooDefs.OpCode
ALL = 31  # ZooDefs.Perms
NUMBERS = 2**31 - 1  # the last change of children that a parent can have


def text(value):
    return struct.pack(">i", len(value)) + value.encode()


def create(zxid, path, data, version):
    header = struct.pack(">qiqqi", 1, zxid & NUMBERS, zxid, int(time.time() * 1000), CREATE)
    acl = struct.pack(">ii", 1, ALL) + text("world") + text("anyone")
    made = header + text(path) + text(data) + acl + struct.pack(">?i", False, version)
    return struct.pack(">qi", zlib.adler32(made), len(made)) + made + b"B"


directory, full = sys.argv[1:]
first = (1 << 32) + 1  # after all that the server has done
with open(os.path.join(directory, "version-2", f"log.{first:x}"), "xb") as log:
    log.write(struct.pack(">4siq", b"ZKLG", 2, 0))
    log.write(create(first, full, "leasefs1 directory 0 1 0 1\n", 1000))
    log.write(create(first + 1, full + "/left", "", NUMBERS))
