#!/usr/bin/env python3
"""draw_pictures: the pictures of README.md and docs/.

usage: draw_pictures.py [--check] [NAME...]

Run in the source tree.  Writes docs/NAME.svg, or with --check exits with 1 if one of them differs.  The numbers of
"speed" are those of tests/bench/RESULTS.md.  Patterns and words carry every meaning that a colour has.
"""
import math
import pathlib
import re
import sys
from xml.sax.saxutils import escape

INK, PALE, GREY, LINE = "#1f2328", "#eef2f6", "#57606a", "#8c959f"


class Picture:
    """Shapes on a white ground; coordinates in pixels."""

    def __init__(self, width, height, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="Helvetica, Arial, sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            f'<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker>'
            f'<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            f'<rect width="6" height="6" fill="#fff"/><path d="M0 0V6" stroke="{GREY}" stroke-width="3"/></pattern></defs>',
            f'<rect width="{width}" height="{height}" fill="#fff"/>']

    def text(self, x, y, text, anchor="start", fill=INK, weight="normal", size=13):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}" '
                          f'font-size="{size}">{escape(text)}</text>')

    def lines(self, x, y, lines, anchor="middle", step=17, **style):
        for number, line in enumerate(lines):
            self.text(x, y + number * step, line, anchor, **style)

    def box(self, x, y, width, height, lines=(), fill=PALE, dash="", radius=6):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" fill="{fill}" '
                          f'stroke="{LINE}"{dashes}/>')
        self.lines(x + width / 2, y + height / 2 + 5 - 8.5 * (len(lines) - 1), lines)

    def diamond(self, x, y, width, height, lines):
        self.parts.append(f'<path d="M{x:g} {y - height / 2:g}L{x + width / 2:g} {y:g}L{x:g} {y + height / 2:g}L'
                          f'{x - width / 2:g} {y:g}z" fill="#fff" stroke="{INK}"/>')
        self.lines(x, y + 5 - 8.5 * (len(lines) - 1), lines)

    def path(self, path, end=True, dash="", width=1.5, colour=GREY):
        marker = ' marker-end="url(#end)"' if end else ""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}{marker}/>')

    def __str__(self):
        return "\n".join(self.parts + ["</svg>", ""])


def results():
    """Returns {(what, where, beside): (microseconds of leasefs, of that)} of the rows in microseconds."""
    found = {}
    for line in pathlib.Path("tests/bench/RESULTS.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7:
            times = [re.fullmatch(r"([\d.]+)(?: \(\d+\))? us", cells[column]) for column in (2, 4)]
            if all(times):
                found[cells[0], cells[1], cells[3]] = tuple(float(time[1]) for time in times)
    return found


# Text, what leasefs is beside, and the row of RESULTS.md.
BARS = (
    ("Take and give back a lock, local store", None, ("cycle, journal on tmpfs", "two", "do-nothing FUSE")),
    ("flock and unlock, local store", None, ("flock, unlock", "two", "do-nothing FUSE")),
    ("Take and give back a lock, one Redis server", "redis-py", ("Redis: cycle", "any", "redis-py")),
    ("Run a command under a lock, Redis", "etcdctl lock",
     ("Redis: a command under a lock, flock(1)", "any", "etcdctl lock")),
    ("Pass a lock to the next of 10 waiters, Redis", "redis-py",
     ("Redis: hand-over across two mounts, 10 wait", "any", "redis-py")),
)


def spoken(microseconds):
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    return f"{microseconds / 1000:.1f} ms" if microseconds < 10000 else f"{microseconds / 1000:.0f} ms"


def draw_speed():
    """Bars from 10 microseconds to 100 milliseconds on a logarithmic scale."""
    times = results()
    left, width, top, row = 372, 380, 62, 25
    height = top + sum(row * (1 + bool(name)) + 16 for _, name, _ in BARS) + 30
    picture = Picture(left + width + 90, height, "How long leasefs takes, beside other programs: shorter is faster")
    bottom = height - 34

    def at(microseconds):
        return left + width * (math.log10(microseconds) - 1) / 4

    picture.box(16, 14, 28, 14, fill=INK, radius=0)
    picture.text(52, 26, "leasefs")
    picture.box(126, 14, 28, 14, fill="url(#hatch)", radius=0)
    picture.text(162, 26, "the program named beside the bar")
    for power, label in enumerate(("10 µs", "100 µs", "1 ms", "10 ms", "100 ms")):
        x = at(10 ** (power + 1))
        picture.path(f"M{x:g} {top - 14}V{bottom}", end=False, width=1, colour="#d0d7de")
        picture.text(x, top - 20, label, "middle", GREY, size=12)
    y = top
    for text, name, key in BARS:
        ours, theirs = times[key]
        picture.text(16, y + 12, text)
        for who, time, fill in (("leasefs", ours, INK), (name, theirs, "url(#hatch)")):
            if who is None:
                continue
            if who != "leasefs":
                picture.text(left - 12, y + 12, who, "end", GREY)
            picture.box(left, y, at(time) - left, 16, fill=fill, radius=0)
            picture.text(at(time) + 8, y + 13, spoken(time))
            y += row
        y += 16
    picture.text(16, height - 12, "Medians, logarithmic scale: each line to the right is ten times as long.", fill=GREY, size=12)
    return picture


def draw_crash():
    """A lease of 30 seconds: its renewals, a crash of its owner, and the next holder."""
    picture = Picture(840, 300, "A crash: renewals stop, the lock stays refused until its TTL is over, the next waiter gets it")
    left, second = 130, 10.5

    def at(seconds):
        return left + seconds * second

    for seconds in range(0, 61, 10):
        picture.path(f"M{at(seconds):g} 46V250", end=False, width=1, colour="#d0d7de")
        picture.text(at(seconds), 270, f"{seconds} s", "middle", GREY)
    picture.lines(16, 78, ["host A", "touch L"], "start")
    picture.box(at(0), 58, at(24) - at(0), 36, ["holds L"], fill="#cfe8d5")
    for seconds in (10, 20):
        picture.path(f"M{at(seconds):g} 40V56")
        picture.text(at(seconds), 34, "renews", "middle", GREY)
    picture.text(at(24), 16, "crash", "middle", INK, "bold")
    picture.path(f"M{at(24):g} 22V56", width=2, colour=INK)
    picture.lines(16, 138, ["the store"], "start")
    picture.box(at(0), 116, at(50) - at(0), 36, ["L is held: refused to everybody else"], fill="#fff")
    picture.path(f"M{at(20):g} 166H{at(50):g}", dash="4 4")
    picture.text(at(35), 184, "one TTL, 30 s, after the last renewal", "middle", GREY)
    picture.lines(16, 218, ["host B", "flock L"], "start")
    picture.box(at(5), 200, at(50) - at(5), 36, ["waits"], fill="#fff", dash="4 4")
    picture.box(at(50), 200, at(60) - at(50), 36, ["holds L"], fill="#cfe8d5")
    picture.text(16, 292, "With flock in place of touch on host A the lock is free at the crash of the process. If the whole host "
                 "dies, it is free after one TTL, too.", fill=GREY, size=12)
    return picture


STORE_QUESTIONS = (
    (["Do all who lock", "run on one host?"], "yes", ["local"]),
    (["Would two holders", "be a disaster,", "whatever fails?"], "yes", ["zookeeper://"]),
    (["Do all hosts share", "a PostgreSQL database", "and no Redis?"], "yes", ["postgresql://"]),
    (["Does your Redis", "fail over by itself", "(Sentinel, Cluster)?"], "yes", ["redis+sentinel://", "redis+cluster://", "with wait=1"]),
    (["Do services lock", "on several Redis", "servers (Redlock)?"], "yes", ["redlock://"]),
)


def draw_stores():
    """The flowchart of docs/stores.md."""
    step = 128
    picture = Picture(560, 60 + step * len(STORE_QUESTIONS) + 70, "Which store: answer the questions from the top")
    x = 190
    picture.box(x - 60, 12, 120, 34, ["Which store?"])
    y = 46
    for number, (question, answer, store) in enumerate(STORE_QUESTIONS):
        middle = y + 74
        picture.path(f"M{x} {y}V{middle - 56}")
        picture.text(x + 8, y + 13, "no" if number else "", fill=GREY)
        picture.diamond(x, middle, 250, 106, question)
        picture.path(f"M{x + 125} {middle}H{380}")
        picture.text(x + 140, middle - 6, answer, fill=GREY)
        picture.box(382, middle - 14 - 10 * len(store), 162, 28 + 20 * (len(store) - 1) + 20, store)
        y = middle + 54
    picture.path(f"M{x} {y}V{y + 26}")
    picture.text(x + 8, y + 16, "no", fill=GREY)
    picture.box(x - 90, y + 28, 180, 40, ["redis://"])
    return picture


def draw_architecture():
    """Two hosts and a store."""
    picture = Picture(800, 400, "Script, kernel and daemon on each host; one store for all hosts")
    for number, host in enumerate(("host A", "host B")):
        x = 20 + number * 400
        picture.box(x, 20, 360, 230, fill="#fff", dash="5 4")
        picture.text(x + 14, 42, host, weight="bold")
        picture.box(x + 75, 34, 210, 44, ["a script, cron, Python:", "touch, flock, open"])
        picture.path(f"M{x + 180} 78V108")
        picture.text(x + 190, 98, "system call", fill=GREY, size=12)
        picture.box(x + 75, 110, 210, 40, ["Linux kernel: FUSE"])
        picture.path(f"M{x + 180} 150V182")
        picture.text(x + 190, 171, "/dev/fuse", fill=GREY, size=12)
        picture.box(x + 75, 184, 210, 50, ["the daemon, leasefs:", "owners, renewals, deadlines"])
        picture.path(f"M{x + 180} 234V300")
        picture.text(x + 190, 276, "one connection", fill=GREY, size=12)
    picture.box(120, 302, 560, 60, ["the store: a queue of tickets for each lock", "Redis, ZooKeeper or PostgreSQL decides who holds"])
    picture.text(20, 388, "With the stores memory and local the daemon decides itself, for one host.", fill=GREY, size=12)
    return picture


PICTURES = {"architecture": draw_architecture, "crash": draw_crash, "speed": draw_speed, "stores": draw_stores}


def main():
    check = "--check" in sys.argv
    different = []
    for name in [word for word in sys.argv[1:] if word != "--check"] or PICTURES:
        file, text = pathlib.Path(f"docs/{name}.svg"), str(PICTURES[name]())
        if not check:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            different.append(str(file))
    if different:
        sys.exit(f"{' and '.join(different)}: draw anew with tests/draw_pictures.py")


if __name__ == "__main__":
    main()
