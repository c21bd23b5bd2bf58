"""Checkpoints of Paddle's own trainers go through Cairn, in another layout, and back to the trainer that wrote them.
Its losses and its next checkpoint must be those of a resume without Cairn.

  round_trips.py --trainer-python PYTHON [--case NAME ...]
  round_trips.py --list

PYTHON has the packages of requirements.txt; CAIRN_BIN_DIR and CAIRN_MPIEXEC are as in tests/interop."""

import argparse
import json
import os
import pathlib
import random
import shutil
import socket
import struct
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SAVED, NEXT = 3, 6

# The runs: processes, options of trainer.py, Cairn's steps on the way to the package's form, and more options
# of the last conversion. SAVES: no conversion, but a program that loads all on 3 ranks and saves it in the form,
# and does so again on 2 (tests/interop/save_in_form.cpp).
SAVES = None
SHARDS = [("--to", "shards", "--layout", "tp=2,dp=2")]
HF = [("--to", "hf", "--max-file-size", "20kB")]  # with Hugging Face's names and orders of dimensions
KEPT = [("--to", "hf", "--keep-names", "--max-file-size", "20kB")]
NLP, FORMERS = ["--package", "paddlenlp"], ["--package", "paddleformers"]
CASES = {
    "nlp-one-O0": (1, NLP, SHARDS, ["--cards", "1"]),
    "nlp-one-tied-O0": (1, [*NLP, "--tied"], SHARDS, ["--cards", "1"]),
    "nlp-one-lora-O0": (1, [*NLP, "--lora"], SHARDS, ["--cards", "1"]),
    "nlp-dp2-O0": (2, NLP, SHARDS, ["--max-file-size", "30kB"]),
    "nlp-dp2-O1": (2, [*NLP, "--stage", "O1"], SHARDS, []),
    "nlp-dp2-O1-codes": (2, [*NLP, "--stage", "O1"], KEPT, ["--max-file-size", "30kB"]),
    "nlp-dp2-tied-O0": (2, [*NLP, "--tied"], HF, []),
    "nlp-tp2-hf-O0": (2, [*NLP, "--tensor-parallel", "2"], HF, []),
    "nlp-dp2-lora-O0": (2, [*NLP, "--lora", "--layers", "2"], SHARDS, []),
    "nlp-dp2-lora-O1": (2, [*NLP, "--lora", "--layers", "2", "--stage", "O1"], SHARDS, []),
    "nlp-tp2-O0": (2, [*NLP, "--tensor-parallel", "2"], SHARDS, []),
    "nlp-tp2-O1": (2, [*NLP, "--tensor-parallel", "2", "--stage", "O1"], SHARDS, []),
    "nlp-dp2-skip-O0": (2, [*NLP, "--config", "skip_save_model_weight"], SHARDS, []),
    "nlp-dp2-remove-O1": (2, [*NLP, "--config", "remove_master_weight", "--stage", "O1"], SHARDS, []),
    "nlp-sharding2-O0": (2, [*NLP, "--sharding", "2"], SHARDS, []),
    "nlp-pp2-O0": (2, [*NLP, "--pipeline", "2", "--layers", "2"], SHARDS, []),
    "nlp-one-legacy": (1, [*NLP, "--legacy"], SHARDS, ["--cards", "1"]),
    "nlp-one-tied-legacy": (1, [*NLP, "--legacy", "--tied"], [], ["--cards", "1"]),
    "nlp-dp2-lora-legacy": (2, [*NLP, "--legacy", "--lora", "--layers", "2"], SHARDS, []),
    "nlp-tp2-legacy": (2, [*NLP, "--legacy", "--tensor-parallel", "2"], SHARDS, []),
    "nlp-tp2-fused-legacy": (2, [*NLP, "--legacy", "--tensor-parallel", "2", "--fused"], [], []),
    "nlp-tp2-tied-legacy": (2, [*NLP, "--legacy", "--tensor-parallel", "2", "--tied"], HF, []),
    "nlp-tp2-lora-legacy": (2, [*NLP, "--legacy", "--tensor-parallel", "2", "--lora", "--layers", "2"], SHARDS, []),
    "nlp-sharding2-legacy": (2, [*NLP, "--legacy", "--sharding", "2"], [], ["--max-file-size", "30kB"]),
    "nlp-pp2-legacy": (2, [*NLP, "--legacy", "--pipeline", "2", "--layers", "2"], SHARDS, []),
    "formers-dp2-O0": (2, FORMERS, SHARDS, ["--max-file-size", "30kB"]),
    "formers-dp2-paddle-order-O0": (2, [*FORMERS, "--paddle-order"], SHARDS, []),
    "formers-dp2-hf-O0": (2, FORMERS, HF, []),
    "formers-dp2-O1": (2, [*FORMERS, "--stage", "O1"], SHARDS, []),
    "formers-dp2-O1-codes": (2, [*FORMERS, "--stage", "O1"], KEPT, []),
    "nlp-dp2-O0-saved": (2, NLP, SAVES, ["30000"]),
    "nlp-one-tied-O0-saved": (1, [*NLP, "--tied"], SAVES, []),
    "nlp-dp2-tied-O1-saved": (2, [*NLP, "--tied", "--stage", "O1"], SAVES, []),
    "nlp-tp2-O1-saved": (2, [*NLP, "--tensor-parallel", "2", "--stage", "O1"], SAVES, []),
    "nlp-dp2-skip-O0-saved": (2, [*NLP, "--config", "skip_save_model_weight"], SAVES, []),
    "nlp-dp2-lora-O0-saved": (2, [*NLP, "--lora", "--layers", "2"], SAVES, []),
    "formers-dp2-O0-saved": (2, FORMERS, SAVES, ["30000"]),
}


def fail(text):
    raise SystemExit(f"error: {text}")


def tensors_of(directory):
    """{(kind, name): (dtype, shape, bytes)} of a checkpoint, read without Cairn."""
    found = {}
    for file in sorted(pathlib.Path(directory).glob("*.safetensors")):
        data = file.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            key = file.name.split("-0", 1)[0], name
            assert key not in found, key
            found[key] = entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end]
    assert found, f"{directory} has no tensors"
    return found


def free_ports(count):
    """Ports below those that the kernel gives to other programs: they are still free when a trainer listens on them,
    seconds later."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    ports = []
    for port in random.sample(range(lowest // 2, lowest), lowest - lowest // 2):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError(f"no {count} free ports below {lowest}")


def train(python, processes, options, output, resume=None):
    """Returns {step: loss}."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    command = [python, str(HERE / "trainer.py"), *options, "--output", str(output), "--until", str(NEXT)]
    if resume:
        command += ["--resume", str(resume)]
    ends = [f"127.0.0.1:{port}" for port in free_ports(processes)]
    running = []
    for rank in range(processes):
        environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
        if processes > 1:
            environment.update(PADDLE_TRAINER_ID=str(rank), PADDLE_TRAINERS_NUM=str(processes),
                               PADDLE_TRAINER_ENDPOINTS=",".join(ends), PADDLE_CURRENT_ENDPOINT=ends[rank],
                               PADDLE_RANK_IN_NODE=str(rank), PADDLE_DISTRI_BACKEND="gloo")
        log = open(output / f"log.{rank}", "w", encoding="utf-8")
        running.append((subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT), log))
    codes = []
    for process, log in running:
        try:
            codes.append(process.wait(timeout=300))
        except subprocess.TimeoutExpired:
            process.kill()
            codes.append("too late")
        log.close()
    if any(codes):
        last = (output / f"log.{next(i for i, code in enumerate(codes) if code)}").read_text(encoding="utf-8")
        fail(f"{' '.join(command)}: exit status {codes}\n{last[-2000:]}")
    return json.loads((output / "losses.json").read_text(encoding="utf-8"))


def run(name, *words, ranks=1):
    program = pathlib.Path(os.environ["CAIRN_BIN_DIR"]) / name
    command = [*os.environ["CAIRN_MPIEXEC"].split(), str(ranks), str(program), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        fail(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def way_through_conversions(name, saved, work):
    """Converts along the case's ways and verifies each step; returns the last directory."""
    _, options, ways, last = CASES[name]
    at = saved
    for number, way in enumerate([*ways, ("--to", options[1], *last)]):
        target = work / f"{name}-way-{number}"
        shutil.rmtree(target, ignore_errors=True)
        run("cairn", "convert", at, target, *way, ranks=1 + number % 2)
        run("cairn", "verify", target)
        at = target
    return at


def way_through_saves(name, saved, work):
    """As above, with the program that loads and saves."""
    _, options, _, last = CASES[name]
    at = saved.parent
    for ranks in (3, 2):
        target = work / f"{name}-saved-{ranks}"
        shutil.rmtree(target, ignore_errors=True)
        run("save_in_form", at, SAVED, target, options[1], *last, ranks=ranks)
        run("cairn", "verify", target / saved.name)
        at = target
    return at / saved.name


def compare(name, found, expected):
    if sorted(found) != sorted(expected):
        fail(f"{name}: other tensors: {sorted(set(found) ^ set(expected))[:5]}")
    different = [key for key in expected if found[key] != expected[key]]
    if different:
        fail(f"{name}: {len(different)} tensors differ: {different[:5]}")


def meaning_of(index):
    """The index without its files, whose order follows the order in which its tensors were read."""
    text = json.loads(index.read_text(encoding="utf-8"))
    return dict(text, weight_map=sorted(text.get("weight_map", {})))


def run_case(name, python, work):
    processes, options, ways, _ = CASES[name]
    first = work / f"{name}-first"
    train(python, processes, options, first)
    saved = first / f"checkpoint-{SAVED}"
    # A trainer of unified checkpoints resumes from a legacy one in its own layout.
    options = [option for option in options if option != "--legacy"]
    losses = train(python, processes, options, work / f"{name}-own", resume=saved)
    if sorted(losses) != [str(step) for step in range(SAVED, NEXT)]:
        fail(f"{name}: its own resume went through steps {sorted(losses)}")
    at = (way_through_saves if ways is SAVES else way_through_conversions)(name, saved, work)
    if "--paddle-order" in options:
        options = [*options, "--from-hf"]  # by default Cairn writes the layout that PaddleFormers expects
    back = train(python, processes, options, work / f"{name}-back", resume=at)
    if back != losses:
        fail(f"{name}: losses {back}, its own resume has {losses}")
    expected = tensors_of(work / f"{name}-own" / f"checkpoint-{NEXT}")
    compare(name, tensors_of(work / f"{name}-back" / f"checkpoint-{NEXT}"), expected)
    for index in sorted((work / f"{name}-own" / f"checkpoint-{NEXT}").glob("*.index.json")):
        if meaning_of(work / f"{name}-back" / f"checkpoint-{NEXT}" / index.name) != meaning_of(index):
            fail(f"{name}: another {index.name}")
    print(f"{name}: {len(losses)} losses and {len(expected)} tensors equal those of its own resume", flush=True)
    print("[cairn] did 1 round trips through Paddle", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainer-python", default=sys.executable)
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("round-trips"))
    options = parser.parse_args()
    if options.list:
        print("\n".join(CASES))
        return
    options.work.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in options.case or CASES:
        try:
            run_case(name, options.trainer_python, options.work.resolve())
        except SystemExit as error:
            print(error, flush=True)
            failed.append(name)
    if failed:
        fail(f"{len(failed)} cases failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
