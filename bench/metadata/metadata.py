"""Measures the cost of a checkpoint's metadata with many tensors; bench/README.md, "Metadata"."""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import arguments
import checkpoint

HERE = pathlib.Path(__file__).resolve().parent
# Runs a command, and prints its processor seconds, processes it starts included, and the KiB of its largest process.
METER = """
import resource, subprocess, sys
run = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=False)
use = resource.getrusage(resource.RUSAGE_CHILDREN)
print(use.ru_utime + use.ru_stime, use.ru_maxrss)
sys.exit(run.returncode)
"""


def measure(command):
    run = subprocess.run([sys.executable, "-c", METER, *map(str, command)], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{run.stderr}")
    seconds, kib = run.stdout.split()
    return float(seconds), int(kib) / 1024


def check_reference(folder, tensors):
    found = subprocess.run([sys.executable, HERE / "reference.py", folder], capture_output=True, text=True, check=True)
    if int(found.stdout) != tensors:
        raise SystemExit(f"the reference sees {found.stdout.strip()} tensors, not {tensors}")


def check_inspect(cairn, folder, tensors, sections):
    shown = subprocess.run([cairn, "inspect", folder], capture_output=True, text=True, check=True).stdout
    rows = sum(line.startswith(("model ", "optimizer ", "master_weights ")) for line in shown.splitlines())
    if rows != tensors + sections:  # a section has a row, too
        raise SystemExit(f"inspect shows {rows - sections} tensors, not {tensors}")


def check_json(cairn, folder, tensors):
    shown = subprocess.run([cairn, "inspect", folder, "--json"], capture_output=True, text=True, check=True).stdout
    found = len(json.loads(shown)["tensors"])
    if found != tensors:
        raise SystemExit(f"inspect --json shows {found} tensors, not {tensors}")


def main():
    options = arguments.parse(sys.argv[1:])
    cairn = options.bin / "cairn"
    with tempfile.TemporaryDirectory(prefix="cairn-metadata-", dir=options.directory) as folder:
        one, other = pathlib.Path(folder) / "checkpoint-1", pathlib.Path(folder) / "checkpoint-2"
        tensors = checkpoint.write_checkpoint(one, options.tensors, options.files)
        checkpoint.write_checkpoint(other, options.tensors, options.files)
        check_reference(one, tensors)
        check_inspect(cairn, one, tensors, 3)
        flat = pathlib.Path(folder) / "one-section"
        flat_tensors = checkpoint.write_one_section(flat, options.tensors, options.files)
        check_reference(flat, flat_tensors)
        check_inspect(cairn, flat, flat_tensors, 1)
        check_json(cairn, flat, flat_tensors)
        commands = {
            "reference": [sys.executable, HERE / "reference.py", one],
            "inspect": [cairn, "inspect", one],
            "diff": [options.mpirun, "-n", options.ranks, cairn, "diff", one, other],
            "table-1": [cairn, "inspect", flat],
            "json-1": [cairn, "inspect", flat, "--json"],
            "diff-1": [options.mpirun, "-n", options.ranks, cairn, "diff", flat, flat],
        }
        load = [options.mpirun, "-n", options.ranks, options.bin / "cairn_metadata_load", folder, tensors]
        runs = {name: [] for name in [*commands, "load"]}
        for _ in range(options.repeats):  # in turn
            for name, command in commands.items():
                runs[name].append(measure(command))
            shown = subprocess.run(list(map(str, load)), capture_output=True, text=True, check=True).stdout.split()
            runs["load"].append((float(shown[0]), int(shown[1]) / 1024))
    figures = {"tensors": tensors, "files": options.files // 4 * 4, "ranks": options.ranks, "commands": {}}
    figures["one_section"] = {"tensors": flat_tensors, "files": options.files}
    print(f"{tensors} tensors in {figures['files']} files, {options.repeats} rounds, diff and load on {options.ranks} ranks")
    for name, results in runs.items():
        seconds = statistics.median(result[0] for result in results)
        mib = max(result[1] for result in results)
        figures["commands"][name] = {"processor_s": seconds, "process_mib": mib, "rounds": results}
        print(f"{name:10} {seconds:6.2f} s of processor time, {mib:5.0f} MiB in the largest process")
    ratio = figures["commands"]["inspect"]["processor_s"] / figures["commands"]["reference"]["processor_s"]
    figures["inspect_over_reference"] = ratio
    print(f"inspect / reference: {ratio:.2f}")
    json_ratio = figures["commands"]["json-1"]["processor_s"] / figures["commands"]["table-1"]["processor_s"]
    figures["json_over_table"] = json_ratio
    print(f"json-1 / table-1: {json_ratio:.2f}")
    if options.output:
        options.output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 1 if options.check and (ratio > 1 or json_ratio > 2) else 0


if __name__ == "__main__":
    sys.exit(main())
