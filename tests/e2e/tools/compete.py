#!/usr/bin/python3
"""compete.py [--only WORD]... MOUNT_A MOUNT_B SCRATCH: two contenders of each tool of the matrix against one another.

The first, on MOUNT_A, gets the lock and holds it; the second, on MOUNT_B, is refused or waits, as the tool does; the first
ends; the second (or, where it was refused, another one) gets the lock, and nothing is left when it ends.  A tool that is
refused is asked again when the lock is older than a second, since a lease is refused in another way after that.  Then
each tool competes with the next one of the matrix for one name.

Both mounts show one store, and may be the same.  They may also be a directory that is no leasefs, to see what a tool does
there; what only leasefs can tell is not looked at then.

Prints a line for each trial: outcome, pair or tool, the matrix's fields, what was seen; separated by tabs.
Outcome is pass, fail, skip (a tool is missing), absent (a tool is missing that is optional) or noted (one that cannot
work, and that cannot be tried here).  Of a tool that failed, the end of the output of its contenders follows, each line
beginning with a tab."""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

TOOLS = pathlib.Path(__file__).resolve().parent
DEADLINE = 30  # seconds for what must happen
WATCH = 0.4  # seconds for which what must not happen is watched, where nothing tells that the moment has come
SETTLED = 1.1  # seconds after which a lease is refused otherwise than before
WORKERS = 12
FIELDS = ("Tool", "Package", "Calls", "Second", "Optional", "Note", "Cannot")


class Wrong(Exception):
    """What a tool did and must not do."""


def read_matrix():
    tools, tool, field = [], {}, None
    for line in (TOOLS / "matrix").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        if not line.strip():
            if tool:
                tools.append(tool)
            tool = {}
        elif line[0] == " ":
            tool[field] += "\n" + line.strip()
        else:
            field, value = line.split(":", 1)
            tool[field] = value.strip()
    return tools + ([tool] if tool else [])


def missing(tool):
    """What is not installed of a tool, or None."""
    needs = tool.get("Needs") or next(
        word for word in tool["Contender"].split() if word not in ("exec", "cd") and "=" not in word)
    if needs.startswith("!"):
        present = subprocess.run(["sh", "-c", needs[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, check=False).returncode == 0
        needs = needs[1:].strip()
    else:
        present = shutil.which(needs, path=f"{TOOLS}:{os.environ['PATH']}") is not None or (
            needs.startswith("/") and os.path.exists(needs))
    return None if present else f"{needs} is missing (package {tool['Package']})"


def eventually(condition, what, seconds=DEADLINE):
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise Wrong(f"not within {seconds} s: {what}")
        time.sleep(0.005)


class Contender:
    """A tool that runs, in a session of its own."""

    def __init__(self, name, tool, lock, scratch):
        self.name = name
        self.lock = lock
        self.file = None if tool.get("File") == "-" else tool.get("File", "$L").replace("$L", lock)
        self.by_file = tool.get("Held") == "exists"
        self.said = b""
        self.output = open(scratch / "output", "ab", buffering=0)
        self.output.write(f"[{name}]\n".encode())
        self.process = subprocess.Popen(
            ["sh", "-c", tool["Contender"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.output,
            start_new_session=True, cwd=scratch, env=environment(lock, scratch))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.said += line
            self.output.write(line)

    def holds(self):
        return self.by_file and os.path.lexists(self.file) or b"held\n" in self.said

    def ended(self):
        if self.process.poll() is None:
            return False
        self.reader.join(1)
        return True

    def must_hold(self):
        eventually(lambda: self.holds() or self.ended(), f"the {self.name} gets the lock")
        if not self.holds():
            raise Wrong(f"the {self.name} did not get the lock: {self.outcome()}")

    def must_be_refused(self):
        eventually(lambda: self.ended() or b"held\n" in self.said, f"the {self.name} is refused")
        if b"held\n" in self.said:
            raise Wrong(f"the {self.name} got the lock, and should have been refused")
        if self.process.returncode <= 0 or self.process.returncode in (126, 127):
            raise Wrong(f"the {self.name} was not refused: {self.outcome()}")

    def must_wait(self, watch):
        """It has neither got the lock nor given up when the store knows that it waits, or after the watch."""
        limit = time.monotonic() + watch
        while not (watch == DEADLINE and waiters(self.lock)):
            if self.ended() or self.holds():
                raise Wrong(f"the {self.name} did not wait: {self.outcome()}")
            if time.monotonic() > limit:
                if watch == DEADLINE:
                    raise Wrong(f"user.lease.waiters does not count the {self.name}")
                return
            time.sleep(0.005)

    def outcome(self):
        held = "had the lock, " if self.holds() and not self.by_file else ""
        return f"{held}status {self.process.returncode}" if self.ended() else f"{held}runs"

    def must_end(self, lingers=False):
        """Its input ends; it gives the lock back, and ends successfully, unless it is one that lives on."""
        if not self.holds():
            raise Wrong(f"the {self.name} does not hold the lock any more")
        if self.ended():
            raise Wrong(f"the {self.name} ended by itself: {self.outcome()}")
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        if not lingers:
            eventually(self.ended, f"the {self.name} ends")
            if self.process.returncode != 0:
                raise Wrong(f"the {self.name} failed when it gave the lock back: {self.outcome()}")

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.output.close()


def environment(lock, scratch):
    # A language's module that is installed elsewhere is not the one that is put to the test.
    unset = ("PYTHONPATH", "PERL5LIB", "RUBYLIB", "NODE_PATH", "CLASSPATH")
    return {name: value for name, value in os.environ.items() if name not in unset} | {
        "L": lock, "T": str(scratch), "TOOLS": str(TOOLS), "HOME": str(scratch), "TMPDIR": str(scratch),
        "PATH": f"{TOOLS}:{os.environ['PATH']}"}


def waiters(lock):
    try:
        return int(os.getxattr(lock, "user.lease.waiters")) > 0
    except OSError:
        return False


def is_leasefs(directory):
    try:
        os.getxattr(directory, "user.lease.waiters")
        return True
    except OSError:
        return False


class Trial:
    """A lock that two contenders compete for."""

    def __init__(self, arguments, number, name, tools):
        self.name = name
        self.number = number
        self.tools = tools
        self.mounts = {"A": arguments.mount_a, "B": arguments.mount_b}
        self.scratch = pathlib.Path(arguments.scratch) / f"{number}"
        self.leasefs = arguments.leasefs
        self.contenders = []

    def start(self, name, mount, tool):
        contender = Contender(name, tool, f"{self.mounts[mount]}/lock{self.number}", self.scratch)
        self.contenders.append(contender)
        return contender

    def must_be_shown(self, contender):
        """Its lock is a file, on both mounts: the promise that is leasefs's own."""
        if contender.file is not None and self.leasefs:
            for mount in self.mounts.values():
                file = mount + contender.file[contender.file.index("/lock", len(os.path.dirname(contender.lock))):]
                eventually(lambda file=file: os.path.lexists(file), f"{file} is there")

    def must_be_gone(self, contender):
        if contender.file is not None and self.leasefs:
            eventually(lambda: not os.path.lexists(contender.file), f"{contender.file} is gone")

    def token(self, contender):
        if not self.leasefs or contender.file is None:
            return None
        try:
            return os.getxattr(contender.file, "user.lease.token", follow_symlinks=False)
        except OSError:
            return None  # a directory, or a symbolic link, which has no user attributes on Linux

    def prepare(self):
        self.scratch.mkdir()
        for tool in self.tools:
            if "Prepare" in tool:
                lock = f"{self.mounts['A']}/lock{self.number}"
                with open(self.scratch / "output", "ab") as output:
                    subprocess.run(["sh", "-c", tool["Prepare"]], stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=output, cwd=self.scratch, env=environment(lock, self.scratch), check=True)

    def run(self):
        """Returns the outcome and what was seen."""
        if "Contender" not in self.tools[0]:
            return "noted", ""
        for tool in self.tools:
            lack = missing(tool)
            if lack:
                return ("absent" if any(tool.get("Optional") for tool in self.tools) else "skip"), lack
        try:
            self.prepare()
            return "pass", self.compete()
        except (Wrong, subprocess.CalledProcessError) as wrong:
            return "fail", str(wrong)
        finally:
            for contender in self.contenders:
                contender.kill()

    def output(self):
        try:
            return (self.scratch / "output").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def compete(self):
        tool = self.tools[0]
        if "Cannot" in tool:
            return self.cannot()
        first = self.start("first", "A", tool)
        first.must_hold()
        since = time.monotonic()
        self.must_be_shown(first)
        return getattr(self, tool["Second"])(tool, first, since)

    def cannot(self):
        self.start("first", "A", self.tools[0]).must_be_refused()
        return "fails with an error"

    def refused(self, tool, first, since):
        token = self.token(first)
        self.start("second", "B", tool).must_be_refused()
        time.sleep(max(0, since + SETTLED - time.monotonic()))
        self.start("second, later", "B", tool).must_be_refused()
        if self.token(first) != token:
            raise Wrong("the first one's lock is another one now")
        self.must_be_shown(first)
        first.must_end(tool.get("Lingers"))
        self.gets_it(tool, self.start("third", "B", tool))
        return "refused, then gets it"

    def waits(self, tool, first, _):
        second = self.start("second", "B", tool)
        second.must_wait(DEADLINE if self.leasefs and first.file else WATCH)
        first.must_end(tool.get("Lingers"))
        self.gets_it(tool, second)
        return "waits, then gets it"

    def polls(self, tool, first, _):
        second = self.start("second", "B", tool)
        second.must_wait(WATCH)
        first.must_end(tool.get("Lingers"))
        self.gets_it(tool, second)
        return "polls, then gets it"

    def shares(self, tool, first, _):
        stranger = {**tool, "Contender": tool["Third"]}
        second = self.start("second", "B", tool)
        second.must_hold()
        self.start("third, exclusive,", "B", stranger).must_be_refused()
        first.must_end()
        self.start("third, exclusive, later", "A", stranger).must_be_refused()
        second.must_end()
        self.must_be_gone(second)
        last = self.start("third, exclusive, at last", "A", stranger)
        last.process.stdin.close()
        eventually(last.ended, "the third, exclusive, gets it at last")
        if last.process.returncode != 0:
            raise Wrong(f"the third, exclusive, did not get it at last: {last.outcome()}")
        return "shares, refuses others"

    def gets_it(self, tool, second):
        second.must_hold()
        self.must_be_shown(second)
        second.must_end(tool.get("Lingers"))
        self.must_be_gone(second)


class Mixed(Trial):
    """Two tools for one name."""

    def compete(self):
        one, other = self.tools
        first = self.start("first", "A", one)
        first.must_hold()
        second = self.start("second", "B", other)
        limit = time.monotonic() + (WATCH if other["Second"] == "polls" else DEADLINE)
        while not second.ended() and time.monotonic() < limit:
            if second.holds():
                raise Wrong("the second got the lock while it was held")
            if other["Second"] == "waits" and waiters(second.lock):
                break
            time.sleep(0.005)
        waiting = not second.ended()
        if not waiting:
            second.must_be_refused()
        elif other["Second"] == "refused" or other["Second"] == "waits" and not waiters(second.lock):
            raise Wrong("the second neither waits nor was refused")
        first.must_end()
        if waiting and other["Second"] == "polls":
            # one that is slow to start may open the lock after the watch and within the first second of a lease
            eventually(lambda: second.holds() or second.ended(), "the second gets the lock or was refused")
            waiting = second.holds()
            if not waiting:
                second.must_be_refused()
        self.gets_it(other, second if waiting else self.start("third", "B", other))
        return "waits, then gets it" if waiting else "refused, then gets it"


def trials(arguments):
    tools = read_matrix()
    words = arguments.only or [""]
    tools = [tool for tool in tools if any(word in f"{tool['Package']}: {tool['Tool']}" for word in words)]
    number = 0
    for tool in tools:
        yield Trial(arguments, number, tool["Tool"], [tool])
        number += 1
    if not arguments.leasefs:
        return  # elsewhere, tools that lock in different ways do not exclude each other
    plain = [tool for tool in tools if not tool.keys() & {"File", "Held", "Cannot", "Lingers", "Optional"}
             and tool["Second"] != "shares" and "mkdir" not in tool["Calls"]]
    for one, other in zip(plain, plain[1:] + plain[:1]):
        yield Mixed(arguments, number, f"{one['Tool']} ({one['Package']}), then {other['Tool']} ({other['Package']})",
                    [one, other])
        number += 1


def report(trial, result):
    outcome, seen = result
    tool = trial.tools[0] if len(trial.tools) == 1 else {"Tool": trial.name}
    fields = [tool.get(field, "").replace("\n", " ") for field in FIELDS]
    print(outcome, "pair" if len(trial.tools) > 1 else "tool", *fields, " ".join(seen.split()), sep="\t")
    if outcome == "fail":
        for line in trial.output().splitlines()[-20:]:
            print("\t" + line)
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description="Two contenders of each tool against one another.")
    parser.add_argument("--only", action="append", metavar="WORD", help="tools whose name or package contains this")
    parser.add_argument("mount_a")
    parser.add_argument("mount_b")
    parser.add_argument("scratch")
    arguments = parser.parse_args()
    arguments.leasefs = is_leasefs(arguments.mount_a)
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        running = [(trial, pool.submit(trial.run)) for trial in trials(arguments)]
        for trial, future in running:
            report(trial, future.result())


if __name__ == "__main__":
    main()
