#!/usr/bin/env python3
"""example_server: the server of contract_example.  Each lock is a queue of tickets; time is this process's clock.

    example_server.py SOCKET

A request is a line "NUMBER procedure key=value …", its answer "NUMBER word key=value …"; NUMBER 0 is an event, or a
request without an answer.  Values are percent-encoded.
"""
import os
import selectors
import socket
import sys
import time
from urllib.parse import quote_from_bytes, unquote_to_bytes

GUARD_UNIT, GUARD_MAX, PROVISIONAL = 4, 60000, 0  # as in backend/backend.h
NOTHING, DIRECTORY, LOCK = range(3)
RELEASED, BROKEN = 1, 2


def now():
    return int(time.monotonic() * 1000)


class Ticket:
    def __init__(self, mount, id, fields):
        self.mount, self.id, self.held, self.guarded, self.began = mount, id, False, False, now()
        self.wait, self.meta, self.content = fields.number("wait"), b"", b""
        self.claim(fields)

    def claim(self, fields):
        self.kind, self.ttl = fields.number("kind"), fields.number("ttl")
        self.handle, self.owner = fields.number("handle"), fields.number("owner")
        self.change(fields)

    def change(self, fields):
        self.meta, self.content = fields.get("meta", self.meta), fields.get("content", self.content)

    def excludes(self, other):
        """All locks are exclusive, but for one lock owner or, unless each has one, one handle."""
        if self.mount is not other.mount or self.guarded or other.guarded:
            return True
        if self.owner and other.owner:
            return self.owner != other.owner
        return not self.handle or self.handle != other.handle

    def guard(self):
        words = self.meta.split(b" ")
        flags = int(words[7]) if len(words) > 7 and words[7].isdigit() else 0
        return min(flags // GUARD_UNIT, GUARD_MAX) if self.kind != PROVISIONAL else 0

    def show(self):
        return dict(id=self.id, kind=self.kind, fence=self.fence, age=now() - self.began, ttl=self.ttl,
                    left=self.deadline - now(), meta=self.meta, content=self.content, guarded=int(self.guarded))


class Fields(dict):
    def number(self, key):
        return int(self.get(key, b"0"))


class World:
    """The procedures: each returns the word and the values of its answer."""

    def __init__(self):
        self.directories, self.locks = {"": dict(ttl=0, meta=b"")}, {}
        self.fence = int(time.time() * 1000000)  # not behind that of a store that was there before

    def holders(self, name):
        return [t for t in self.locks.get(name, []) if t.held]

    def conflicts(self, name, ticket):
        return [t for t in self.holders(name) if t is not ticket and t.excludes(ticket)]

    def find(self, name, id):
        return next((t for t in self.locks.get(name, []) if t.id == id), None)

    def above(self, name):
        """What is wrong with the directory that the name is in; None: nothing."""
        parent = name.rpartition("/")[0]
        return None if parent in self.directories else "notdirectory" if self.holders(parent) else "missing"

    def grant(self, name, ticket, term):
        ticket.held, ticket.deadline = True, now() + term
        self.locks[name].sort(key=lambda t: not t.held)

    def update(self, name):
        """Removes what has expired, and grants the first waiter."""
        queue = self.locks[name] = [t for t in self.locks[name] if t.deadline > now()]
        for ticket in queue:
            if not ticket.held and not self.conflicts(name, ticket):
                self.grant(name, ticket, ticket.deadline - now())
                ticket.began = now()
                ticket.mount.tell("granted", id=ticket.id)
        if not queue:
            del self.locks[name]

    def update_all(self):
        for name in list(self.locks):
            self.update(name)

    def rank(self, name, ticket):
        waiters = [t for t in self.locks[name] if not t.held]
        left = min((t.deadline for t in self.holders(name)), default=now()) - now()
        return dict(rank=waiters.index(ticket) if not ticket.held else -1, left=max(left, 0))

    def acquire(self, mount, name, id, fields):
        wrong = "directory" if name in self.directories else self.above(name)
        ticket = self.find(name, id)
        if wrong:
            return wrong, {}
        if ticket is None:
            ticket = Ticket(mount, id, fields)
            joined = next((t for t in self.holders(name) if t.owner and t.owner == ticket.owner and t.mount is mount), None)
            conflicts = self.conflicts(name, ticket)
            if conflicts and not ticket.wait:
                return "busy", dict(type=LOCK, holders=1, **conflicts[0].show())
            if joined and not conflicts:
                joined.deadline = max(joined.deadline, now() + ticket.ttl)
                return "ok", dict(id=joined.id, fence=joined.fence)
            self.fence += 1
            ticket.fence, ticket.deadline = self.fence, now() + fields.number("alive")
            self.locks.setdefault(name, []).append(ticket)
            if not conflicts:
                self.grant(name, ticket, ticket.ttl)
            for holder in conflicts:
                holder.mount.tell("wanted", id=holder.id)
        ticket.deadline = now() + fields.number("ttl" if ticket.held else "alive")
        return ("ok" if ticket.held else "queued"), dict(id=id, fence=ticket.fence, **self.rank(name, ticket))

    def heartbeat(self, mount, name, id, fields):
        for at, queue in self.locks.items():
            for ticket in queue:
                if ticket.id == id:
                    ticket.deadline = ticket.deadline if ticket.held else now() + fields.number("alive")
                    mount.tell("rank", id=id, **self.rank(at, ticket))
                    return
        mount.tell("rank", id=id, rank=-1)

    def release(self, mount, name, id, fields):
        ticket = self.find(name, id)
        if ticket:
            self.locks[name].remove(ticket)
            self.update(name)
        return "ok", {}

    def held(self, name, id):
        ticket = self.find(name, id)
        return ticket if ticket and ticket.held else None

    def renew(self, mount, name, id, fields):
        ticket = self.held(name, id)
        if ticket and fields.number("left"):
            ticket.ttl, ticket.deadline = fields.number("ttl"), now() + fields.number("left")
        return ("ok" if ticket else "stale"), {}

    def set(self, mount, name, id, fields):
        ticket = self.held(name, id)
        if ticket:
            ticket.change(fields)
        return ("ok" if ticket else "stale"), {}

    def convert(self, mount, name, id, fields):
        ticket = self.find(name, id)
        wanted = Ticket(mount, id, fields)
        if ticket is None:
            return "stale", {}
        if ticket.held and [t for t in self.conflicts(name, wanted) if t is not ticket]:
            return "busy", {}
        ticket.claim(fields)
        if ticket.held:
            ticket.deadline = now() + ticket.ttl
        self.update(name)
        return "ok", {}

    def revoke(self, mount, name, id, fields):
        fence, text, word = fields.number("fence"), fields["text"], fields.number("word")
        holders = [t for t in self.holders(name) if not t.guarded]
        if not self.holders(name):
            return ("directory" if name in self.directories else "missing"), {}
        ends = [t for t in holders or self.holders(name) if not fence or t.fence == fence]
        matches = not fields.number("matching") or (holders and all(
            not text or t.meta.split(b" ")[word - 1:word] == [text] for t in ends))
        if not ends or not matches:
            return ("busy" if ends else "stale"), {}
        for ticket in ends:
            guard = 0 if ticket.guarded else ticket.guard()
            if not ticket.guarded:
                ticket.mount.tell("ended", id=ticket.id, why=RELEASED if fence else BROKEN)
            ticket.id, ticket.guarded = "", True
            ticket.deadline = min(ticket.deadline, now() + guard)
        self.update(name)
        return "ok", {}

    def test(self, mount, name, id, fields):
        conflicts = self.conflicts(name, Ticket(mount, id, fields))
        return "ok", dict(type=LOCK, holders=1, **conflicts[0].show()) if conflicts else dict(type=NOTHING)

    def stat(self, mount, name, id, fields):
        holders, queue = self.holders(name), self.locks.get(name, [])
        if name in self.directories:
            return "ok", dict(type=DIRECTORY, **self.directories[name])
        counts = dict(holders=len(holders), waiters=len(queue) - len(holders))
        return "ok", dict(type=LOCK, **counts, **holders[0].show()) if holders else dict(type=NOTHING, **counts)

    def list(self, mount, name, id, fields):
        if name not in self.directories:
            return ("notdirectory" if self.holders(name) else "missing"), {}
        after = fields["after"].decode(errors="surrogateescape")
        found = [("d:", d) for d in self.directories if d] + [("l:", n) for n in self.locks if self.holders(n)]
        inside = sorted((n.rpartition("/")[2], what) for what, n in found if n.rpartition("/")[0] == name)
        inside = [what + leaf for leaf, what in inside if leaf.encode(errors="surrogateescape") > fields["after"]]
        return "ok", dict(entries="/".join(inside[:fields.number("max")]))

    def mkdir(self, mount, name, id, fields):
        wrong = self.above(name)
        if wrong or name in self.directories or self.locks.get(name):
            return wrong or "exists", {}
        self.directories[name] = dict(ttl=fields.number("ttl"), meta=fields["meta"])
        return "ok", {}

    def rmdir(self, mount, name, id, fields):
        if name not in self.directories:
            return ("notdirectory" if self.holders(name) else "missing"), {}
        if any(n.startswith(name + "/") for n in [*self.directories, *self.locks]):
            return "notempty", {}
        del self.directories[name]
        return "ok", {}

    def set_directory(self, mount, name, id, fields):
        if name not in self.directories:
            return "missing", {}
        self.directories[name] = dict(ttl=fields.number("ttl"), meta=fields["meta"])
        return "ok", {}


def encode(number, word, values):
    line = f"{number} {word}"
    for key, value in values.items():
        data = value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")
        line += f" {key}={quote_from_bytes(data, safe='')}"
    return line.encode() + b"\n"


class Mount:
    """A connection."""

    worlds = {}

    def __init__(self, connection):
        self.connection, self.rest, self.world = connection, b"", None

    def tell(self, event, **values):
        self.write(encode(0, event, values))

    def write(self, data):
        try:
            self.connection.sendall(data)
        except OSError:
            pass  # its tickets expire

    def read(self):
        try:
            data = self.connection.recv(65536)
        except ConnectionResetError:
            data = b""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.carry_out(line.decode())
        return bool(data)

    def carry_out(self, line):
        number, procedure, *pairs = line.split(" ")
        fields = Fields((key, unquote_to_bytes(value)) for key, _, value in (pair.partition("=") for pair in pairs))
        if procedure == "hello":
            self.world = Mount.worlds.setdefault(fields["world"], World())
            return
        name, id = (fields.get(key, b"").decode(errors="surrogateescape") for key in ("name", "id"))
        self.world.update_all()
        answer = getattr(self.world, procedure)(self, name, id, fields)
        if answer:
            self.write(encode(number, *answer))


def main():
    loop, listener = selectors.DefaultSelector(), socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1] + ".new")
    listener.listen()
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    loop.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in loop.select(timeout=0.02):
            if key.fileobj is listener:
                connection = listener.accept()[0]
                loop.register(connection, selectors.EVENT_READ, Mount(connection))
            elif not key.data.read():
                loop.unregister(key.fileobj)
        for world in Mount.worlds.values():
            world.update_all()


main()
