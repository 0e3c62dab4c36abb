#!/usr/bin/python3
"""record.py [--check SVG] OUTPUT: records the session of README's picture, and draws it.

Two shells, each on a terminal of its own, type the commands of SESSION, each at a mount of its own, as on two hosts: leasefs
must be in PATH, and "db" a Redis server that is safe enough for no warnings.  What they print is drawn into OUTPUT as SVG, a row for each line in the order in which the lines came, and
appears at the times at which it came; a renderer without animation shows all of it.  With --check, the texts of the picture
SVG must be those that were recorded now.  It promises to unmount what was mounted, whatever happens."""

import argparse
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from xml.sax.saxutils import escape, unescape

LIMIT = 20  # seconds to wait for anything
READING = 1.1  # seconds that the picture waits before each command
PROMPT = b"$ "
PANES = ("host A", "host B")

# Pane, command, and what goes before the next command: its prompt, that of both panes, or a waiter in the queue of the lock.
SESSION = (
    (0, "leasefs -o ttl=3 redis://db locks && cd locks", "prompt"),
    (1, "leasefs -o ttl=3 redis://db locks && cd locks", "prompt"),
    (0, "touch build && echo 'it is mine'", "prompt"),
    (1, "touch build", "prompt"),
    (1, "rm -f build", "prompt"),
    (1, "flock build echo 'my turn'", "waiter"),
    (0, "rm build", "prompts"),
    (0, "sh -c 'touch build; kill -9 $$'    # a crash", "prompt"),
    (1, "ls", "prompt"),
    (1, "flock build echo 'free after the TTL'", "prompt"),
)


class Shell:
    """bash on a terminal; lines() are those that it has shown since the last call."""

    def __init__(self, directory):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TERM": "dumb", "PS1": PROMPT.decode(), "HISTFILE": ""}
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], environment)
        os.set_inheritable(self.fd, False)  # or the next shell would keep this terminal
        self.seen = b""

    def end(self):
        """Hangs up, and waits for it."""
        os.close(self.fd)
        os.waitpid(self.pid, 0)

    def read(self):
        if select.select([self.fd], [], [], 0.01)[0]:
            self.seen += os.read(self.fd, 65536)

    def at_prompt(self):
        return self.seen.endswith(PROMPT) and self.seen.count(b"\n") == self.seen.count(b"\r\n")

    def lines(self):
        """Whole lines, without the prompts."""
        text, newline, rest = self.seen.rpartition(b"\n")
        self.seen = rest
        return [line.rstrip("\r") for line in (text + newline).decode().split("\n")[:-1]]


def record(shells, directory):
    """Returns (seconds, pane, text) for each line."""
    lines = []
    begin = time.monotonic()
    paused = 0.0

    def collect(panes=(0, 1)):
        now = time.monotonic() - begin + paused
        for pane in panes:
            shells[pane].read()
            lines.extend((now, pane, line) for line in shells[pane].lines())

    def until(what, condition, panes=(0, 1)):
        limit = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > limit:
                sys.exit(f"record: {what} was awaited in vain, after {lines}")
            collect(panes)

    def waiters():
        try:
            return int(os.getxattr(os.path.join(directory, "0/locks/build"), "user.lease.waiters"))
        except OSError:
            return 0

    for pane, command, then in SESSION:
        until(f"the prompt before {command!r}", shells[pane].at_prompt)
        collect()
        paused += READING
        os.write(shells[pane].fd, command.encode() + b"\n")
        echo = (pane, PROMPT.decode() + command)
        until(f"the echo of {command!r}", lambda: echo in [line[1:] for line in lines], [pane])  # before what it causes elsewhere
        if then == "prompt":
            until(f"the end of {command!r}", shells[pane].at_prompt)
        elif then == "prompts":
            until(f"the end of {command!r} and of the other's", lambda: all(shell.at_prompt() for shell in shells))
        else:
            until("a waiter", lambda: waiters() == 1)
    collect()
    return lines


WIDTH, ROW, TOP, LEFT, GAP = 7.5, 20, 58, 16, 14
COLUMNS = 53
PANE = COLUMNS * WIDTH + 2 * LEFT
STYLE = """
text { font-family: Menlo, Consolas, 'DejaVu Sans Mono', monospace; font-size: 12.5px; white-space: pre; fill: #c9d1d9 }
.note { fill: #8b949e; font-style: italic }
.command { fill: #ffffff; font-weight: bold }
.prompt { fill: #3fb950 }
.refused { fill: #ff7b72 }
.waits { stroke: #d29922; stroke-width: 2; stroke-dasharray: 2 4 }
@media (prefers-reduced-motion: no-preference) {
  .line { animation: appear 0.15s both }
  @keyframes appear { from { opacity: 0 } to { opacity: 1 } }
}"""


def rows(lines):
    """Returns (row, seconds, pane, text, asked) for each line; asked is row and time of the command that it had to wait for, or
    None.  A wait has at least a row of its own."""
    placed, last, row = [], {}, -1
    for seconds, pane, text in lines:
        row += 1
        asked = None
        if text.startswith(PROMPT.decode()):
            last[pane] = (row, seconds)
        elif row - last[pane][0] > 1 and placed[-1][2] != pane:
            asked = last[pane]
        elif seconds - last[pane][1] > 1:
            asked = last[pane]
            row += 1
        placed.append((row, seconds, pane, text, asked))
    return placed


def draw(lines):
    placed = rows(lines)
    height = TOP + placed[-1][0] * ROW + 20
    width = 2 * PANE + GAP
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}" height="{height}">',
           "<title>Two hosts and one lock, as recorded by tests/e2e/record.py</title>", f"<style>{STYLE}</style>"]
    for pane, title in enumerate(PANES):
        x = pane * (PANE + GAP)
        out += [f'<rect x="{x + 0.5:g}" y="0.5" width="{PANE - 1:g}" height="{height - 1}" rx="8" fill="#0d1117" stroke="#484f58"/>',
                f'<path d="M{x + 0.5:g} 32h{PANE - 1:g}" stroke="#30363d"/>']
        out += [f'<circle cx="{x + 20 + 18 * i:g}" cy="16.5" r="5" fill="{colour}"/>'
                for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))]
        out.append(f'<text class="note" x="{x + PANE / 2:g}" y="21" text-anchor="middle">{title}</text>')
    for row, seconds, pane, text, asked in placed:
        x, y = pane * (PANE + GAP) + LEFT, TOP + row * ROW
        if text.startswith(PROMPT.decode()):
            body = f'<tspan class="prompt">$</tspan> <tspan class="command">{escape(text[2:])}</tspan>'
        elif re.match(r"(touch|rm): |Killed", text):
            body = f'<tspan class="refused">{escape(text)}</tspan>'
        else:
            body = escape(text)
        if asked:
            delay = f'style="animation-delay:{asked[1] + 0.3:.2f}s"'
            waited = f" {seconds - asked[1]:.1f} s" if row - asked[0] == 2 and seconds - asked[1] > READING * 1.5 else ""
            out += [f'<path class="line waits" {delay} d="M{x + 4:g} {TOP + asked[0] * ROW + 5:g}V{y - 13:g}"/>',
                    f'<text class="note line" {delay} x="{x + 16:g}" y="{y - ROW:g}">waits{waited}</text>']
        out.append(f'<text class="line" xml:space="preserve" data-pane="{pane}" style="animation-delay:{seconds:.2f}s" '
                   f'x="{x:g}" y="{y:g}">{body}</text>')
    return "\n".join(out + ["</svg>", ""])


def texts(svg):
    """What a picture shows: (pane, text) of each line."""
    found = re.findall(r'<text class="line"[^>]* data-pane="(\d)"[^>]*>(.*?)</text>', svg)
    return [(int(pane), unescape(re.sub(r"<[^>]*>", "", text))) for pane, text in found]


def main():
    parser = argparse.ArgumentParser(description="The picture of README.")
    parser.add_argument("--check", metavar="SVG")
    parser.add_argument("output")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        mounts = [os.path.join(directory, str(pane), "locks") for pane in range(len(PANES))]
        for mount in mounts:
            os.makedirs(mount)
        shells = [Shell(os.path.dirname(mount)) for mount in mounts]
        try:
            lines = record(shells, directory)
        finally:
            for shell in shells:
                shell.end()
            for mount in filter(os.path.ismount, mounts):
                subprocess.run(["umount", mount], check=True)
    with open(arguments.output, "w", encoding="utf-8") as output:
        output.write(draw(lines))
    now = [(pane, text) for _, pane, text in lines]
    if arguments.check:
        with open(arguments.check, encoding="utf-8") as picture:
            shown = texts(picture.read())
        if shown != now:
            sys.exit(f"{arguments.check} shows {shown}, and this is what happens: {now}")


if __name__ == "__main__":
    main()
