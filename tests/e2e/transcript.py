#!/usr/bin/python3
"""transcript.py DOCUMENT: runs the ```console blocks of a Markdown document, and compares what they print.

Each block has a shell of its own, in the current directory.  A line "$ COMMAND" is typed when what stands before it has been
printed, comments and "&" included; lines "> MORE" below it are the rest of a command of several lines; all else is what must
be printed, in this order, up to the next command.  Times, process ids, other numbers of four digits or more and seconds
with decimals may differ.  For each block a line "pass" or "fail", a tab and its first command; after a failure the expected
and the actual text, each line after a tab."""

import os
import re
import select
import subprocess
import sys
import time

LIMIT = 20  # seconds for what a command prints, or its jobs in the background
DONE = "\x1e"


def blocks(document):
    """A list of (command, expected lines) for each block."""
    for indent, text in re.findall(r"(?ms)^( *)```console\n(.*?)^ *```", document):
        steps = []
        for line in text.splitlines():
            line = line.removeprefix(indent)
            if line.startswith("$ "):
                steps.append((line[2:], []))
            elif line[:1] == ">" and not steps[-1][1]:
                steps[-1] = (f"{steps[-1][0]}\n{line[2:]}", [])
            else:
                steps[-1][1].append(line)
        yield steps


def same(text):
    for pattern, mark in ((r"[ \t]+", " "), (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "T"), (r"\b(pid|vm)([ :])\d+", r"\1\2N"), (r"\d+\.\d{3}\b", "S"), (r"\bfor \d+\.\ds", "for S"),
                          (r"\d{4,}", "N")):
        text = re.sub(pattern, mark, text)
    return text


class Shell:
    def __init__(self):
        self.process = subprocess.Popen(["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env={**os.environ, "LC_ALL": "C"})
        self.seen = ""

    def until(self, condition):
        limit = time.monotonic() + LIMIT
        while not condition(self.seen):
            ready = select.select([self.process.stdout], [], [], max(0, limit - time.monotonic()))[0]
            more = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not more:
                return
            self.seen += more.decode()

    def run(self, command, expected):
        """Returns what was printed until the command had ended and the expected lines were there, or the time was up."""
        self.process.stdin.write(f"{command}\nprintf '{DONE}'\n".encode())
        self.process.stdin.flush()
        wanted = same("\n".join(expected + [""]) if expected else "")
        self.until(lambda seen: DONE in seen and same(seen.replace(DONE, "")) == wanted)
        text, self.seen = self.seen.replace(DONE, ""), ""
        return text.splitlines()

    def end(self):
        """Returns what else was printed, by jobs in the background too."""
        self.process.stdin.close()
        self.until(lambda seen: False)
        return self.seen.splitlines()


def main():
    failed = 0
    with open(sys.argv[1], encoding="utf-8") as document:
        found = list(blocks(document.read()))
    for steps in found:
        shell = Shell()
        wanted, got = [], []
        for command, expected in steps:
            wanted += ["$ " + command, *expected]
            got += ["$ " + command, *shell.run(command, expected)]
            if [same(line) for line in wanted] != [same(line) for line in got]:
                break
        got += shell.end()
        good = [same(line) for line in wanted] == [same(line) for line in got]
        print(f"{'pass' if good else 'fail'}\t{steps[0][0].splitlines()[0]}", flush=True)
        if not good:
            failed += 1
            print("".join(f"\t{what}: {line}\n" for what, text in (("expected", wanted), ("got", got)) for line in text), end="")
    sys.exit(failed > 0 or not found)


if __name__ == "__main__":
    main()
