#!/usr/bin/python3
"""proxy: a TCP proxy on 127.0.0.1 that makes the network bad when it is told to.

    proxy.py [--seed N] [--listen PORT] [--ids] --to HOST:PORT|unix:PATH

It is told by lines on its input, answers each with `ok`, a value or `error: ...`
on its output, and ends, with all its connections, when its input does.  With
--ids a line begins with a word that its answer begins with too.  WAY is up
(to the server), down or both.

    port                    the port it listens on
    delay WAY MS [JITTER [uniform|exponential]]
                            each piece of data that is read from now on is passed on so much later, in order
    loss WAY P              a piece is lost with this probability; what follows it on the connection, its end
                            included, is swallowed silently: the other side looks alive and says nothing
    break WAY P             with this probability a piece is not passed on, and the connection is reset
    cut N [TEXT]            once: of the first reply that follows a request (with TEXT in it), N bytes are passed on,
                            then the connection is closed; the request has reached the server
    drop                    resets all connections
    refuse on|off           does not listen (ECONNREFUSED); connections stay
    pause, resume           passes nothing on, and takes no more than buffers hold; loses nothing
    clear                   no delay, loss, break or cut from now on; what was swallowed stays so
    stats                   connections made, open, bytes passed up, bytes passed down, cuts made

What happens by chance is drawn for each connection and way from a generator of
its own, made from the seed: the same seed and the same pieces on a connection
meet the same decisions, whatever other connections do.
"""
import argparse
import asyncio
import random
import socket
import struct
import sys

PIECE = 65536
PIECES_QUEUED = 64  # then the sender is made to wait
WAYS = {"up": ("up",), "down": ("down",), "both": ("up", "down")}


class Faults:
    """What may happen on one way."""

    def __init__(self):
        self.delay, self.jitter, self.shape = 0.0, 0.0, "uniform"
        self.loss = 0.0
        self.breaks = 0.0

    def draw_delay(self, chance):
        if not self.jitter:
            return self.delay
        if self.shape == "exponential":
            return self.delay + chance.expovariate(1 / self.jitter)
        return max(0.0, self.delay + chance.uniform(-self.jitter, self.jitter))


class Connection:
    """One client, and its connection to the server."""

    def __init__(self, proxy, number, reader, writer):
        self.proxy = proxy
        self.client, self.server = (reader, writer), None
        self.chance = {way: random.Random(f"{proxy.seed}:{number}:{way}") for way in ("up", "down")}
        self.silent = {"up": False, "down": False}
        self.cutting = None  # how many bytes of the reply still pass
        self.task = asyncio.current_task()

    async def run(self):
        tasks = []
        try:
            await self.proxy.running.wait()
            self.server = await self.proxy.connect()
            for way, source, sink in (("up", self.client, self.server), ("down", self.server, self.client)):
                queue = asyncio.Queue(PIECES_QUEUED)
                tasks.append(asyncio.create_task(self.read(way, source[0], queue)))
                tasks.append(asyncio.create_task(self.write(sink[1], queue)))
            await asyncio.gather(*tasks)
        except EOFError:
            pass  # cut
        except (OSError, asyncio.CancelledError):
            self.linger_no_more()
        finally:
            for task in tasks:
                task.cancel()
            for side in (self.client, self.server):
                if side is not None:
                    side[1].close()
            self.proxy.connections.discard(self)

    async def read(self, way, reader, queue):
        """From one side, deciding what becomes of it.  Queues when to pass what on; at last how that ends: an exception
        or, for an orderly end, nothing."""
        due = 0.0
        while True:
            await self.proxy.running.wait()
            piece = await reader.read(PIECE)
            await self.proxy.running.wait()
            passed, end = self.decide(way, piece)
            if self.silent[way]:
                if not piece:
                    await asyncio.Event().wait()  # the other side is never told
                continue
            due = max(due, asyncio.get_running_loop().time() + self.proxy.faults[way].draw_delay(self.chance[way]))
            self.proxy.passed[way] += len(passed)
            await queue.put((due, passed, end))
            if not piece or end:
                return

    def decide(self, way, piece):
        """What of the piece is passed on, and how the connection ends then, if it does."""
        faults, chance = self.proxy.faults[way], self.chance[way]
        lost, broken = chance.random() < faults.loss, chance.random() < faults.breaks
        self.silent[way] |= lost
        if broken:
            return b"", ConnectionResetError
        if way == "up" and piece and self.proxy.cut is not None and self.proxy.cut[1] in piece:
            self.cutting, self.proxy.cut = self.proxy.cut[0], None
        if way == "down" and self.cutting is not None and len(piece) >= self.cutting:
            self.proxy.cuts += 1
            return piece[:self.cutting], EOFError
        if way == "down" and self.cutting is not None:
            self.cutting -= len(piece)
        return piece, None

    async def write(self, writer, queue):
        loop = asyncio.get_running_loop()
        while True:
            due, piece, end = await queue.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            await self.proxy.running.wait()
            if piece:
                writer.write(piece)
                await writer.drain()
            if end:
                raise end
            if not piece:
                writer.write_eof()
                return

    def linger_no_more(self):
        """So that both sides are closed by RST."""
        for side in (self.client, self.server):
            raw = side and side[1].get_extra_info("socket")
            if raw and raw.family == socket.AF_INET:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Proxy:
    """What listens, and what it has been told."""

    def __init__(self, seed, target):
        self.seed, self.target = seed, target
        self.faults = {"up": Faults(), "down": Faults()}
        self.running = asyncio.Event()
        self.running.set()
        self.connections = set()
        self.made = self.cuts = self.port = 0
        self.passed = {"up": 0, "down": 0}
        self.cut = None
        self.listener = None

    async def connect(self):
        if self.target.startswith("unix:"):
            return await asyncio.open_unix_connection(self.target[5:])
        host, port = self.target.rsplit(":", 1)
        return await asyncio.open_connection(host, int(port))

    async def listen(self, port):
        self.listener = await asyncio.start_server(self.accept, "127.0.0.1", port)
        self.port = self.listener.sockets[0].getsockname()[1]

    async def accept(self, reader, writer):
        connection = Connection(self, self.made, reader, writer)
        self.made += 1
        self.connections.add(connection)
        await connection.run()

    async def obey(self, line):
        word, *arguments = line.split()
        command = COMMANDS.get(word)
        if command is None:
            return f"error: no such command: {word}"
        try:
            return await command(self, *arguments) or "ok"
        except (TypeError, ValueError, KeyError) as wrong:
            return f"error: {word}: {type(wrong).__name__}: {wrong}"

    # --- commands ---

    async def tell_port(self):
        return str(self.port)

    async def set_delay(self, way, milliseconds, jitter="0", shape="uniform"):
        if shape not in ("uniform", "exponential"):
            raise ValueError(shape)
        values = float(milliseconds) / 1000, float(jitter) / 1000, shape
        for one in WAYS[way]:
            self.faults[one].delay, self.faults[one].jitter, self.faults[one].shape = values

    async def set_loss(self, way, probability):
        for one in WAYS[way]:
            self.faults[one].loss = float(probability)

    async def set_break(self, way, probability):
        for one in WAYS[way]:
            self.faults[one].breaks = float(probability)

    async def set_cut(self, count, text=""):
        self.cut = int(count), text.encode()

    async def drop(self):
        tasks = [connection.task for connection in self.connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refuse(self, how):
        if {"on": True, "off": False}[how] == (self.listener is None):
            return
        if how == "on":
            self.listener.close()
            self.listener = None
        else:
            await self.listen(self.port)

    async def pause(self):
        self.running.clear()

    async def resume(self):
        self.running.set()

    async def clear(self):
        self.faults = {"up": Faults(), "down": Faults()}
        self.cut = None

    async def stats(self):
        return f"{self.made} {len(self.connections)} {self.passed['up']} {self.passed['down']} {self.cuts}"


COMMANDS = {
    "port": Proxy.tell_port, "delay": Proxy.set_delay, "loss": Proxy.set_loss, "break": Proxy.set_break,
    "cut": Proxy.set_cut, "drop": Proxy.drop, "refuse": Proxy.refuse, "pause": Proxy.pause, "resume": Proxy.resume,
    "clear": Proxy.clear, "stats": Proxy.stats}


async def main():
    parser = argparse.ArgumentParser(description="A TCP proxy that makes the network bad when it is told to.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--listen", type=int, default=0, metavar="PORT")
    parser.add_argument("--ids", action="store_true", help="each line begins with a word, which its answer repeats")
    parser.add_argument("--to", required=True, metavar="HOST:PORT|unix:PATH")
    arguments = parser.parse_args()
    proxy = Proxy(arguments.seed, arguments.to)
    await proxy.listen(arguments.listen)
    told = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), sys.stdin)
    while line := (await told.readline()).decode():
        mark, _, line = line.partition(" ") if arguments.ids else ("", "", line)
        if line.strip():
            print(mark + " " * arguments.ids + await proxy.obey(line), flush=True)
    await proxy.drop()


if __name__ == "__main__":
    asyncio.run(main())
