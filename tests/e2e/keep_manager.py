"""keep_manager.py SOCKET COMMAND…: a service manager that keeps descriptors, as systemd does.

Starts the command, and for each line of stdin kills what the line names and starts the command again.  Prints a line once
it is ready.
"""
import array
import os
import signal
import socket
import sys

address, command = sys.argv[1], sys.argv[2:]
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(address)
stored = {}


def start():
    pid = os.fork()
    if pid == 0:
        environment = dict(os.environ, NOTIFY_SOCKET=address)
        if stored:
            aside = [os.dup(fd) for fd in stored.values()]
            aside = [fd if fd > 20 else os.dup2(fd, 100 + fd) for fd in aside]
            for number, fd in enumerate(aside):
                os.dup2(fd, 3 + number)
            environment.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(aside)), LISTEN_FDNAMES=":".join(stored))
        os.execvpe(command[0], command, environment)
    while True:
        data, control, _, _ = manager.recvmsg(4096, 1024)
        fields = dict(line.split("=", 1) for line in data.decode().split("\n"))
        for _, kind, rights in control:
            if kind == socket.SCM_RIGHTS and fields.get("FDSTORE") == "1":
                stored.setdefault(fields["FDNAME"], array.array("i", rights)[0])
        if "READY" in fields:
            return pid


pid = start()
print("ready", flush=True)
for line in sys.stdin:
    for victim in [int(word) for word in line.split()] + [pid]:
        os.kill(victim, signal.SIGKILL)
    os.waitpid(pid, 0)
    pid = start()
    print("ready", flush=True)
