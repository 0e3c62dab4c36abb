"""mutate: the mutants of one source file.

A mutant is one small change that a programmer could make by mistake.
Comments, strings and preprocessor lines are never changed.
"""
import re

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "~=": "=="}
C_WORDS = {"if", "while", "for", "switch", "return", "sizeof", "do", "else", "goto", "break", "continue", "case", "default"}


def blank(text, lua):
    """The text with comments, strings and preprocessor lines replaced by spaces, of the same length."""
    if lua:
        pattern = r"--\[\[.*?\]\]|--[^\n]*|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\""
    else:
        pattern = r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:\\\n|[^\n])*"
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S | re.M)


def closing(code, start):
    """The position of the bracket that closes the one at `start`; -1 if there is none."""
    depth = 0
    for at in range(start, len(code)):
        depth += code[at] in "([{"
        depth -= code[at] in ")]}"
        if depth == 0:
            return at
    return -1


def operand_end(code, at, step, stops):
    """The end of the operand that begins at `at`, in the direction of `step`."""
    depth = 0
    while 0 <= at < len(code):
        depth += (code[at] in "([{") * step - (code[at] in ")]}") * step
        if depth < 0 or (depth == 0 and re.match(stops, code[at:at + 6] if step > 0 else code[max(at - 5, 0):at + 1])):
            break
        at += step
    return at


def conditions(code, lua):
    if lua:
        for match in re.finditer(r"\b(?:if|elseif|while)\b(.*?)\b(?:then|do)\b", code, re.S):
            yield match.start(1), match.end(1)
    else:
        for match in re.finditer(r"\b(?:if|while) \(", code):
            end = closing(code, match.end() - 1)
            if end > 0:
                yield match.end(), end


def negated(code, lua):
    for start, end in conditions(code, lua):
        old = code[start:end]
        if old.strip() and old.strip() not in ("true", "false"):
            yield start, end, (f" not ({old.strip()}) " if lua else f"!({old})"), "negate"


def shifted(code, lua):
    pattern = r" (<=|>=|==|~=|<|>) " if lua else r" (<=|>=|==|!=|<|>) "
    for match in re.finditer(pattern, code):
        yield match.start(1), match.end(1), COMPARISONS[match.group(1)], "compare"


def dropped(code, lua):
    for match in re.finditer(r" (and|or) " if lua else r" (&&|\|\|)[ \n]", code):
        stops_after = r"(and|or|then|do|end|return)\b|[\n;,]" if lua else r"&&|\|\||[;?:,]"
        end = operand_end(code, match.end(), 1, stops_after)
        right = code[match.start():end]
        if right.strip() and "=" not in re.sub(r"[=!<>~]=", "", right):
            keep = " " if lua else ""
            yield match.start(), end, keep, "drop"


def removed(code, lua):
    if lua:
        pattern = r"^[ ]+(?:call|redis\.\w+|[a-z_.]+)(?:\([^\n]*\)| = [^\n]+)$"
    else:
        pattern = r"^[ ]+[a-z_][\w>.\-\[\]]*(?:\([^;\n]*\)| [-+|&]?= [^;\n]+|\+\+|--);$"
    for match in re.finditer(pattern, code, re.M):
        text = match.group().strip()
        if text.split("(")[0].split(" ")[0] in C_WORDS or text.startswith("local "):
            continue
        if lua:
            yield match.start(), match.end(), "", "remove"
        elif "=" not in text or re.match(r"[\w>.\-\[\]]+ [-+|&]?= ", text):
            yield match.start(), match.end(), "    ;", "remove"


def constants(code, lua):
    for match in re.finditer(r"(?<![\w.])(\d{1,6})(?![\w.])", code):
        yield match.start(), match.end(), str(int(match.group()) + 1), "constant"


def early(code, lua):
    if not lua:
        for match in re.finditer(r"^(?:static )?(void|bool|int|unsigned|int64_t|size_t) \w+\([^;{}]*\)\n\{\n", code, re.M):
            yield match.end(), match.end(), "    return;\n" if match.group(1) == "void" else "    return 0;\n", "return"


def swapped(code, lua):
    for match in re.finditer(r"\b[a-z_]\w+\(([^()\n;]*)\)", code):
        arguments = match.group(1).split(", ")
        for i in range(len(arguments) - 1):
            a, b = arguments[i], arguments[i + 1]
            if a != b and all(re.fullmatch(r"[a-z_][\w.>\-]*", x) for x in (a, b)):
                new = ", ".join(arguments[:i] + [b, a] + arguments[i + 2:])
                yield match.start(1), match.end(1), new, "swap"


def mutants(text, lua):
    """Each as (line, operator, what stood there, what stands there now, (start, end, replacement))."""
    code = blank(text, lua)
    for operator in (negated, shifted, dropped, removed, constants, early, swapped):
        for start, end, new, name in operator(code, lua):
            if name == "drop" or name == "remove" or "negate" in name or name == "swap":
                if name == "negate":
                    new = new.replace(code[start:end].strip(), text[start:end].strip())
            line = text.count("\n", 0, start + len(text[start:end]) - len(text[start:end].lstrip())) + 1
            yield line, name, " ".join(text[start:end].split()), " ".join(new.split()), (start, end, new)
