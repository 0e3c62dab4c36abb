#!/usr/bin/env python3
"""mutants: how many bugs that a machine makes do the tests find?

    mutants.py [--seed N] [--count N] [--room ROOM] [--worlds N] [--out FILE] [--list]

as root from the build directory; top_srcdir is taken from the environment.  The mutants are made from the seed, evenly
over the rooms.  Each is built in a copy of the sources (./mutants), and the layers of tests run from fast to slow until
one fails: unit tests of the room, message tests, contract tests of the store, simulator, oracle, real system.  Prints a
table by room, and each survivor with its file, line and change.
"""
import argparse
import collections
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mutate  # noqa: E402

TOP = os.environ.get("top_srcdir", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TREE = os.path.abspath("mutants")
LOCAL = ["tests/contract/contract_memory", "tests/contract/contract_local", "tests/contract/contract_local_sync"]
REDIS = ["tests/contract/contract_redis", "tests/contract/contract_redis_wait"]

# Room → patterns of its unit programs, its contract programs, its stores in the simulator, its scripts on real mounts.
ROOMS = {
    "backend": (["check_(skiplist|sorted|log|lockspace|remote)"], LOCAL, ["memory", "redis"], []),
    "backend/lockspace": (["check_(lockspace|local$)"], LOCAL, ["memory"], []),
    "backend/journal": (["check_(journal|local)"], LOCAL, ["local", "sync"], []),
    "backend/local": (["check_(local|journal)"], LOCAL, ["local", "sync"], []),
    "backend/remote": (["check_(remote|redis_(kept|lost|places|hosts|restart|grace|failures|crowd))"],
                       REDIS + ["tests/contract/contract_redlock", "tests/contract/contract_zookeeper"],
                       ["redis", "redlock", "zookeeper"], []),
    "backend/redis": (["check_redis_"], REDIS, ["redis", "sentinel"], []),
    "backend/redis/conn": (["check_redis_(conn|locate|uri|system|failures|wait|hosts)"], REDIS, ["redis", "sentinel"], []),
    "backend/redis/script": (["check_redis_"], REDIS, ["redis", "sentinel"], []),
    "backend/redlock": (["check_redlock"], ["tests/contract/contract_redlock"], ["redlock"], []),
    "backend/redlock/script": (["check_redlock"], ["tests/contract/contract_redlock"], ["redlock"], []),
    "backend/zookeeper": ([], ["tests/contract/contract_zookeeper"], ["zookeeper"], []),
    "backend/postgresql": ([], ["tests/contract/contract_postgresql"], [], []),
    "fs": (["check_(options|owner|nametable)"], [], ["memory"], []),
    "fs/control": ([], [], ["memory"], ["test_control", "test_status", "test_metrics"]),
    "fs/daemon": (["check_spin"], [], ["memory", "local"], ["test_mount", "test_durability", "test_kill", "test_session"]),
    "fs/hold": (["check_owner"], [], ["memory", "redis"], []),
    "fs/kernel": (["check_nametable"], [], ["memory", "redis"], []),
    "fs/leaserun": ([], [], [], ["test_leaserun"]),
    "fs/ops": (["check_owner"], [], ["memory", "redis"], []),
    "fs/options": (["check_options"], [], [], ["test_command_line"]),
    "fs/process": (["check_owner"], [], ["memory"], ["test_exec", "test_owner"]),
    "fs/sandbox": (["check_sandbox"], [], [], ["test_sandbox"]),
}
LAYERS = ["unit", "message", "contract", "simulator", "oracle", "system"]


def sources():
    listed = subprocess.run(["git", "-C", TOP, "ls-files", "fs", "backend"], capture_output=True, text=True, check=True)
    rooms = collections.defaultdict(list)
    for file in listed.stdout.split():
        if file.endswith((".c", ".lua")) and os.path.dirname(file) in ROOMS:
            rooms[os.path.dirname(file)].append(file)
    return rooms


def read(path):
    with open(path) as source:
        return source.read()


def choose(seed, count, only):
    """That many mutants, one room after the other."""
    generator = random.Random(seed)
    rooms = {room: files for room, files in sorted(sources().items()) if not only or room == only}
    pools = {}
    for room, files in rooms.items():
        pool = []
        for file in sorted(files):
            pool += [(file, *m) for m in mutate.mutants(read(os.path.join(TOP, file)), file.endswith(".lua"))]
        by_operator = collections.defaultdict(list)
        for mutant in pool:
            by_operator[mutant[2]].append(mutant)
        for group in by_operator.values():
            generator.shuffle(group)
        pools[room] = by_operator
    chosen = []
    while len(chosen) < count and any(any(p.values()) for p in pools.values()):
        for room, by_operator in pools.items():
            operators = sorted(name for name, group in by_operator.items() if group)
            if operators and len(chosen) < count:
                chosen.append((room, *by_operator[generator.choice(operators)].pop()))
    return chosen


class Tree:
    """A copy of the sources with a build of its own."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.times = {}
        files = subprocess.run(["git", "-C", TOP, "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
        for file in filter(None, files):
            target, source = os.path.join(TREE, file), os.path.join(TOP, file)
            if os.path.isfile(source) and (not os.path.exists(target) or read_bytes(target) != read_bytes(source)):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy2(source, target)
        if not os.path.exists(os.path.join(TREE, "configure")):
            subprocess.run(["autoreconf", "-fi"], cwd=TREE, check=True, capture_output=True)
        if not os.path.exists(os.path.join(TREE, "Makefile")):
            subprocess.run(["./configure", "-q", "--disable-hardening", "CFLAGS=-O1 -g0 -w -Werror=incompatible-pointer-types "
                            "-Werror=int-conversion -Werror=implicit-function-declaration"],
                           cwd=TREE, check=True, capture_output=True)

    def programs(self):
        text = read(os.path.join(TREE, "Makefile"))
        found = sorted(set(re.findall(r"tests/(?:unit|message|contract)/(?:check|contract)_\w+(?=\$\(EXEEXT\))", text)))
        return [p for p in found if os.path.exists(os.path.join(TOP, p + ".c")) or p.endswith("_wait")]

    def make(self, targets, timeout=3600):
        return subprocess.run(["make", "-s", f"-j{self.jobs}"] + targets, cwd=TREE, capture_output=True, text=True,
                              timeout=timeout).returncode

    def run(self, command, timeout):
        """How it failed: failed, crashed or hung; an empty string if it passed."""
        environment = dict(os.environ, top_srcdir=TREE, top_builddir=TREE, CK_TIMEOUT_MULTIPLIER="2", LEASEFS=TREE + "/leasefs")
        process = subprocess.Popen(command, cwd=TREE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True, text=True, errors="replace")
        try:
            out, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "hung"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if re.search(r"signal (6|11|SIGSEGV|SIGABRT)|\(Segmentation fault\)|AddressSanitizer", out):
            return "crashed"
        if process.returncode or "not ok" in out or re.search(r"^seed \d+: ", out, re.M):
            return "failed"
        return ""


def read_bytes(path):
    with open(path, "rb") as source:
        return source.read()


def layer_commands(tree, room, layer, worlds):
    """The commands of one layer for a mutant of that room: (what must be built, command)."""
    unit, contract, stores, system = ROOMS[room]
    programs = tree.programs()
    if layer == "unit":
        chosen = [p for p in programs if p.startswith("tests/unit/") and any(re.match(u, p[11:]) for u in unit)]
        return [([p], [os.path.join(TREE, p)]) for p in chosen]
    if layer == "message":
        chosen = [p for p in programs if p.startswith("tests/message/")] if room.startswith("fs") else []
        return [([p], [os.path.join(TREE, p)]) for p in chosen]
    if layer == "contract":
        return [([p], [os.path.join(TREE, p)]) for p in contract if p in programs]
    if layer == "simulator":
        sim = "tests/sim/sim"
        return [([sim], [os.path.join(TREE, sim), "-s", s, "-n", str(worlds // len(stores)), "-o", "300", "-q", "-j", "2"])
                for s in stores]
    if layer == "oracle":
        applies = room in ("backend/lockspace", "backend", "fs/ops", "fs/hold", "fs/kernel")
        return [(["leasefs", "tests/oracle/oracle"], ["bash", "tests/e2e/test_oracle.sh"])] if applies else []
    scripts = sorted(s for s in os.listdir(os.path.join(TREE, "tests/e2e")) if any(s.startswith(x) for x in system))
    return [(["leasefs", "leaserun"], ["bash", "tests/e2e/" + s]) for s in scripts if s.endswith(".sh")]


def sound(tree, rooms, worlds, bound):
    """The commands that pass without a mutant, by room and layer, the quickest first, and their time."""
    known, result = {}, {}
    for room in rooms:
        for layer in LAYERS:
            kept = []
            for targets, command in layer_commands(tree, room, layer, worlds):
                key = tuple(command)
                if key not in known:
                    if tree.make(targets):
                        known[key] = None
                        continue
                    began = time.monotonic()
                    failure = tree.run(command, bound)
                    known[key] = None if failure else time.monotonic() - began
                    if failure:
                        print(f"# left out, since it {failure} without a mutant: {' '.join(os.path.basename(c) for c in command)}",
                              flush=True)
                if known[key] is not None:
                    kept.append((known[key], targets, command))
            result[room, layer] = sorted(kept, key=lambda item: item[0])
    return result


def judge(tree, commands, room, file, text):
    """(layer, how) that killed it; ("compiler", …); or None."""
    path = os.path.join(TREE, file)
    original = read(path)
    try:
        with open(path, "w") as out:
            out.write(text)
        try:
            if tree.make(["libleasefs.a"], 600):  # what a layer needs is linked when it runs
                return "compiler", "failed"
            for layer in LAYERS:
                for seconds, targets, command in commands[room, layer]:
                    if tree.make(targets, 600):
                        return "compiler", "failed"
                    failure = tree.run(command, 20 + 4 * seconds)
                    if failure:
                        return layer, failure
        except subprocess.TimeoutExpired:
            return "compiler", "hung"
        return None
    finally:
        with open(path, "w") as out:
            out.write(original)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--room", default="")
    parser.add_argument("--worlds", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--bound", type=int, default=120, help="seconds for one test without a mutant")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    arguments = parser.parse_args()
    chosen = choose(arguments.seed, arguments.count, arguments.room)
    if arguments.list:
        for room, file, line, operator, old, new, _ in chosen:
            print(f"{file}:{line} {operator}: {old} -> {new or '(nothing)'}")
        return 0
    tree = Tree(arguments.jobs)
    commands = sound(tree, sorted({m[0] for m in chosen}), arguments.worlds, arguments.bound)
    table = collections.defaultdict(collections.Counter)
    for number, (room, file, line, operator, old, new, text) in enumerate(chosen, 1):
        began = time.monotonic()
        verdict = judge(tree, commands, room, file, text)
        table[room]["made"] += 1
        table[room][verdict[0] if verdict else "alive"] += 1
        if verdict and verdict[0] != "compiler":
            table[room][verdict[1]] += 1
        print(f"{number:4} {' '.join(verdict) if verdict else 'ALIVE':18} {time.monotonic() - began:5.0f} s  "
              f"{file}:{line} {operator}: {old[:90]} -> {new[:90] or '(nothing)'}", flush=True)
    columns = ["made", "compiler"] + LAYERS + ["alive", "crashed", "hung"]
    print("\n| room | " + " | ".join(columns) + " | killed |\n|---|" + "---:|" * (len(columns) + 1))
    total = collections.Counter()
    for room, row in sorted(table.items()) + [("all", total)]:
        if room != "all":
            total.update(row)
        judged = row["made"] - row["compiler"]
        share = f"{100 * (judged - row['alive']) / judged:.0f} %" if judged else "-"
        print(f"| {room} | " + " | ".join(str(row[c]) for c in columns) + f" | {share} |")
    judged = total["made"] - total["compiler"]
    print(f"# mutants: {total['made']}; judged: {judged}; alive: {total['alive']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
