"""From what was measured to a document, a table and a verdict. Columns are defined in bench/peers/README.md."""

import statistics

import storage

VERSION = 1
# Cairn's targets: how many times faster than the peer it must be.
TARGETS = [("disk", "save", "dcp", 3.5), ("disk", "save", "dcp-hf", 12.0), ("disk", "load 4 to 3", "dcp", 2.3),
           ("disk", "load 4 to 8", "dcp", 2.3), ("memory", "save", "dcp", 6.0), ("memory", "load 4 to 3", "dcp", 5.0),
           ("memory", "load 4 to 8", "dcp", 5.0)]
OPERATIONS = ("save", "stall", "load 4 to 3", "load 4 to 8")
GIB = 2**30


def row_of(series, size_bytes, cairn_median):
    median = statistics.median(series.seconds)
    return {
        "system": series.system,
        "operation": series.operation,
        "setting": series.setting,
        "seconds": series.seconds,
        "median_seconds": median,
        "min_seconds": min(series.seconds),
        "max_seconds": max(series.seconds),
        "gib_per_second": size_bytes / median / GIB,
        "ratio": None if cairn_median is None else median / cairn_median,
        "verified": series.verified,
        "resident_bytes_after_drop": series.resident_bytes_after_drop,
        "details": series.details,
    }


def directory_document(bench):
    """Rows of one directory, by operation and then as the systems are listed."""
    kind, source = storage.file_system_of(bench.directory)
    medians = {key: statistics.median(series.seconds) for key, series in bench.series.items()}
    order = {system.name: number for number, system in enumerate(bench.systems)}
    rows = [row_of(series, bench.workload.size_bytes, medians.get(("cairn", series.operation)))
            for series in bench.series.values()]
    rows.sort(key=lambda row: (OPERATIONS.index(row["operation"]), order[row["system"]]))
    return {
        "kind": "memory" if bench.is_memory else "disk",
        "file_system": kind,
        "device": source if source.startswith("/dev/") else None,
        "cache_before_loads": "a memory file system, nothing to drop" if bench.is_memory
                              else "dropped by posix_fadvise(DONTNEED), checked by mincore",
        "not_measured": bench.unusable,
        "settings_tried": bench.tried,
        "rows": rows,
    }


def targets_of(directories):
    out = []
    for kind, operation, peer, wanted in TARGETS:
        for document in directories:
            if document["kind"] != kind:
                continue
            found = [row["ratio"] for row in document["rows"] if (row["system"], row["operation"]) == (peer, operation)]
            if found and found[0] is not None:
                out.append({"kind": kind, "operation": operation, "peer": peer, "wanted_ratio": wanted,
                            "found_ratio": found[0], "met": found[0] >= wanted})
    return out


def _cells(row):
    ratio = "-" if row["ratio"] is None or row["system"] == "cairn" else f"{row['ratio']:.2f}"
    setting = ", ".join(f"{key} {value}" for key, value in row["setting"].items()) or "-"
    return [row["operation"], row["system"], f"{row['median_seconds']:.3f}", f"{row['min_seconds']:.3f}",
            f"{row['max_seconds']:.3f}", f"{row['gib_per_second']:.2f}", ratio,
            "yes" if row["verified"] else "NO", setting]


HEADER = ["operation", "system", "median s", "min s", "max s", "GiB/s", "peer / Cairn", "verified", "setting"]
NUMERIC = range(2, 7)


def _aligned(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [[cell.rjust(width) if column in NUMERIC else cell.ljust(width)
             for column, (cell, width) in enumerate(zip(row, widths))] for row in rows]


def _title(document):
    return f"{document['kind']} ({document['file_system']})"


def text_of(document):
    lines = []
    for directory in document["directories"]:
        lines += ["", f"{_title(directory)}; cache before loads: {directory['cache_before_loads']}"]
        lines += ["  ".join(row).rstrip() for row in _aligned([HEADER] + [_cells(row) for row in directory["rows"]])]
        lines += [f"not measured: {name}: {reason}" for name, reason in directory["not_measured"].items()]
    if document["targets"]:
        lines.append("")
    for target in document["targets"]:
        verdict = "met" if target["met"] else "MISSED"
        lines.append(f"target {target['kind']}, {target['operation']}, {target['peer']}: at least "
                     f"{target['wanted_ratio']}, found {target['found_ratio']:.2f}: {verdict}")
    return "\n".join(lines)


def profile_of(document):
    """Where Cairn's time goes, operation by operation: the median of each phase beside the peers' whole times."""
    lines = []
    for directory in document["directories"]:
        for row in directory["rows"]:
            if row["system"] != "cairn":
                continue
            beside = ", ".join(f"{other['system']} {other['median_seconds']:.3f} s" for other in directory["rows"]
                               if other["operation"] == row["operation"] and other["system"] != "cairn")
            lines += ["", f"{_title(directory)}, {row['operation']}: Cairn {row['median_seconds']:.3f} s, engine "
                          f"{row['details'][0]['engine']}; {beside}"]
            phases = {}
            for details in row["details"]:
                for phase in details["phases"]:
                    phases.setdefault(phase["name"], []).append(phase["seconds"])
            lines += [f"  {name:<12} {statistics.median(seconds):8.3f} s" for name, seconds in phases.items()]
    return "\n".join(lines)


def markdown_of(document):
    machine, workload = document["machine"], document["workload"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    lines = [f"# Cairn and its peers, {document['date']}", "",
             f"{workload['size_bytes']:,} bytes ({workload['size_bytes'] / GIB:.2f} GiB) in {workload['tensors']} "
             f"tensors, saved by 4 ranks ({workload['save_layout']}), every file and the directory synced; medians of "
             f"{document['repeats']}. Columns: `bench/peers/README.md`.", "",
             f"Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory_bytes'] / GIB:.0f} GiB, "
             f"{machine['operating_system']}, kernel {machine['kernel']}, one node, load average "
             f"{machine['load_average_at_start']} at the start. {versions}.", "", f"Command: `{document['command']}`"]
    for directory in document["directories"]:
        lines += ["", f"## {_title(directory).capitalize()}", "",
                  f"Cache before loads: {directory['cache_before_loads']}.", ""]
        rows = _aligned([HEADER] + [_cells(row) for row in directory["rows"]])
        rule = ["-" * (len(cell) - 1) + (":" if column in NUMERIC else "-") for column, cell in enumerate(rows[0])]
        lines += ["| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]]]
        lines += ["", *(f"Not measured: {name}: {reason}." for name, reason in directory["not_measured"].items())]
    lines += ["", "## Targets", "", "| file system | operation | peer | wanted | found | |",
              "|---|---|---|---:|---:|---|"]
    for target in document["targets"]:
        lines.append(f"| {target['kind']} | {target['operation']} | {target['peer']} | {target['wanted_ratio']} | "
                     f"{target['found_ratio']:.2f} | {'met' if target['met'] else 'missed'} |")
    return "\n".join(lines) + "\n"
