"""Measures conversions of PaddlePaddle's checkpoints against one between Cairn's own; bench/README.md, "Conversions of
PaddlePaddle's"."""

import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import arguments

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import storage  # pylint: disable=wrong-import-position

BYTES_PER_PARAMETER = 14  # BF16 weights, F32 masters and two moments
GOAL = 0.8
# Conversion: source, options, and the checkpoint that the result must equal.
CONVERSIONS = {
    "own": ("hf", ["--to", "hf"], "hf"),
    "O0 to hf": ("O0", ["--to", "hf"], "O0"),
    "O1 to hf": ("O1", ["--to", "hf"], "O1"),
    "O1 decoded": ("O1", ["--to", "hf", "--quant", "off"], "O1"),
    "hf to O0": ("hf", ["--to", "paddlenlp"], "O0"),
    "O0 to O1": ("O0", ["--to", "paddlenlp", "--quant", "paddle-o1"], "O1"),
}


def config_for(size):
    """A Llama with about `size` bytes of state; larger states have wider layers."""
    hidden = 2048 if size >= 4 << 30 else 1024 if size >= 1 << 29 else 512
    sizes = {"model_type": "llama", "hidden_size": hidden, "intermediate_size": hidden * 11 // 4, "vocab_size": 4096,
             "num_attention_heads": hidden // 64, "num_key_value_heads": hidden // 256, "tie_word_embeddings": False,
             "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"}
    layer = hidden * hidden * (2 + 2 / 4) + 3 * hidden * sizes["intermediate_size"]
    ends = 2 * hidden * sizes["vocab_size"]
    return dict(sizes, num_hidden_layers=max(1, round((size / BYTES_PER_PARAMETER - ends) / layer)))


def bytes_of(directory):
    """Bytes of its data files."""
    return sum(file.stat().st_size for file in directory.glob("*.safetensors"))


class Program:
    def __init__(self, options):
        self.options = options

    def command(self, ranks, *words):
        return [*self.options.mpirun.split(), "-n", str(ranks), str(self.options.bin / "cairn"), *map(str, words)]

    def run(self, ranks, *words):
        done = subprocess.run(self.command(ranks, *words), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(self.command(ranks, *words))} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def convert(self, ranks, source, target, words):
        return self.command(ranks, "convert", source, target, "--memory", self.options.memory, "--json", *words)


def children_of(process):
    """Its descendants, as the kernel lists them now."""
    found, left = [], [process]
    while left:
        at = left.pop()
        try:
            for task in os.listdir(f"/proc/{at}/task"):
                left += map(int, pathlib.Path(f"/proc/{at}/task/{task}/children").read_text().split())
        except OSError:
            continue
        found.append(at)
    return found[1:]


def share_of_memory(process):
    """Memory of a process in bytes, with its share of shared memory (Pss); 0 for a process that is not `cairn`."""
    try:
        if pathlib.Path(f"/proc/{process}/comm").read_text().strip() != "cairn":
            return 0
        for line in pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def peak_of_a_rank(command):
    """Peak memory of any rank, sampled every 5 ms."""
    peak, process = 0, subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max([peak, *map(share_of_memory, children_of(process.pid))])
        time.sleep(0.005)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed")
    return peak


class Measurement:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.program = Program(options)

    def prepare(self):
        """Makes the sources, each from the one before. Returns {name: bytes}."""
        (self.folder / "config.json").write_text(json.dumps(config_for(self.options.size)))
        self.program.run(1, "demo", "save", "--dir", self.folder / "demo", "--model", f"@{self.folder}/config.json",
                         "--max-file-size", "2GB")
        (self.folder / "demo/checkpoint-100").rename(self.folder / "hf")
        shutil.rmtree(self.folder / "demo")
        self.program.run(1, "convert", self.folder / "hf", self.folder / "O0", "--to", "paddlenlp")
        self.program.run(1, "convert", self.folder / "O0", self.folder / "O1", "--to", "paddlenlp", "--quant", "paddle-o1")
        return {name: bytes_of(self.folder / name) for name in ("hf", "O0", "O1")}

    def target(self):
        target = self.folder / "target"
        shutil.rmtree(target, ignore_errors=True)
        os.sync()
        return target

    def run(self, name, ranks):
        """Returns seconds, and the share of the source that was left in the page cache before."""
        source, words, _ = CONVERSIONS[name]
        target = self.target()
        left = storage.drop_from_cache(self.folder / source)
        command = self.program.convert(ranks, self.folder / source, target, words)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout)["seconds_max"], left / storage.size_below(self.folder / source)

    def check(self, name, ranks):
        """An untimed run whose result is compared. Returns the bytes of source or result, whichever are more, and the
        peak memory of a rank."""
        source, words, expected = CONVERSIONS[name]
        target = self.target()
        peak = peak_of_a_rank(self.program.convert(ranks, self.folder / source, target, words))
        self.program.run(1, "diff", target, self.folder / expected)
        return max(bytes_of(self.folder / source), bytes_of(target)), peak


def measure(options, folder):
    measurement = Measurement(options, folder)
    sizes = measurement.prepare()
    keys = [(name, ranks) for ranks in options.ranks for name in CONVERSIONS]
    checks = {key: measurement.check(*key) for key in keys}  # also the warm-up
    runs, cached = {key: [] for key in keys}, 0.0
    for turn in range(options.repeats):  # each round in another order, since a run affects the next one
        random.Random(turn).shuffle(keys)
        for key in keys:
            seconds, left = measurement.run(*key)
            runs[key].append(seconds)
            cached = max(cached, left)
    return sizes, runs, checks, cached


def report(options, sizes, runs, checks, cached):
    figures = {"sizes_bytes": sizes, "memory_bytes": options.memory, "cached_share": cached, "conversions": []}
    print(f"{sizes['O0'] / (1 << 30):.2f} GiB of O0, {sizes['O1'] / (1 << 30):.2f} GiB of O1, {options.repeats} rounds in turn; page "
          f"cache dropped before each, at most {cached:.0%} of a source stayed in it; budget {options.memory >> 20} MiB a rank")
    print(f"{'conversion':12} {'ranks':>5} {'seconds':>8} {'min':>6} {'max':>6} {'GiB/s':>6} {'of own':>6} {'MiB of a rank':>13}")
    for (name, ranks), seconds in runs.items():
        moved, peak = checks[name, ranks]
        rate = moved / statistics.median(seconds)
        own = [checks["own", ranks][0] / own_seconds for own_seconds in runs["own", ranks]]
        of_own = statistics.median(moved / one / of_round for one, of_round in zip(seconds, own))
        figures["conversions"].append({"name": name, "ranks": ranks, "seconds": seconds, "gib_per_s": rate / (1 << 30),
                                       "of_own": of_own, "peak_bytes": peak})
        print(f"{name:12} {ranks:5} {statistics.median(seconds):8.2f} {min(seconds):6.2f} {max(seconds):6.2f} {rate / (1 << 30):6.2f} "
              f"{of_own:6.0%} {peak >> 20:13}")
    return figures


def main():
    options = arguments.parse(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="cairn-paddle-", dir=options.directory) as folder:
        figures = report(options, *measure(options, pathlib.Path(folder)))
    if options.output:
        options.output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    slow = [entry for entry in figures["conversions"] if entry["name"] == "O0 to hf" and entry["of_own"] < GOAL]
    return 1 if options.check and slow else 0


if __name__ == "__main__":
    sys.exit(main())
