"""Counts one ctest run from its JUnit report: prints "passed failed skipped".

A program counts once, as passed or failed; each case that it skipped also counts as skipped.
A program in which all cases were skipped has not passed. Sources of skipped cases: lines "[cairn] skipped NAME:
reason", the verbose output of unittest, and the totals of unittest and GoogleTest for cases without a line.
A program that ends with the exit status for skipped gives the reason in such a line, or in its last one.
The file of failures has the name of a failed program and the last lines that it printed, indented."""

import argparse
import re
import sys
import xml.etree.ElementTree

CAIRN_SKIP = re.compile(r"^\[cairn\] skipped (\S+.*?): (.*)$", re.MULTILINE)
# Output of a case before it skips itself comes between its name and this.
UNITTEST_SKIP = re.compile(r"^(?:(\S.*?) \.\.\. )?skipped (['\"])(.*)\2$", re.MULTILINE)
UNITTEST_TOTAL = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", re.MULTILINE)
GTEST_SKIPPED = re.compile(r"^\[  SKIPPED \] (\d+) tests?, listed below", re.MULTILINE)
FAILURE = re.compile(r"Failure$|^FAIL: |Error: |: error: |ERROR: |WARNING: ThreadSanitizer|runtime error")
GTEST_NONE_PASSED = re.compile(r"^\[  PASSED  \] 0 tests\.", re.MULTILINE)


def was_skipped(case):
    """Skipped by its own exit status or by configuration; a missing program is a failure."""
    skipped = case.find("skipped")
    return skipped is not None and (case.get("status") == "disabled" or skipped.get("message", "").startswith("SKIP_"))


def skips_inside(name, output):
    """("case: reason" of each skipped case, whether any case was run and not skipped)."""
    lines = [f"{case}: {reason}" for case, reason in CAIRN_SKIP.findall(output)]
    verbose = [f"{name} {case}".rstrip() + f": {reason}" for case, _, reason in UNITTEST_SKIP.findall(output)]
    ran, python_skips = 0, 0
    for total, details in UNITTEST_TOTAL.findall(output):
        skipped = re.search(r"\bskipped=(\d+)", details)
        python_skips += int(skipped[1]) if skipped else 0
        ran += int(total)
    gtest_skips = sum(int(total) for total in GTEST_SKIPPED.findall(output))
    lines += verbose
    unnamed = max(0, python_skips - len(verbose)) + max(0, gtest_skips - (len(lines) - len(verbose)))
    lines += [f"{name}: a case was skipped without a line that says why"] * unnamed
    # With several ranks, only rank 0 prints totals; a case that it skipped may have run on another rank.
    on_all_ranks = not any(re.search(r" on rank \d+: ", line) for line in lines)
    only_skips = (python_skips > 0 and ran <= python_skips) or (
        gtest_skips > 0 and on_all_ranks and bool(GTEST_NONE_PASSED.search(output)))
    return lines, not only_skips


def append_lines(path, lines):
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


def last_lines(output):
    """The last output of a failing program, after the first lines that look like the failure itself."""
    lines = [line[:200] for line in output.splitlines() if line.strip()]
    last = max(0, len(lines) - 15)
    told = [line for line in lines[:last] if FAILURE.search(line)][:15]
    return ["    " + line for line in told + lines[last:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report")
    parser.add_argument("--skips", required=True, help="file to which 'name: reason' lines are appended")
    parser.add_argument("--failures", required=True, help="file to which names and last lines are appended")
    options = parser.parse_args()
    try:
        cases = list(xml.etree.ElementTree.parse(options.report).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        print(f"no usable report of ctest: {error}", file=sys.stderr)
        append_lines(options.failures, [f"no usable report of ctest: {error}"])
        print("0 1 0")
        return
    passed = failed = 0
    skips, failures = [], []
    for case in cases:
        output = case.findtext("system-out") or ""
        inside, ran_something = skips_inside(case.get("name"), output)
        if case.get("status") == "run":
            passed += 1 if ran_something else 0
            skips += inside
        elif was_skipped(case):
            last = (output.strip().splitlines() or [case.find("skipped").get("message")])[-1]
            skips += inside or [f"{case.get('name')}: {last}"]
        else:
            failed += 1
            failure = case.find("failure")
            message = failure.get("message") if failure is not None else None
            failures += [f"{case.get('name')}: {message or 'failed'}", *last_lines(output)]
            skips += inside
    append_lines(options.skips, skips)
    if failures:
        append_lines(options.failures, failures)
    print(passed, failed, len(skips))


if __name__ == "__main__":
    main()
