#!/usr/bin/python3
"""churn_check: compares a mounted store with the records of churn.py.

    churn_check DIRECTORY JOURNAL OWNER_PID

Every lease that was confirmed and whose release was not begun is there, with its
token, content and owner; none whose release was confirmed is; tokens only grow.
An operation that was under way when the daemon was killed may have gone either
way.  Prints one line for each thing that is wrong, and a summary.
"""
import os
import sys

directory, journal, owner = sys.argv[1], sys.argv[2], sys.argv[3]
state = {}
highest = {}
wrong = 0


def complain(text):
    global wrong
    wrong += 1
    print("# " + text)


for line in open(journal):
    words = line.split()
    if words[0] in ("began", "ended"):
        continue
    name = words[1]
    state[name] = words
    if words[0] == "held":
        if int(words[2]) <= highest.get(name, 0):
            complain("%s: token %s after %d" % (name, words[2], highest[name]))
        highest[name] = int(words[2])

present = set(os.listdir(directory))
held = 0
for name, words in state.items():
    path = os.path.join(directory, name)
    if words[0] == "held":
        held += 1
        if name not in present:
            complain("%s was confirmed and is not there" % name)
            continue
        token = os.getxattr(path, "user.lease.token").decode()
        if token != words[2]:
            complain("%s: token %s, was %s" % (name, token, words[2]))
        text = open(path).read()
        if text != words[3]:
            complain("%s: content %r, was %r" % (name, text, words[3]))
        told = os.getxattr(path, "user.lease.owner").decode().split()
        if told[1] != owner:
            complain("%s: owner %s, was %s" % (name, told[1], owner))
    elif words[0] == "free" and name in present:
        complain("%s was released and is there" % name)
for name in present:
    if name.startswith("c") and name not in state:
        complain("%s was never asked for and is there" % name)
print("# %d names, %d held, %d wrong" % (len(state), held, wrong))
sys.exit(1 if wrong else 0)
