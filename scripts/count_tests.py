"""Counts one ctest run from its JUnit report: prints "passed failed skipped". A test program tells of each skipped case
by a line "[cairn] skipped NAME: reason"; those count as skipped beside the program's own verdict."""

import argparse
import re
import sys
import xml.etree.ElementTree

SKIP_LINE = re.compile(r"^\[cairn\] skipped (\S+.*?): (.*)$", re.MULTILINE)


def was_skipped(case):
    """By its own exit status or by configuration; a program that is not there is a failure."""
    skipped = case.find("skipped")
    return skipped is not None and (case.get("status") == "disabled" or skipped.get("message", "").startswith("SKIP_"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report")
    parser.add_argument("--skips", required=True, help="file to which 'name: reason' lines are appended")
    options = parser.parse_args()
    try:
        cases = list(xml.etree.ElementTree.parse(options.report).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        print(f"no usable report of ctest: {error}", file=sys.stderr)
        print("0 1 0")
        return
    passed = failed = 0
    skips = []
    for case in cases:
        lines = SKIP_LINE.findall(case.findtext("system-out") or "")
        inside = [f"{name}: {reason}" for name, reason in lines]
        if case.get("status") == "run":
            passed += 1
            skips += inside
        elif was_skipped(case):
            skips += inside[:1] or [f"{case.get('name')}: {case.find('skipped').get('message')}"]
        else:
            failed += 1
            skips += inside
    with open(options.skips, "a", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in skips)
    print(passed, failed, len(skips))


if __name__ == "__main__":
    main()
