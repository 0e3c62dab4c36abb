#!/usr/bin/env python3
"""docs/troubleshooting.md lists each message of level error, warning or notice, A to Z, and no others.

A message is the format of a function that writes one, with WORD or N for each value.  Prints TAP; with --print, the
messages of the source, and the file of each.
"""
import os
import pathlib
import re
import sys

os.chdir(os.environ.get("top_srcdir") or pathlib.Path(__file__).resolve().parent.parent)
DOCUMENT = "docs/troubleshooting.md"
BEGIN, END = "## Messages", "\n## "
LOG = {"log_error", "log_warning", "log_notice", "log_audit", "warn", "warnx"}
# Functions whose text is logged as an error or a warning later, and which of their arguments it is.
LATER = {"options_fail": 1, "keep_fail": 3, "sandbox_fail": 3, "complain": 2, "preflight_note": 2, "conn_fail": 2, "info_add": 1,
         "connect_fail": 1, "g_ptr_array_add": 1}
BUFFER = re.compile(r"(\w+->)?error\b")
TABLE = re.compile(r'\{"[A-Z][^"\n]*",\s*"((?:[^"\\]|\\.)*)"\}')  # what a reply of Redis means
STRING = r'"(?:[^"\\]|\\.)*"'
# What a failure was about, and what to do, with its reason between them, or without it if the second is NULL.
AROUND = re.compile(rf"\[REDIS_\w+\] =\s+\{{-\w+,\s*((?:{STRING}\s*)+),\s*(NULL|(?:{STRING}\s*)+)\}}")
RETURNED = re.compile(rf"return g_strdup_printf\(\s*((?:{STRING}\s*)+),")
VALUE = re.compile(r"%[-#0 +]*(\*|\d+)?(\.(\*|\d+)?)?(hh|h|ll|l|z|j|t)?([diouxXgfecs%])")
NUMBERS = "diouxXgfe"


def split(text, separators):
    """Splits at separators that are in no string and in no parentheses."""
    parts, depth, begin = [], 0, 0
    for token in re.finditer(STRING + r"|'(?:[^'\\]|\\.)*'|.", text, re.S):
        c = token.group()
        depth += (c in ("(", "[", "{")) - (c in (")", "]", "}"))
        if depth == 0 and c in separators:
            parts.append(text[begin : token.start()])
            begin = token.end()
    return parts + [text[begin:]]


def call_arguments(text, start):
    """The arguments of the call whose parenthesis is at `start`."""
    depth = 0
    for token in re.finditer(STRING + r"|'(?:[^'\\]|\\.)*'|[()]", text[start:], re.S):
        depth += (token.group() == "(") - (token.group() == ")")
        if depth == 0:
            return [part.strip() for part in split(text[start + 1 : start + token.start()], ",")]
    raise ValueError("a call does not end")


def joined(strings):
    return "".join("%s" if string == "PACKAGE_VERSION" else string[1:-1] for string in re.findall(STRING + "|PACKAGE_VERSION", strings))


def defined(source):
    """The macros that are strings."""
    return {name: joined(strings) for name, strings in
            re.findall(rf"(?m)^#define (\w+)(?:\s|\\\n)+((?:(?:{STRING}|PACKAGE_VERSION)(?:\s|\\\n)*)+)$", source)}


def formats(argument, macros):
    """The texts of an argument: several where it chooses between them."""
    inner = re.match(r"g_strdup(_printf)?(\()", argument)
    if inner:
        argument = call_arguments(argument, inner.start(2))[0]
    for choice in split(argument, "?:"):
        text = ""
        for token in re.findall(STRING + r"|\w+", choice):
            text += token[1:-1] if token[0] == '"' else macros.get(token, "")
            text += "d" if re.match(r"PRI\w+$|G_G\w+_FORMAT$|G_G\w+_MODIFIER$", token) else ""
        if '"' in choice or choice.strip() in macros:
            yield text


def shown(format_):
    text = VALUE.sub(lambda value: "%" if value[5] == "%" else "N" if value[5] in NUMBERS else "WORD", format_)
    return text.replace('\\"', '"').replace("\\\\", "\\").replace("\\n", "").strip()


SHARED = defined(pathlib.Path("backend/format.h").read_text())


def texts(path):
    source = re.sub(r"(?s)/\*.*?\*/", "", path.read_text())
    macros = SHARED | defined(source)
    yield from TABLE.findall(source)
    for before, after in AROUND.findall(source):
        yield joined(before) if after == "NULL" else joined(before) + "%s" + joined(after)
    yield from (text for text in map(joined, RETURNED.findall(source)) if ": run " in text)
    for call in re.finditer(r"(?<![\w>.])(\w+)(\()", source):
        name, words = call.group(1), None
        if name in LOG or name in LATER or name.endswith("snprintf"):
            words = call_arguments(source, call.start(2))
        if not words or re.match(r"(const|struct|char) ", words[0]):
            continue  # no such function, or its definition
        if name == "g_ptr_array_add" and not words[0].endswith("warnings"):
            continue
        index = 0 if name in LOG else LATER.get(name, 2)
        if index < len(words) and (index < 2 or name in LATER or BUFFER.match(words[0])):
            yield from formats(words[index], macros)


def messages():
    found = {}
    for path in [*pathlib.Path("backend").rglob("*.c"), *pathlib.Path("fs").rglob("*.c")]:
        for format_ in texts(path):
            message = shown(format_)
            # one that is all values gets its words elsewhere
            if re.search(r"[a-z]{3}", message):
                found.setdefault(message, str(path))
    return found


def order(message):
    return re.sub(r"[^a-z0-9 ]", "", re.sub(r"\b(WORD|N)\b", "", message).lower()).strip()


def listed():
    text = pathlib.Path(DOCUMENT).read_text(encoding="utf-8")
    section = text.partition(BEGIN)[2].partition(END)[0]
    return re.findall(r"(?m)^\*\*`` ?(.*?) ?``\*\*", section)


def tell(number, complaints, name):
    print("ok" if not complaints else "not ok", number, "-", name)
    for complaint in complaints:
        print("#", complaint)
    return not complaints


def main():
    source = messages()
    if sys.argv[1:] == ["--print"]:
        for message in sorted(source, key=order):
            print(f"{message}\t{source[message]}")
        return 0
    document = listed()
    print("1..3")
    good = [
        tell(1, [f"{source[m]}: {m}" for m in sorted(set(source) - set(document))], f"{DOCUMENT} has each message"),
        tell(2, sorted(set(document) - set(source)), "it has no others"),
        tell(3, [m for a, m in zip(document, document[1:]) if order(a) > order(m)], "they are in order, A to Z"),
    ]
    return 0 if all(good) else 1


sys.exit(main())
