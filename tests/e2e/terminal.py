#!/usr/bin/python3
"""terminal: runs a command on a terminal of its own, as a session leader, and talks to it.

    terminal.py COMMAND... <SCRIPT

Each line of the script is `send TEXT` (with Python's escapes: \\n, \\x03 is Ctrl-C) or
`await REGEX`: until the output from the last match on matches it.  Ends with status 0
when the script does; else tells what was awaited and what came, with status 1.  The
command is hung up on, as by a terminal that is closed.
"""
import os
import pty
import re
import select
import signal
import sys
import time

LIMIT = 20  # seconds to wait for one match


def main():
    pid, fd = pty.fork()
    if pid == 0:
        for number in (signal.SIGINT, signal.SIGQUIT):  # which a shell in the background ignores
            signal.signal(number, signal.SIG_DFL)
        os.execvp(sys.argv[1], sys.argv[1:])
    seen = ""
    for line in sys.stdin:
        word, _, text = line.rstrip("\n").partition(" ")
        if word == "send":
            os.write(fd, text.encode().decode("unicode_escape").encode())
            continue
        limit = time.monotonic() + LIMIT
        while not (match := re.search(text, seen)):
            left = limit - time.monotonic()
            try:
                ready = left > 0 and select.select([fd], [], [], left)[0]
                more = os.read(fd, 65536) if ready else b""
            except OSError:
                more = b""
            if not more:
                print(f"awaited {text!r}, got {seen!r}")
                sys.exit(1)
            seen += more.decode(errors="replace").replace("\r", "")
        seen = seen[match.end():]


if __name__ == "__main__":
    main()
