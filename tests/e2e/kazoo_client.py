#!/usr/bin/python3
"""kazoo_client: a process of a test that takes locks with kazoo's recipes.

Arguments: HOST:PORT and the chroot.  Each line of its input is `ID REQUEST`, of its output `ID ANSWER`:

    lock PATH [PATTERN]   takes it: held; `write` and `read` are WriteLock and ReadLock
    try PATH [PATTERN]    held or refused; `trywrite`, `tryread`
    release               ok
    nodes PATH            the names of the nodes below it
    data PATH             of a node, as text; refused, without the rights to it
    auth USER:PASSWORD    ok
"""
import logging
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

logging.disable(logging.CRITICAL)
client = KazooClient(hosts=sys.argv[1] + sys.argv[2], timeout=4)
client.start(timeout=30)
held = []


RECIPES = {"": client.Lock, "lock": client.Lock, "write": client.WriteLock, "read": client.ReadLock}


def lock(word, path, *patterns):
    recipe = RECIPES[word.removeprefix("try")]("/" + path, "kazoo", extra_lock_patterns=patterns)
    if not recipe.acquire(blocking=not word.startswith("try")):
        return "refused"
    held.append(recipe)
    return "held"


def answer(word, *rest):
    if word.removeprefix("try") in RECIPES:
        return lock(word, *rest)
    if word == "release":
        held.pop().release()
        return "ok"
    if word == "nodes":
        return " ".join(sorted(client.get_children("/" + rest[0])))
    if word == "data":
        return client.get("/" + rest[0])[0].decode(errors="replace").replace("\n", " ")
    if word == "auth":
        client.add_auth("digest", rest[0])
        return "ok"
    return "what?"


for line in sys.stdin:
    number, *request = line.split()
    try:
        said = answer(*request)
    except NoAuthError:
        said = "refused"
    print(number, said, flush=True)
