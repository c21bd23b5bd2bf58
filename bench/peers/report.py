"""Turns measurements into a document, tables and verdicts. bench/peers/README.md defines the columns."""

import statistics

import storage

VERSION = 2
# Cairn's targets: how many times faster than the peer it must be.
TARGETS = [("disk", "save", "dcp", 3.5), ("disk", "save", "dcp-hf", 12.0), ("disk", "load 4 to 3", "dcp", 2.3),
           ("disk", "load 4 to 8", "dcp", 2.3), ("memory", "save", "dcp", 6.0), ("memory", "load 4 to 3", "dcp", 5.0),
           ("memory", "load 4 to 8", "dcp", 5.0), ("disk", "stall", "dcp-async-default", 20.0),
           ("memory", "stall", "dcp-async-default", 20.0)]
OPERATIONS = ("save", "load 4 to 3", "load 4 to 8", "stall", "until durable", "lost")
CAIRN = ("cairn", "cairn-async")  # no operation belongs to both
GIB = 2**30


def _ratio_of(median, cairn_median):
    """None without a reference. For "lost", Cairn's median may not be above 0."""
    return median / cairn_median if cairn_median is not None and cairn_median > 0 else None


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
        "gib_per_second": None if series.operation == "lost" else size_bytes / median / GIB,
        "ratio": _ratio_of(median, cairn_median),
        "verified": series.verified,
        "resident_bytes_after_drop": series.resident_bytes_after_drop,
        "details": series.details,
    }


def slow_down_row(bench, series, cairn_median):
    """The row of a system that saves asynchronously: the factor by which a step is longer while a save is under way."""
    median = statistics.median(series.seconds)
    return {
        "system": series.system,
        "setting": series.setting,
        "factors": series.seconds,
        "median": median,
        "min": min(series.seconds),
        "max": max(series.seconds),
        "ratio": _ratio_of(median, cairn_median),
        "step_seconds": statistics.median(details["step_seconds"] for details in series.details),
        "busy_step_seconds": statistics.median(details["busy_step_seconds"] for details in series.details),
        "stall_per_memcpy": _stall_per_memcpy(bench, series.system),
        "verified": series.verified,
        "details": series.details,
    }


def _stall_per_memcpy(bench, system):
    """Ratio of the medians. The same ranks copied the same bytes, between Cairn's saves."""
    cairn = bench.series.get(("cairn-async", "stall"))
    if cairn is None:
        return None
    copy = statistics.median(details["memcpy_seconds"] for details in cairn.details)
    return statistics.median(bench.series[system, "stall"].seconds) / copy


def directory_document(bench):
    """Rows of one directory, by operation and then in the order of the systems."""
    kind, source = storage.file_system_of(bench.directory)
    medians = {key: statistics.median(series.seconds) for key, series in bench.series.items()}
    cairn = {operation: median for (system, operation), median in medians.items() if system in CAIRN}
    order = {system.name: number for number, system in enumerate(bench.systems)}
    rows = [row_of(series, bench.workload.size_bytes, cairn.get(series.operation))
            for series in bench.series.values() if series.operation in OPERATIONS]
    rows.sort(key=lambda row: (OPERATIONS.index(row["operation"]), order[row["system"]]))
    slow_downs = [slow_down_row(bench, series, cairn.get("slow-down"))
                  for series in bench.series.values() if series.operation == "slow-down"]
    slow_downs.sort(key=lambda row: order[row["system"]])
    return {
        "kind": "memory" if bench.is_memory else "disk",
        "file_system": kind,
        "device": source if source.startswith("/dev/") else None,
        "cache_before_loads": "a memory file system, nothing to drop" if bench.is_memory
                              else "dropped by posix_fadvise(DONTNEED), checked by mincore",
        "not_measured": bench.unusable,
        "settings_tried": bench.tried,
        "rows": rows,
        "slow_downs": slow_downs,
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


HEADER = ["operation", "system", "median s", "min s", "max s", "GiB/s", "peer / Cairn", "verified", "setting"]
SLOW_DOWN_HEADER = ["system", "slow-down", "min", "max", "step ms", "meanwhile ms", "peer / Cairn", "stall / memcpy",
                    "verified", "setting"]
TEXTS = ("operation", "system", "verified", "setting")  # the other columns are numbers


def _number(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def _ratio(row):
    return "-" if row["system"] in CAIRN else _number(row["ratio"], 2)


def _setting(setting):
    return ", ".join(f"{key} {value}" for key, value in setting.items()) or "-"


def _cells(row):
    return [row["operation"], row["system"], f"{row['median_seconds']:.3f}", f"{row['min_seconds']:.3f}",
            f"{row['max_seconds']:.3f}", _number(row["gib_per_second"], 2), _ratio(row),
            "yes" if row["verified"] else "NO", _setting(row["setting"])]


def _slow_down_cells(row):
    return [row["system"], f"{row['median']:.2f}", f"{row['min']:.2f}", f"{row['max']:.2f}",
            f"{1e3 * row['step_seconds']:.2f}", f"{1e3 * row['busy_step_seconds']:.2f}", _ratio(row),
            _number(row["stall_per_memcpy"], 2), "yes" if row["verified"] else "NO", _setting(row["setting"])]


def tables_of(directory):
    """Rows of cells as wide as their column, the header first."""
    tables = [[HEADER] + [_cells(row) for row in directory["rows"]]]
    if directory["slow_downs"]:
        tables.append([SLOW_DOWN_HEADER] + [_slow_down_cells(row) for row in directory["slow_downs"]])
    return [_aligned(table) for table in tables]


def _aligned(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [[cell.ljust(width) if name in TEXTS else cell.rjust(width)
             for name, cell, width in zip(rows[0], row, widths)] for row in rows]


def _title(document):
    return f"{document['kind']} ({document['file_system']})"


def text_of(document):
    lines = []
    for directory in document["directories"]:
        lines += ["", f"{_title(directory)}; cache before loads: {directory['cache_before_loads']}"]
        for number, table in enumerate(tables_of(directory)):
            lines += [""] * (number > 0) + ["  ".join(row).rstrip() for row in table]
        lines += [f"not measured: {name}: {reason}" for name, reason in directory["not_measured"].items()]
    if document["targets"]:
        lines.append("")
    for target in document["targets"]:
        verdict = "met" if target["met"] else "MISSED"
        lines.append(f"target {target['kind']}, {target['operation']}, {target['peer']}: at least "
                     f"{target['wanted_ratio']}, found {target['found_ratio']:.2f}: {verdict}")
    return "\n".join(lines)


def profile_of(document):
    """The median of each of Cairn's phases, operation by operation, with the peers' whole times."""
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
        for rows in tables_of(directory):
            rule = ["-" * (len(cell) - 1) + ("-" if cell.strip() in TEXTS else ":") for cell in rows[0]]
            lines += ["| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]]] + [""]
        lines += [f"Not measured: {name}: {reason}." for name, reason in directory["not_measured"].items()]
        lines += [f"- tried {tried['system']} {tried['operation']}, {_setting(tried['setting'])}: {tried['seconds']:.3f} s"
                  for tried in directory["settings_tried"]]
    lines += ["", "## Targets", "", "| file system | operation | peer | wanted | found | |",
              "|---|---|---|---:|---:|---|"]
    for target in document["targets"]:
        lines.append(f"| {target['kind']} | {target['operation']} | {target['peer']} | {target['wanted_ratio']} | "
                     f"{target['found_ratio']:.2f} | {'met' if target['met'] else 'missed'} |")
    return "\n".join(lines) + "\n"
