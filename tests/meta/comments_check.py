"""Comments of C++ and CUDA sources: no line of one is longer than 120 columns, and none has turns that a native editor would
strike out: a sentence that begins with "what", "how", "which", "why", "who" or "of ...", "for who", "nobody", "is no directory",
"other files than"."""

import re

from tree import run_check, tracked_files

FOLDERS = ("src/", "include/", "apps/", "bench/", "tests/")
SOURCES = (".cpp", ".hpp", ".h", ".c", ".cu", ".cuh")
WIDTH = 120

TOKEN = re.compile(r"""
    R"(?P<mark>[^()\\\s]{0,16})\((?:.|\n)*?\)(?P=mark)"  # raw strings, which may hold anything
  | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'            # strings and characters
  | (?P<line>//[^\n]*) | (?P<block>/\*(?:.|\n)*?\*/)
  | (?:.|\n)""", re.VERBOSE)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`'\"(])")
ANYWHERE = [(re.compile(pattern), better) for pattern, better in [
    (r"\b(?:for|by|of|to|from|with) who\b", "write 'for a caller that ...'"),
    (r"\b[Nn]obody\b", "write 'no rank', 'no caller'"),
    (r"\b(?:is|are) none of\b|\b(?:that|which|it) is none\b", "write 'is not ...'"),
    (r"(?<![Tt]here )\bis no (?!longer\b|more\b|less\b|later\b|better\b|larger\b|smaller\b|other\b|need\b|use\b|way\b)[a-z]+",
     "write 'is not a ...'"),
    (r"\b(?:[Oo]ther|[Aa]nother) (?:(?!rather\b)\w+ ){1,2}than\b", "write 'a file other than', 'a different file'"),
    (r"\bgoe?s? on all the same\b", "write 'is still running'"),
    (r"\bis to word\b|\bbefore which it tried\b|\bthat is kept meanwhile\b|\bthe late memory\b|\bgo beside others\b"
     r"|\bhears of them in such steps\b|\bwhat is called inside the call\b|\bThe same in two parts\b",
     "write it as a native speaker would")]]
BEGINS = [(re.compile(pattern), better) for pattern, better in [
    (r"(?:What|Who|Whose|How|Which|Why)\b(?!.*\?$)", "name the subject of the sentence"),
    (r"Of (?!course\b)(?!.*\?$)", "name the subject of the sentence")]]


def comments(text):
    """(line number of its begin, text) of each comment; comments on consecutive lines are one."""
    found, number = [], 1
    last = None  # line of the // comment that the next one may continue
    for match in TOKEN.finditer(text):
        token = match[0]
        if match["line"]:
            words = re.sub(r"^//[/!]?<? ?", "", token)
            is_alone = text[:match.start()].rsplit("\n", 1)[-1].strip() == ""
            if last == number - 1 and is_alone and words and not words.startswith((" ", "- ")):
                found[-1][1].append(words)
            else:
                found.append((number, [words]))
            last = number if words and (is_alone or token.startswith("///<")) else None
        elif match["block"]:
            found.append((number, [re.sub(r"\n\s*\*? ?", " ", token[2:-2])]))
        number += token.count("\n")
    return [(number, " ".join(parts).strip()) for number, parts in found]


def long_lines(text):
    """(line number, columns) of lines over the limit that end in a comment."""
    lines = text.splitlines()
    if all(len(line) <= WIDTH for line in lines):
        return []
    has_comment, number = set(), 1
    for match in TOKEN.finditer(text):
        count = match[0].count("\n")
        if match["line"] or match["block"]:
            has_comment.update(range(number, number + count + 1))
        number += count
    return [(number, len(line)) for number, line in enumerate(lines, start=1) if len(line) > WIDTH and number in has_comment]


def faults_of(comment):
    """(words, better wording) of all faults found."""
    found = [(match[0], better) for pattern, better in ANYWHERE for match in pattern.finditer(comment)]
    for sentence in SENTENCE_END.split(comment):
        found += [(sentence[:50], better) for pattern, better in BEGINS if pattern.match(sentence)]
    return found


def check(root, _options):
    findings, seen = [], 0
    for name in tracked_files(root):
        if not name.startswith(FOLDERS) or not name.endswith(SOURCES) or name.startswith("tests/data/"):
            continue
        text = (root / name).read_text()
        findings += [f"{name}:{number}: {columns} columns; break the comment by hand at {WIDTH} at most"
                     for number, columns in long_lines(text)]
        for number, comment in comments(text):
            seen += 1
            findings += [f"{name}:{number}: '{words}': {better}" for words, better in faults_of(comment)]
    print(f"{seen} comments checked")
    return findings if seen else ["no comment found"]


if __name__ == "__main__":
    run_check(__doc__, check)
