#!/bin/sh
# README.md and docs/: the pictures are those that their script draws, a table fits a page, and links lead somewhere.
set -eu
cd "${top_srcdir:-$(dirname "$0")/..}"

if ! command -v python3 >/dev/null; then
    echo "1..0 # SKIP no python3"
    exit 0
fi

# shellcheck source=checks.sh
. tests/checks.sh

expect_none "$(tests/draw_pictures.py --check 2>&1 || :)" "the pictures are as tests/draw_pictures.py draws them"

expect_none "$(PYTHONPATH=tests PYTHONDONTWRITEBYTECODE=1 python3 - <<'END'
import re
from draw_pictures import results
rows = ("cycle, journal on tmpfs", "Redis: cycle", "Redis, wait=1, one replica: cycle", "Redis, redlock, 3 servers: cycle",
        "ZooKeeper: cycle: O_EXCL, close, unlink", "PostgreSQL: cycle, synchronous_commit=on")
times = {what: ours for (what, where, _), (ours, _) in results().items() if where != "one"}
want = [f"{times[row] / 1000:.1g} ms" for row in rows]
shown = re.search(r"(?m)^\| lock and unlock \| (.*) \|$", open("docs/stores.md", encoding="utf-8").read())[1].split(" | ")
if shown != want:
    print(f"docs/stores.md: lock and unlock: {shown}, and measured: {want}")
END
)" "the times in docs/stores.md are those that were measured"

expect_none "$(python3 - README.md docs/*.md <<'END'
import sys
for name in sys.argv[1:]:
    for number, line in enumerate(open(name, encoding="utf-8"), 1):
        if line.lstrip().startswith("|") and len(line.rstrip()) > 100:
            print(f"{name}:{number}: a table is {len(line.rstrip())} columns wide, more than 100")
END
)" "no table is wider than 100 columns"

expect_none "$(python3 - README.md CONTRIBUTING.md docs/*.md <<'END'
import pathlib, re, sys
def anchors(path):
    """Those of the headings of a Markdown file, as GitHub makes them."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", path.read_text(encoding="utf-8"))
    heads = re.findall(r"(?m)^#+ +(.*)$", text)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
for name in sys.argv[1:]:
    file = pathlib.Path(name)
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", file.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:", link):
            continue
        target, _, anchor = link.partition("#")
        path = file.parent / target if target else file
        if not path.exists():
            print(f"{name}: {link}: there is no such file")
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            print(f"{name}: {link}: there is no such heading")
END
)" "what they link to is there"

expect_none "$(python3 - <<'END'
import glob, re
for name in re.findall(r"`((?:tests/)?\w+(?:/\w+)*\*?(?:\.\w+)?)`", open("docs/tried.md", encoding="utf-8").read()):
    if name.startswith("test") and not glob.glob(name) and not glob.glob("tests/e2e/" + name) and not glob.glob(name + ".c"):
        print(f"docs/tried.md: there is no {name}")
END
)" "the tests that docs/tried.md names are there"

expect_none "$(python3 - docs/stores.md man/*.[78] <<'END'
import re, sys
def squeezed(line):
    return re.sub(r"\s+", " ", line.strip())
manuals = {squeezed(line) for name in sys.argv[2:] for line in open(name, encoding="utf-8")}
for block in re.findall(r"(?ms)^```conf\n(.*?)^```", open(sys.argv[1], encoding="utf-8").read()):
    if block.startswith("ACL ") and block + ".Ed\n" not in open("man/leasefs-redis.7", encoding="utf-8").read():
        print(f"{sys.argv[1]}: the ACL is not that of leasefs-redis(7)")
    for line in block.splitlines():
        if squeezed(line) not in manuals and not line.startswith("#"):
            print(f"{sys.argv[1]}: {line}: not in a manual")
END
)" "the settings to copy are those of the manuals"

end_checks
