"""Compares Cairn with other systems. Started by bench/peers/run, which describes the options. Exits with 1 when a
system's bytes were wrong, or, with --check, when a target was missed.
"""

import datetime
import json
import os
import shlex
import shutil
import signal
import sys

import machine
import report
import storage
import workload
from arguments import SYSTEMS, parse
from cairn_program import Cairn, CairnAsync
from measure import Bench, say
from programs import Hdf5, Launcher, Raw
from safetensors_files import Gathered, Shards
from system import LOAD_LAYOUTS, SAVE_LAYOUT, Workload
from torch_async import DcpAsync, DcpAsyncDefault, DcpAsyncProcess
from torch_dcp import Dcp, DcpHuggingFace, DcpHuggingFaceOnAllRanks

LARGEST_FILE = 500_000_000


def systems_of(options, launcher):
    every = [Cairn(launcher, options.engine), Dcp(), DcpHuggingFace(), DcpHuggingFaceOnAllRanks(), Gathered(), Shards(),
             Hdf5(launcher), Raw(launcher, is_direct=True), Raw(launcher, is_direct=False),
             CairnAsync(launcher, options.engine), DcpAsync(), DcpAsyncProcess(), DcpAsyncDefault()]
    assert tuple(system.name for system in every) == SYSTEMS
    return [system for system in every if system.name in options.systems]


def work_folder(parent, number, size_bytes):
    """A folder of this run. bench/peers/run is told of it before it exists, and removes it however this
    program ends."""
    if not parent.is_dir():  # a wrong path would be made on another disk
        raise SystemExit(f"{parent} is not a directory: give --directory one on the file system to be measured")
    free = shutil.disk_usage(parent).free
    if free < 3 * size_bytes:
        raise SystemExit(f"{parent}: {free:,} bytes are free and {3 * size_bytes:,} are needed; "
                         "take another --directory or --size")
    folder = parent.resolve() / f"cairn-peers-{os.getpid()}-{number}"
    with open(os.environ["CAIRN_PEERS_FOLDERS"], "a", encoding="utf-8") as folders:
        folders.write(f"{folder}\n")
    folder.mkdir()
    return folder


def measure(options, systems, load, folders):
    benches = [Bench(folder, systems, load) for folder in folders]
    if not options.no_trials:
        for bench in benches:
            say(f"trying settings in {bench.directory.parent}")
            bench.try_settings(attempts=2 if options.repeats >= 3 else 1)
    for number in range(options.repeats):
        for bench in benches:
            say(f"round {number + 1} of {options.repeats} in {bench.directory.parent}")
            bench.round(number)
    return benches


def document_of(options, systems, benches, load):
    tensors = workload.tensors_of(load.config)
    directories = [report.directory_document(bench) for bench in benches]
    return {
        "cairn_peers_json": report.VERSION,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": shlex.join(["bench/peers/run", *options.given]),
        "workload": {"size_bytes": load.size_bytes, "tensors": len(tensors), "config": load.config,
                     "max_file_bytes": load.max_file_bytes, "save_layout": SAVE_LAYOUT,
                     "load_layouts": list(LOAD_LAYOUTS.values())},
        "repeats": options.repeats,
        "systems": {system.name: system.title for system in systems},
        "directories": directories,
        "targets": report.targets_of(directories),
    }


def write(options, document):
    outputs = [options.output] if options.output else []
    if options.results:
        outputs.append(machine.ROOT / "bench/results" / f"peers-{document['date']}.json")
    for path in outputs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n")
        path.with_suffix(".md").write_text(report.markdown_of(document))
        say(f"wrote {path} and {path.with_suffix('.md')}")


def main():
    given = sys.argv[1:]
    options = parse(given)
    options.given = given[4:]  # after --bin and --mpirun, which bench/peers/run puts in front
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("MASTER_ADDR", "localhost")  # where the processes of an asynchronous save of DCP meet
    launcher = Launcher(options.mpirun, options.bin)
    systems = systems_of(options, launcher)
    facts = machine.describe(launcher)
    config = workload.config_of_size(options.size)
    size_bytes = workload.total_bytes(workload.tensors_of(config))
    folders = []
    try:
        for number, directory in enumerate(options.directory):
            folders.append(work_folder(directory, number, size_bytes))
        config_path = folders[0] / "config.json"
        config_path.write_text(json.dumps(config))
        load = Workload(config, config_path, size_bytes, min(LARGEST_FILE, max(size_bytes // 4, 1 << 20)))
        benches = measure(options, systems, load, folders)
        document = {**document_of(options, systems, benches, load), "machine": facts}
    finally:
        for folder in folders:
            storage.remove(folder)
    print(report.text_of(document))
    if options.profile:
        print(report.profile_of(document))
    write(options, document)
    is_right = all(row["verified"] for directory in document["directories"]
                   for row in directory["rows"] + directory["slow_downs"])
    missed = options.check and not all(target["met"] for target in document["targets"])
    sys.exit(0 if is_right and not missed else 1)


if __name__ == "__main__":
    main()
