#!/usr/bin/env python3
"""mutants: how many bugs that a machine makes do the tests find?

    mutants.py --quick [--seed N] [--count N]
    mutants.py [--seed N] [--count N] [--room ROOM] [--layers L,L] [--skip RE] [--worlds N] [--jobs N] [--budget N] [--bound N]
               [--out FILE [--again]] [--list] [--table]

as root from the build directory; top_srcdir is taken from the environment.  The mutants are made from the seed, evenly
over the rooms.  Each is built in a copy of the sources (./mutants), and the layers of tests run from fast to slow until
one fails: unit tests, message tests, simulator, contract tests, oracle, real system.  Of unit, message and contract tests
those run that reach the function, the likeliest by its time first: one that has found a mutant of the same file before.
A test that takes longer than a second must fail twice, and any must hang twice.  The tests that one layer runs take no
longer than its budget of time.  Prints a table by room, and each survivor with its file, line and change.
With --out a run can be cut: started again, it goes on; with --again it runs what it has not yet tried on those alive, so
that a first run may have a small budget.  With --quick it uses the programs of the build directory as they are, and of
each room only a few that take seconds (QUICK), for which one failure counts; a line of totals follows.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mutate  # noqa: E402
from tree import TOP, Tree, read  # noqa: E402

TREE = os.path.abspath("mutants")

# Room → its stores in the simulator; its scripts on real mounts; programs that reach it although gcov does not show it.
ROOMS = {
    "backend": (["memory", "redis"], [], ""),
    "backend/lockspace": (["memory"], [], ""),
    "backend/journal": (["local", "sync"], [], ""),
    "backend/local": (["local", "sync"], [], ""),
    "backend/remote": (["redis", "redlock", "zookeeper"], [], ""),
    "backend/redis": (["redis", "sentinel"], [], ""),
    "backend/redis/conn": (["redis", "sentinel"], [], ""),
    "backend/redis/script": (["redis", "sentinel"], [], "check_redis_(?!conn|locate|uri|check)|contract_redis"),
    "backend/redlock": (["redlock"], [], ""),
    "backend/redlock/script": (["redlock"], [], "check_redlock|contract_redlock"),
    "backend/zookeeper": (["zookeeper"], [], ""),
    "backend/postgresql": ([], [], ""),
    "fs": (["memory"], [], ""),
    "fs/control": (["memory"], ["test_control.sh", "test_monitoring.sh", "test_counts.sh"], ""),
    "fs/daemon": (["memory", "local"], ["test_mount.sh", "test_durability.sh", "test_kill.sh", "test_restart.sh", "test_takeover.sh"], ""),
    "fs/hold": (["memory", "redis"], [], ""),
    "fs/kernel": (["memory", "redis"], [], ""),
    "fs/leaserun": ([], ["test_leaserun.sh", "test_leaserun_flock.sh", "test_leaserun_several.sh", "test_leaserun_status.sh"], ""),
    "fs/ops": (["memory", "redis"], [], ""),
    "fs/options": ([], ["test_command_line.sh"], ""),
    "fs/process": (["memory"], ["test_exec.sh", "test_owner.sh"], ""),
    "fs/sandbox": ([], ["test_sandbox.sh"], "check_sandbox"),
}
# Room → the programs of --quick; of a contract test its cases.
STORE = "acquire|guard over mounts"
QUICK_BOUND = 20  # s
QUICK = {
    "backend": "unit/check_(skiplist|sorted|log|lockspace|remote_ticket)",
    "backend/lockspace": "unit/check_(lockspace|local$)",
    "backend/journal": "unit/check_(journal|local)",
    "backend/local": "unit/check_(local|journal)",
    "backend/remote": "unit/check_(remote_ticket|redis_(bounds|model))|contract_redis$",
    "backend/redis": "unit/check_redis_(check|format|bounds|model)|contract_redis$",
    "backend/redis/conn": "unit/check_redis_(uri|conn_wait|system|conn_faults)",
    "backend/redis/script": "unit/check_redis_(format|bounds|model)|contract_redis$",
    "backend/redlock": "unit/check_redlock",
    "backend/redlock/script": "unit/check_redlock$|contract_redlock",
    "backend/zookeeper": "contract_zookeeper",
    "backend/postgresql": "contract_postgresql",
    "fs": "message/|unit/check_(options|owner)",
    "fs/control": "message/check_control",
    "fs/daemon": "unit/check_(spin|follow)",
    "fs/hold": "message/",
    "fs/kernel": "message/|unit/check_nametable",
    "fs/leaserun": "unit/check_leaserun",
    "fs/ops": "message/",
    "fs/options": "unit/check_options",
    "fs/process": "unit/check_(owner|walk|connection)",
    "fs/sandbox": "unit/check_sandbox",
}
SIMULATOR = "tests/sim/sim"
MEASURED = 30  # worlds, to know how long one takes
BOUNDED = {"E2E_SLACK": "6000", "ORACLE_PROGRAMS": "500", "ORACLE_SECONDS": "8"}
Mutant = collections.namedtuple("Mutant", "number room file line operator old new change")
LAYERS = ["unit", "message", "simulator", "contract", "oracle", "system"]


def sources():
    listed = subprocess.run(["git", "-c", "safe.directory=*", "-C", TOP, "ls-files", "fs", "backend"], capture_output=True, text=True,
                            check=True)
    rooms = collections.defaultdict(list)
    for file in listed.stdout.split():
        if file.endswith((".c", ".lua")) and os.path.dirname(file) in ROOMS and not file.endswith("/not_built.c"):
            rooms[os.path.dirname(file)].append(file)
    return rooms


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
                chosen.append(Mutant(len(chosen) + 1, room, *by_operator[generator.choice(operators)].pop()))
    return chosen


class Judge:
    """Runs the layers, from fast to slow, until one fails."""

    def __init__(self, tree, arguments):
        self.tree, self.arguments = tree, arguments
        self.kills = collections.Counter()
        self.seconds = {}
        self.locks = collections.defaultdict(threading.Lock)

    def prepare(self, rooms):
        """Builds everything, and knows what there is to run."""
        tree = self.tree
        layers, skip = self.arguments.layers, self.arguments.skip
        programs = [p for p in tree.programs() if not p.endswith("_example") and self.layer(p) in layers and not re.search(skip, p)]
        tree.make(["all"])
        tree.build(programs + ["leasefs", "leaserun"] + ([SIMULATOR] if "simulator" in layers else []) +
                   (["tests/oracle/oracle"] if {"oracle", "system"} & set(layers) else []))
        self.objects = tree.compile_for_reach([f for files in sources().values() for f in files if f.endswith(".c")])
        self.names = [program for program in programs if not program.startswith("tests/contract/")]
        for program in programs:  # case by case, unless each case would start a slow server
            if program.startswith("tests/contract/"):
                cheap = re.search("memory|local|redis|redlock", program)
                self.names += [f"{program}|CK_RUN_CASE={case}" for case in tree.cases(program)] if cheap else [program]
        self.names += [f"{SIMULATOR}|-s|{store}|-n|{MEASURED}|-o|300|-q|-j|1" for store in sorted({s for r in ROOMS.values() for s in r[0]})]
        self.names += sorted({script for room in rooms for script in self.scripts(room)})
        self.names = [name for name in self.names if self.layer(name) in layers]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:  # most of them wait
            list(pool.map(self.measure, [name for name in self.names if not name.endswith(".sh")]))

    def measure(self, name):
        """Its time, after a run without a mutant; None if that fails."""
        with self.locks[name]:
            if name not in self.seconds:
                if name.endswith(".sh"):
                    began = time.monotonic()
                    failure, line = self.tree.run(["bash", name], self.arguments.bound, TREE, **BOUNDED)
                    failure, seconds = failure + line, time.monotonic() - began
                else:
                    failure, seconds = self.tree.measure(name, self.objects, self.arguments.bound)
                if failure:
                    print(f"# left out, since it fails without a mutant: {name}: {failure}", flush=True)
                self.seconds[name] = None if failure else seconds
        return self.seconds[name]

    def scripts(self, room):
        oracle = ["test_oracle.sh"] if room in ("backend/lockspace", "fs/ops", "fs/hold", "fs/kernel") else []
        return ["tests/e2e/" + script for script in oracle + ROOMS[room][1]]

    def layer(self, program):
        folder = program.split("/")[1]
        return {"sim": "simulator", "e2e": "oracle" if program.endswith("test_oracle.sh") else "system"}.get(folder, folder)

    def reach(self, mutant, name, program, options):
        """Whether that may find it: 0, 1 or 2."""
        stores, scripts, pattern = ROOMS[mutant.room]
        if program.endswith(".sh"):
            return program in self.scripts(mutant.room)
        if program == SIMULATOR:
            return options[1] in stores
        store = re.search("contract_(redis|redlock|zookeeper|postgresql)", program)
        if store and (store.group(1) not in mutant.room and mutant.room != "backend/remote"):
            return 0
        if self.measure(name) is None:
            return 0
        if pattern and re.match(pattern, os.path.basename(program)):
            return 1
        return self.tree.reaches(name, mutant.file, mutant.line)

    def runs(self, mutant):
        """What may find that mutant, as (layer, name, program, options), layer by layer, the likeliest by its time first."""
        for layer in self.arguments.layers:
            chosen, began = [], time.monotonic()
            for name in self.names:
                program, *options = name.split("|")
                reach = self.reach(mutant, name, program, options) if self.layer(program) == layer else 0
                if reach and self.measure(name) is not None:
                    likely = 0.1 + reach + 4 * self.kills[mutant.file, name] + self.kills[mutant.room, name]
                    chosen.append((-likely / (1 + self.seconds[name]), name, program, options))
            for _, name, program, options in sorted(chosen):
                if layer != "simulator" and time.monotonic() - began + self.seconds[name] > self.arguments.budget:
                    continue
                if layer == "simulator":
                    options[3] = str(self.arguments.worlds // len(chosen))
                yield layer, name, program, options

    def attempt(self, layer, key, command, options, directory):
        """How it fails, and what it says then; an empty string if it passes."""
        seconds = self.seconds[key] * (int(options[3]) / MEASURED if layer == "simulator" else 1)
        began = time.monotonic()
        failure, line = self.tree.run(command, 10 + 4 * seconds, directory, **BOUNDED)
        if not failure and layer != "simulator":
            self.seconds[key] = min(self.seconds[key], time.monotonic() - began)
        if failure == "hung" or (failure and seconds > 1 and layer != "simulator"):  # once more: the machine may be slow
            failure, line = self.tree.run(command, 10 + 4 * seconds, directory, **BOUNDED)
        return failure, line

    def remember(self, file, key):
        """That this test has found a mutant of that file."""
        self.kills[file, key] += 1
        self.kills[os.path.dirname(file), key] += 1

    def link(self, layer, program, name, new, directory):
        """The programs with that object which this test runs, linked once; False if one cannot be."""
        tree = self.tree
        programs = [program] if layer not in ("oracle", "system") else ["leasefs", "leaserun"]
        for p in programs:
            if os.path.exists(os.path.join(directory, p)):
                continue
            if programs[0] != program and name not in tree.links[p] and (p == "leaserun" or name in tree.links["leaserun"]):
                shutil.copy2(os.path.join(TREE, p), directory)  # this program does not link the changed object
            elif not tree.link(p, name, new, directory):
                return False
        return True

    def judge(self, mutant, tried):
        """(layer, how, what found it); the layer is "alive" if nothing did.  Adds what has run to `tried`."""
        tree = self.tree
        directory = os.path.join(TREE, "worker", f"{os.getpid()}-{threading.get_ident()}")
        shutil.rmtree(directory, ignore_errors=True)
        text, (start, end, new) = read(os.path.join(tree.sources, mutant.file)), mutant.change
        new = tree.compile(mutant.file, text[:start] + new + text[end:], directory)
        if not new:
            return "compiler", "failed", ""
        name = os.path.relpath(new, directory)
        for layer, key, program, options in self.runs(mutant):
            if key in tried:
                continue
            if not self.link(layer, program, name, new, directory):
                return "compiler", "failed", program
            command = ["bash", program] if program.endswith(".sh") else [os.path.join(directory, program), *options]
            failure, line = self.attempt(layer, key, command, options, directory)
            tried.append(key)
            if failure:
                self.remember(mutant.file, key)
                return layer, failure, f"{key}: {line}"
        return "alive", "", ""


class Quick(Judge):
    """Only the programs of QUICK, which passed in the build directory."""

    def prepare(self, rooms):
        programs = [p for p in self.tree.programs() if not p.endswith(("_example", "_wait", "_tls"))]
        self.programs = {room: sorted(filter(re.compile(QUICK[room]).search, programs), key=lambda p: "contract" in p)
                         for room in rooms}
        self.tree.build(sorted(set(sum(self.programs.values(), []))))

    def attempt(self, layer, key, command, options, directory):
        return self.tree.run(command, QUICK_BOUND, directory, **BOUNDED)

    def runs(self, mutant):
        for program in self.programs[mutant.room]:
            if mutant.room == "fs/leaserun" and mutant.file[:-2] + ".o" not in self.tree.links[program]:
                continue  # it is not in the library
            cases = [f"CK_RUN_CASE={case}" for case in STORE.split("|")] if "contract" in program else [None]
            for case in cases:
                yield self.layer(program), f"{program}|{case}", program, [case] if case else []


def table(rows):
    count = collections.defaultdict(collections.Counter)
    for row in rows:
        for room in row["room"], "all":
            count[room]["made"] += 1
            count[room][row["layer"]] += 1
            count[room][row["how"]] += row["layer"] != "compiler"
    columns = ["made", "compiler"] + LAYERS + ["alive", "crashed", "hung"]
    print("\n| room | " + " | ".join(columns) + " | killed |\n|---|" + "---:|" * (len(columns) + 1))
    for room in sorted(count, key=lambda room: (room == "all", room)):
        judged = count[room]["made"] - count[room]["compiler"]
        share = f"{100 * (judged - count[room]['alive']) / judged:.0f} %" if judged else "-"
        print(f"| {room} | " + " | ".join(str(count[room][c]) for c in columns) + f" | {share} |")
    for row in rows:
        if row["layer"] == "alive":
            print(f"{row['number']:4} {describe(row)}")


def describe(row):
    return f"{row['file']}:{row['line']} {row['operator']}: {row['old'][:120]} -> {row['new'][:120] or '(nothing)'}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--room", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--layers", type=lambda text: text.split(","), default=LAYERS)
    parser.add_argument("--skip", default="^$", help="a pattern: programs that do not run")
    parser.add_argument("--worlds", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--bound", type=int, default=300, help="seconds for one test without a mutant")
    parser.add_argument("--budget", type=int, default=100, help="seconds that the tests of one layer may take")
    parser.add_argument("--out", help="a file of results; those mutants are not run again")
    parser.add_argument("--again", action="store_true", help="run further tests on those in --out that are alive")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    parser.add_argument("--table", action="store_true", help="print the results in --out, and run nothing")
    arguments = parser.parse_args()
    rows = {}
    if arguments.out and os.path.exists(arguments.out):
        rows = {row["number"]: row for row in map(json.loads, open(arguments.out))}
    if arguments.table:
        table(list(rows.values()))
        return 0
    chosen = choose(arguments.seed, arguments.count, arguments.room)
    if arguments.list:
        for mutant in chosen:
            print(describe(mutant._asdict()))
        return 0
    earlier = list(rows.values())
    same = {mutant.number: [mutant.file, mutant.line, mutant.old, mutant.new] for mutant in chosen}
    rows = {row["number"]: row for row in earlier  # those of other sources do not count
            if [row[key] for key in ("file", "line", "old", "new")] == same.get(row["number"])}
    judge = Quick(Tree(os.getcwd(), arguments.jobs, copies=False), arguments) if arguments.quick else Judge(
        Tree(TREE, arguments.jobs), arguments)
    judge.prepare(sorted({mutant.room for mutant in chosen}))
    for row in earlier:
        if row["by"]:
            judge.remember(row["file"], row["by"].split(": ")[0])
    lock = threading.Lock()

    def one(mutant):
        began = time.monotonic()
        tried = list(rows[mutant.number].get("tried", [])) if mutant.number in rows else []
        layer, how, by = judge.judge(mutant, tried)
        row = dict(mutant._asdict(), layer=layer, how=how, by=by, tried=tried, seconds=round(time.monotonic() - began, 1))
        del row["change"]
        with lock:
            rows[row["number"]] = row
            print(f"{row['number']:4} {layer + ' ' + how:18} {row['seconds']:5.0f} s  {describe(row)}", flush=True)
            if arguments.out:
                with open(arguments.out, "a") as out:
                    out.write(json.dumps(row) + "\n")

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, [mutant for mutant in chosen if mutant.number not in rows or
                            (arguments.again and rows[mutant.number]["layer"] == "alive")]))
    table([rows[number] for number in sorted(rows)])
    if arguments.quick:
        layers = collections.Counter(row["layer"] for row in rows.values())
        print(f"{len(rows)} mutants: {len(rows) - layers['compiler'] - layers['alive']} killed, {layers['alive']} alive, "
              f"{layers['compiler']} not compiled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
