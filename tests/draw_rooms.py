#!/usr/bin/env python3
"""draw_rooms: draws the rooms of tests/rooms as an SVG picture.

usage: draw_rooms.py [--check PICTURE]

Run in the source tree. Prints the picture, or with --check exits with 1 if PICTURE differs from it. An arrow from one
room to another says that the first includes a header of the second; an arrow that follows from two others is left out,
and so are those to fs and to backend, which most rooms include.
"""
import pathlib
import re
import sys
import textwrap
from xml.sax.saxutils import escape

WIDTH, HEIGHT, GAP, ROW = 196, 62, 14, 112
MARGIN = 16


def read_rooms():
    """Returns [(row, room, what it does)]."""
    rooms = []
    for line in pathlib.Path("tests/rooms").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            row, room, text = line.split(" ", 2)
            rooms.append((int(row), room, text))
    return rooms


def read_includes(names):
    """Returns the set of (room, included room)."""
    edges = set()
    for source in sorted(p for top in ("fs", "backend") for p in pathlib.Path(top).rglob("*.[ch]")):
        room = str(source.parent)
        for header in re.findall(r'^\s*#\s*include\s*"([^"]*)/', source.read_text(encoding="utf-8"), re.M):
            if room in names and header in names and header != room and header not in ("fs", "backend"):
                edges.add((room, header))
    return edges


def reduce_edges(edges):
    """Without the edges that follow from others."""
    def reaches(start, end, without):
        seen, stack = set(), [start]
        while stack:
            room = stack.pop()
            for a, b in edges:
                if a == room and (a, b) != without and b not in seen:
                    if b == end:
                        return True
                    seen.add(b)
                    stack.append(b)
        return False

    return sorted(e for e in edges if not reaches(*e, e))


def place_rooms(rooms):
    """Returns {room: (x, y, width)} and the size of the picture."""
    rows = {}
    for row, room, _ in rooms:
        rows.setdefault(row, []).append(room)
    full = max(len(row) for row in rows.values()) * (WIDTH + GAP) - GAP
    boxes = {}
    for number, row in enumerate(sorted(rows)):
        here = rows[row]
        width = full if here == ["backend"] else WIDTH
        left = MARGIN if here[0].startswith("backend") else MARGIN + (full - len(here) * (width + GAP) + GAP) / 2
        for i, room in enumerate(here):
            boxes[room] = (left + i * (width + GAP), MARGIN + number * ROW, width)
    return boxes, full + 2 * MARGIN, 2 * MARGIN + (len(rows) - 1) * ROW + HEIGHT


def draw_box(box, room, text):
    """Returns the lines that draw a room."""
    x, y, width = box
    lines = textwrap.wrap(text, 32 if width == WIDTH else 200)
    yield f'<rect class="{"fs" if room.startswith("fs") else "backend"}" x="{x:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}" rx="6"/>'
    yield f'<text class="room" x="{x + width / 2:g}" y="{y + 21:g}">{escape(room)}</text>'
    for i, line in enumerate(lines):
        yield f'<text x="{x + width / 2:g}" y="{y + 38 + 14 * i:g}">{escape(line)}</text>'


def draw_arrow(source, target):
    """Returns the line that draws an arrow: down, or to the side within a row."""
    (x1, y1, w1), (x2, y2, w2) = source, target
    if y1 == y2:
        left = x1 < x2
        start, end = (x1 + w1 if left else x1, y1 + HEIGHT / 2), (x2 if left else x2 + w2, y2 + HEIGHT / 2)
        if abs(end[0] - start[0]) > GAP:
            middle = (start[0] + end[0]) / 2
            start, end = (x1 + w1 / 2, y1 + HEIGHT), (x2 + w2 / 2, y2 + HEIGHT)
            return f'<path d="M{start[0]:g} {start[1]:g}Q{middle:g} {start[1] + 40:g} {end[0]:g} {end[1] + 2:g}"/>'
    else:
        shift = (x2 - x1) / 12
        start, end = (x1 + w1 / 2 + max(-80, min(80, shift)), y1 + HEIGHT), (x2 + w2 / 2 - max(-80, min(80, shift)), y2)
    return f'<path d="M{start[0]:g} {start[1]:g}L{end[0]:g} {end[1]:g}"/>'


def draw(rooms):
    """Returns the picture."""
    boxes, width, height = place_rooms(rooms)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">',
        "<title>The rooms of leasefs, as drawn by tests/draw_rooms.py</title>",
        "<style>",
        "text { font-family: system-ui, 'DejaVu Sans', sans-serif; font-size: 11px; text-anchor: middle; fill: #1f2328 }",
        ".room { font-weight: bold; font-size: 13px }",
        "rect { stroke: #57606a } .fs { fill: #ddf4ff } .backend { fill: #fff8c5 } .ground { fill: #ffffff; stroke: none }",
        "path { stroke: #57606a; fill: none; marker-end: url(#tip) }",
        "</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<polygon points="0,1 8,4 0,7" fill="#57606a"/></marker></defs>',
        f'<rect class="ground" width="{width:g}" height="{height:g}"/>',
    ]
    out += [draw_arrow(boxes[a], boxes[b]) for a, b in reduce_edges(read_includes(boxes)) if a[:2] == b[:2]]
    for _, room, text in rooms:
        out += draw_box(boxes[room], room, text)
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    picture = draw(read_rooms())
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        return 0 if pathlib.Path(sys.argv[2]).read_text(encoding="utf-8") == picture else 1
    sys.stdout.write(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
