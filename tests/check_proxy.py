#!/usr/bin/python3
"""check_proxy: that proxy.py does to connections what it says, where a test that uses it would pass if it did not."""
import pathlib
import select
import socket
import subprocess
import sys
import threading
import time

PROXY = pathlib.Path(__file__).resolve().parent / "proxy.py"
PATIENCE = 10  # seconds for what must happen
QUIET = 0.2  # seconds for which nothing must
cases = []


def case(function):
    cases.append(function)
    return function


class Echo:
    """A server that sends back what it gets, and remembers it."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.received = []
        self.ended = threading.Semaphore(0)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.received.append(b"")
            threading.Thread(target=self.echo, args=(client, len(self.received) - 1), daemon=True).start()

    def echo(self, client, number):
        with client:
            try:
                while piece := client.recv(65536):
                    self.received[number] += piece
                    client.sendall(piece)
            except OSError:
                pass
        self.ended.release()


class Proxy:
    def __init__(self, echo, seed=1):
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", PROXY, "--seed", str(seed), "--to", "127.0.0.1:%d" % echo.address[1]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = "127.0.0.1", int(self.ask("port"))

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def tell(self, command):
        answer = self.ask(command)
        assert answer == "ok", f"{command}: {answer}"

    def client(self):
        client = socket.create_connection(self.address, PATIENCE)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self.process.stdout.close()


def get(client, size):
    data = b""
    while len(data) < size and (piece := client.recv(size - len(data))):
        data += piece
    return data


def exchange(client, text):
    client.sendall(text)
    return get(client, len(text)) == text


def silent(client):
    return not select.select([client], [], [], QUIET)[0]


def is_reset(client):
    try:
        return client.recv(1) != client.recv(1)  # an orderly end twice is no reset
    except ConnectionResetError:
        return True


@case
def delay_is_that_of_its_way_and_keeps_the_order(proxy, echo):
    client = proxy.client()
    proxy.tell("delay down 150")
    began = time.monotonic()
    assert exchange(client, b"a")
    assert 0.15 <= time.monotonic() - began < PATIENCE
    proxy.tell("delay both 50 20 uniform")
    for i in range(10):
        client.sendall(b"%d" % i)
        time.sleep(0.002)  # a piece of its own
    assert get(client, 10) == b"0123456789"
    proxy.tell("clear")
    began = time.monotonic()
    assert exchange(client, b"b")
    assert time.monotonic() - began < 0.15


@case
def loss_is_silent_and_for_good_on_its_connection_only(proxy, echo):
    client = proxy.client()
    assert exchange(client, b"heard")
    proxy.tell("loss up 1")
    client.sendall(b"lost")
    assert silent(client)
    proxy.tell("clear")
    client.sendall(b"lost too")
    assert silent(client)
    client.shutdown(socket.SHUT_WR)
    assert not echo.ended.acquire(timeout=QUIET)
    assert echo.received == [b"heard"]
    assert exchange(proxy.client(), b"another")


@case
def a_lost_reply_was_carried_out(proxy, echo):
    client = proxy.client()
    proxy.tell("loss down 1")
    client.sendall(b"done")
    assert silent(client)
    assert echo.received == [b"done"]


@case
def drop_resets_all_connections_and_new_ones_work(proxy, echo):
    clients = [proxy.client() for _ in range(3)]
    assert all(exchange(client, b"x") for client in clients)
    proxy.tell("drop")
    assert all(is_reset(client) for client in clients)
    assert all(echo.ended.acquire(timeout=PATIENCE) for _ in clients)
    assert exchange(proxy.client(), b"y")


@case
def broken_connection_is_reset_and_its_piece_not_passed_on(proxy, echo):
    client = proxy.client()
    assert exchange(client, b"a")
    proxy.tell("break up 1")
    client.sendall(b"b")
    assert is_reset(client)
    assert echo.received == [b"a"]


@case
def cut_ends_one_reply_after_so_many_bytes(proxy, echo):
    client, other = proxy.client(), proxy.client()
    proxy.tell("cut 3 SET")
    assert exchange(other, b"GET key")
    client.sendall(b"SET key")
    assert get(client, 7) == b"SET"
    assert echo.ended.acquire(timeout=PATIENCE)
    assert b"SET key" in echo.received
    assert exchange(other, b"SET key")  # once
    assert proxy.ask("stats").split()[4] == "1"
    proxy.tell("cut 0")
    other.sendall(b"x")
    assert other.recv(1) == b""


@case
def same_seed_makes_the_same_decisions(_proxy, echo):
    def pieces_until_broken(seed, connections):
        proxy = Proxy(echo, seed)
        proxy.tell("break up 0.1")
        counts = []
        for _ in range(connections):
            client, count = proxy.client(), 0
            try:
                while exchange(client, b"x"):
                    count += 1
            except ConnectionResetError:
                pass
            counts.append(count)
        proxy.end()
        return counts

    first = pieces_until_broken(7, 12)
    assert pieces_until_broken(7, 12) == first
    assert pieces_until_broken(8, 12) != first
    assert len(set(first)) > 2


def main():
    failed = 0
    for number, function in enumerate(cases, 1):
        echo = Echo()
        proxy = Proxy(echo)
        trouble = None
        try:
            function(proxy, echo)
        except (AssertionError, OSError) as wrong:
            trouble = f"{type(wrong).__name__}: {wrong}, line {wrong.__traceback__.tb_next.tb_lineno}"
        if not proxy.process.stdin.closed:
            proxy.end()
        echo.listener.close()
        failed += trouble is not None
        print(f"{'not ' if trouble else ''}ok {number} - {function.__name__.replace('_', ' ')}")
        if trouble:
            print(f"# {trouble}")
        sys.stdout.flush()
    print(f"1..{len(cases)}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
