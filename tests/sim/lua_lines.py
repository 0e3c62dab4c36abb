#!/usr/bin/env python3
"""Which lines of the scripts for Redis have run: lua_lines.py ROWS, of the simulator's server with LUA_LINES=ROWS.

A row is the hash of a script, as it is sent, and a line of it.  Which lines there are tells luac5.1.
"""
import collections
import hashlib
import os
import re
import subprocess
import sys

TOP = os.path.join(os.path.dirname(os.path.realpath(__file__)), '../..')


def scripts():
    """The files that each script is made of."""
    full = open(os.path.join(TOP, 'backend/redis/full_script.h')).read()
    for table in 'backend/redis/script.c', 'backend/redlock/script.c':
        with open(os.path.join(TOP, table)) as source:
            for entry in source.read().replace('#include "backend/redis/full_script.h"', full).split('] = {"')[1:]:
                yield [name + '.lua' for name in re.findall(r'#include "(.*)\.inc"', entry)]


def lines_of(text):
    """Those that luac has instructions for, but for the ends of functions, which may have returned before."""
    listing = subprocess.run(['luac5.1', '-p', '-l', '-'], input=text, capture_output=True, text=True, check=True).stdout
    source = text.split('\n')
    found = {int(line) for line in re.findall(r'^\t\d+\t\[(\d+)\]', listing, re.M)}
    return {line for line in found if line <= len(source) and not re.fullmatch(r'\s*end\W*', source[line - 1])}


def main():
    ran = collections.defaultdict(set)
    with open(sys.argv[1]) as rows:
        for script, line in map(str.split, rows):
            ran[script].add(int(line))
    there, reached = collections.defaultdict(set), collections.defaultdict(set)
    for files in scripts():
        texts = [open(os.path.join(TOP, name)).read() for name in files]
        places = [(name, line) for name, text in zip(files, texts) for line in range(1, text.count('\n') + 1)]
        whole = ''.join(texts)
        mine = ran[hashlib.sha1(whole.encode()).hexdigest()]
        for line in lines_of(whole):
            if line <= len(places):
                there[places[line - 1][0]].add(places[line - 1][1])
        for line in mine:
            reached[places[line - 1][0]].add(places[line - 1][1])
    for name in sorted(there):
        missed = sorted(there[name] - reached[name])
        print(f'{name}: {len(there[name]) - len(missed)} of {len(there[name])} lines' +
              (', not ' + ', '.join(map(str, missed)) if missed else ''))
    total = sum(map(len, there.values()))
    left = sum(len(there[name] - reached[name]) for name in there)
    print(f'all scripts: {100 * (total - left) / total:.1f} % of {total} lines')


main()
