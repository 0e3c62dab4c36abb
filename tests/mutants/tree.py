"""tree: a copy of the sources with a build of its own, in which one object at a time is exchanged.

A mutant costs one compilation; a program is linked when it is run.  The programs are run once without a mutant, with
the library compiled for gcov, so that it is known how long each takes and which functions it reaches.
"""
import collections
import concurrent.futures
import json
import os
import re
import selectors
import shlex
import shutil
import subprocess
import threading
import time

TOP = os.environ.get("top_srcdir", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
FLAGS = ("-O1 -g0 -Werror=incompatible-pointer-types -Werror=int-conversion -Werror=discarded-qualifiers "
         "-Werror=implicit-function-declaration")
LINKER = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []  # the quicker one; Debian 13 has it in a package of its own
FAILED = re.compile(rb"^not ok.*|^seed \d+: .*|.*AddressSanitizer.*", re.M)
CRASHED = re.compile(rb"signal (6|7|8|11)\b|status 134|AddressSanitizer")
HUNG = re.compile(rb"timeout expired|signal 27\b")


def read(path):
    with open(path) as source:
        return source.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as out:
        out.write(text)


def is_newer(path, source):
    return os.path.exists(path) and os.path.getmtime(path) > os.path.getmtime(source)


# A mutant may kill any process: it sees only its own.  They all end with the first.
ALONE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", '"$@"; exit $?', "sh"]


def run(command, directory, timeout, environment):
    """How it failed: failed, crashed or hung, at its first failure, and what it said; an empty string if it passed."""
    process = subprocess.Popen(ALONE + command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               stdin=subprocess.DEVNULL, start_new_session=True)
    text, failure, line, deadline = b"", None, b"", time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0, deadline - time.monotonic())):
                failure = "hung"
                break
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                break
            text = text[-2000:] + piece
            found = FAILED.search(text, 0, text.rfind(b"\n") + 1)
            if found:
                line = found.group()
                failure = "crashed" if CRASHED.search(line) else "hung" if HUNG.search(line) else "failed"
                break
    if failure is None:
        try:
            process.wait(max(1, deadline - time.monotonic()))
            failure = "crashed" if process.returncode > 128 else "failed" if process.returncode not in (0, 77) else ""
        except subprocess.TimeoutExpired:
            failure = "hung"
    process.kill()
    process.wait()
    process.stdout.close()
    return failure, line.decode(errors="replace")


class Tree:
    """Without `copies` it is the build directory itself, in which nothing is exchanged: a mutant is linked elsewhere."""

    def __init__(self, root, jobs, copies=True):
        self.root, self.jobs, self.sources = root, jobs, root if copies else TOP
        if copies:
            self.copy(root)
        self.links = {}
        self.built = collections.defaultdict(threading.Lock)  # program → held while it is linked for gcov
        self.reach = {}  # name → file → ({lines}, [(first, last) of a function])
        self.find_compiler()

    @staticmethod
    def copy(root):
        files = subprocess.run(["git", "-C", TOP, "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
        for file in filter(None, files):
            target, source = os.path.join(root, file), os.path.join(TOP, file)
            if os.path.isfile(source) and (not os.path.exists(target) or open(target, "rb").read() != open(source, "rb").read()):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy2(source, target)
                os.utime(target)
        if not os.path.exists(os.path.join(root, "configure")):
            subprocess.run(["autoreconf", "-fi"], cwd=root, check=True, capture_output=True)
        if not os.path.exists(os.path.join(root, "Makefile")):
            subprocess.run(["./configure", "-q", "--disable-hardening", "CFLAGS=" + FLAGS], cwd=root, check=True,
                           capture_output=True)

    def find_compiler(self):
        clock = os.path.join(self.sources, "backend/clock.c")  # the Makefile may have either
        line = self.make(["-n", "V=1", "-W", clock, "-W", os.path.relpath(clock, self.root), "backend/clock.o"]).replace("\\\n", " ")
        words = shlex.split(next(part for part in re.split(r"&&|\n|;", line) if " -c " in part))
        self.compiler = [w for w in words[:words.index("-c")] if w != "ccache"]
        for option in ("-MT", "-MF"):
            if option in self.compiler:
                at = self.compiler.index(option)
                del self.compiler[at:at + 2]
        self.compiler = [w for w in self.compiler if w not in ("-MD", "-MP", "-w")]

    def make(self, targets):
        return subprocess.run(["make", "-s", f"-j{self.jobs}"] + targets, cwd=self.root, capture_output=True, text=True,
                              check=True).stdout

    def cases(self, program):
        """The names of the cases of a contract test: those that all have, and its own."""
        folder, linked = os.path.join(self.root, "tests/contract"), " ".join(self.links[program])
        others = {os.path.basename(p) + ".c" for p in self.programs() if os.path.basename(p) + ".o" not in linked}
        return sorted({case for file in os.listdir(folder) if file.endswith(".c") and file not in others
                       for case in re.findall(r'tcase_create\("(.*?)"\)', read(os.path.join(folder, file)))})

    def programs(self):
        found = sorted(set(re.findall(r"tests/(?:unit|message|contract)/(?:check|contract)_\w+(?=\$\(EXEEXT\))",
                                      read(os.path.join(self.root, "Makefile")))))
        return [p for p in found if os.path.exists(os.path.join(TOP, p + ".c")) or p.endswith("_wait")]

    def build(self, programs):
        """Makes them, and keeps how they are linked."""
        self.make(programs)
        text = self.make(["-n", "V=1", "-W", "libleasefs.a", "-W", "fs/leaserun/leaserun.o"] + programs).replace("\\\n", " ")
        for part in re.split(r"&&|\n|;", text):
            words = shlex.split(part) if " -o " in part else []
            if words and words[words.index("-o") + 1] in programs:
                self.links[words[words.index("-o") + 1]] = [w for w in words if w != "ccache"]

    def compile(self, file, text, directory):
        """The object of that file with that text, in `directory`; None if it does not compile."""
        source = os.path.join(directory, file)
        if file.endswith(".lua"):
            lines = ['"' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"\n' for line in text.splitlines()]
            write(source[:-4] + ".inc", "".join(lines))
            file = os.path.dirname(file) + ".c"
            source = os.path.join(directory, file)
            text = read(os.path.join(self.sources, file))
        write(source, text)
        made = subprocess.run([self.compiler[0], "-iquote", directory, *self.compiler[1:], "-O0", "-c", source, "-o",
                               source[:-2] + ".o"], cwd=self.root, capture_output=True)
        return None if made.returncode else source[:-2] + ".o"

    def link(self, program, name, mutant, directory):
        """The program with that object in place of its own; None if it cannot be linked."""
        target = os.path.join(directory, program)
        own = name in self.links[program]
        words = []
        for word in self.links[program]:
            if word == "libleasefs.a" and not own:
                words.append(mutant)
            words.append(mutant if word == name else word)
        words[words.index("-o") + 1] = target
        os.makedirs(os.path.dirname(target), exist_ok=True)
        made = subprocess.run(words + LINKER, cwd=self.root, capture_output=True)
        return None if made.returncode else target

    def run(self, command, timeout, directory, **more):
        """A word NAME=VALUE of the command is put into the environment."""
        more.update(word.split("=", 1) for word in command if re.match(r"[A-Z_]+=", word))
        command = [word for word in command if not re.match(r"[A-Z_]+=", word)]
        environment = dict(os.environ, top_srcdir=self.sources, top_builddir=self.root, CK_TIMEOUT_MULTIPLIER="2", ASAN_OPTIONS="",
                           G_DEBUG="fatal-criticals", LEASEFS=os.path.join(directory, "leasefs"),
                           LEASERUN=os.path.join(directory, "leaserun"), **more)
        return run(command, self.root, timeout, environment)

    # What each program reaches.

    def compile_for_reach(self, files):
        directory = os.path.join(self.root, "reach")

        def compile_one(file):
            source, target = os.path.join(directory, file), os.path.join(directory, file[:-2] + ".o")
            if not is_newer(target, os.path.join(self.root, file)):
                write(source, read(os.path.join(self.root, file)))
                subprocess.run(self.compiler + ["-O0", "--coverage", "-c", source, "-o", target],
                               cwd=self.root, check=True, capture_output=True)
            return file[:-2] + ".o", target

        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            kept = dict(pool.map(compile_one, files))
        subprocess.run(["ar", "rc", os.path.join(directory, "all.a")] + list(kept.values()), check=True)
        return kept

    def measure(self, name, objects, bound):
        """Runs it without a mutant; (how it failed, seconds)."""
        directory = os.path.join(self.root, "reach")
        program = name.split("|")[0]
        data = os.path.join(directory, "data", re.sub(r"\W+", "_", name))
        kept = data + ".json"
        if is_newer(kept, os.path.join(self.root, program)):
            failure, seconds, reach = json.loads(read(kept))
        else:
            archive = os.path.join(directory, "all.a")
            used = {name: path for name, path in objects.items() if name in self.links[program]}
            words = [archive if w == "libleasefs.a" else used.get(w, w) for w in self.links[program]]
            built = os.path.join(directory, program)
            words[words.index("-o") + 1] = built
            with self.built[program]:
                if not is_newer(built, os.path.join(self.root, program)):
                    os.makedirs(os.path.dirname(built), exist_ok=True)
                    subprocess.run(words + ["--coverage"], cwd=self.root, check=True)
            began = time.monotonic()
            failure, _ = self.run([built, *name.split("|")[1:]], bound, directory, GCOV_PREFIX=data)
            if failure:  # once more: the machine may have been slow
                began = time.monotonic()
                failure, line = self.run([built, *name.split("|")[1:]], bound, directory, GCOV_PREFIX=data)
                failure += line
            seconds = time.monotonic() - began
            reach = self.read_reach(data)
            if not failure:
                write(kept, json.dumps((failure, seconds, reach)))
        self.reach[name] = reach
        return failure, seconds

    def read_reach(self, data):
        reach = {}
        prefix = os.path.join(self.root, "reach") + "/"
        for folder, _, names in os.walk(data):
            counts = [name for name in names if name.endswith(".gcda")]
            for name in counts:
                shutil.copy(os.path.join("/", os.path.relpath(folder, data), name[:-5] + ".gcno"), folder)
            text = counts and subprocess.run(["gcov", "-t", "-j", *counts], cwd=folder, capture_output=True, text=True).stdout
            for part in filter(None, text.split("\n") if text else []):
                for file in json.loads(part)["files"]:
                    if file["file"].startswith(prefix):
                        reach[file["file"][len(prefix):]] = (
                            [line["line_number"] for line in file["lines"] if line["count"]],
                            [(f["start_line"], f["end_line"]) for f in file["functions"] if f["execution_count"]])
        shutil.rmtree(data, ignore_errors=True)
        return reach

    def reaches(self, name, file, line):
        """2: it runs that line; 1: it runs that function; 0: neither."""
        lines, functions = self.reach.get(name, {}).get(file, ((), ()))
        return 2 if line in lines else 1 if any(first <= line <= last for first, last in functions) else 0
