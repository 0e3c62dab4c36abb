#!/usr/bin/python3
"""instructions.py MOUNTPOINT SOCKET PID MOST: what a lock costs a Redis server, in instructions that callgrind counts.

PID is a server below valgrind --tool=callgrind, at SOCKET, and MOUNTPOINT a mount of it.  A cycle of open(O_EXCL), close and
unlink may cost it MOST times what SET NX and compare-and-delete cost, as other clients lock.
"""
import os
import re
import socket
import subprocess
import sys

CYCLES = 200
COMPARE_AND_DELETE = ("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) "
                      "else return 0 end")
TOKEN = "0123456789abcdef0123456789abcdef"

base, path, pid, most = sys.argv[1:]
server = socket.socket(socket.AF_UNIX)
server.connect(path)


def ask(*words):
    server.sendall(b"".join([b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words]))
    answer = server.recv(65536).decode()
    assert not answer.startswith("-"), answer
    return answer


def plain():
    assert ask("SET", "plain", TOKEN, "NX", "PX", "30000") == "+OK\r\n"
    assert ask("EVALSHA", script, "1", "plain", TOKEN) == ":1\r\n"


def cycle():
    lock = os.path.join(base, "lock")
    os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    os.unlink(lock)


def instructions():
    # whose status says nothing: in Valgrind 3.24 it fails once it has told
    text = subprocess.run(["callgrind_control", "-e", "-b", pid], capture_output=True, text=True).stdout
    return int(re.search(r"Th 1 +([\d,]+)", text)[1].replace(",", ""))


def cost(operation):
    operation()  # once, to be met
    before = instructions()
    for _ in range(CYCLES):
        operation()
    return (instructions() - before) // CYCLES


script = ask("SCRIPT", "LOAD", COMPARE_AND_DELETE).split("\r\n")[1]
theirs, ours = cost(plain), cost(cycle)
print(f"instructions of the server: {ours} a cycle, {theirs} a SET NX and compare-and-delete: {ours / theirs:.1f} ({most})")
sys.exit(ours > float(most) * theirs)
