"""Tests whether training through quantised checkpoints ends where training without them does. Started by
bench/training/run, which describes the options. Exits with 1 when a final loss is outside the spread of the seeds, or
when a check failed.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import shlex
import signal
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))

import machine  # noqa: E402  (in bench/peers, like programs and ranks)
import plot  # noqa: E402
from arguments import REQUIRED, parse  # noqa: E402
from lineage import WORLD_SIZES, Lineage, Trainer  # noqa: E402
from model import Text  # noqa: E402
from piece import Recipe  # noqa: E402
from programs import Launcher  # noqa: E402
from turns import Turns  # noqa: E402

VERSION = 1
SEEDS = (1, 2, 3)
SEEDED_RANKS = 2
QUICK = {"steps": 20, "held_out_sequences": 48, "warm_up_steps": 5}


def say(text):
    print(f"{datetime.datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def without_lock(arguments):
    """Arguments without --lock, which changes no result."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--lock")
    return parser.parse_known_args(arguments)[1]


def middle_of(seeded):
    """The run without quantisation that has the middle final loss; every lineage repeats it with its seed. The rule was
    fixed before there was any result."""
    return sorted(seeded, key=final_loss)[len(seeded) // 2]


def final_loss(run):
    return run["held_out"][max(run["held_out"])]


def verdicts_of(seeded, lineages):
    spread = min(map(final_loss, seeded)), max(map(final_loss, seeded))
    same_seed = final_loss(middle_of(seeded))
    return {"spread": {"min": spread[0], "max": spread[1]},
            "lineages": [{"name": run["name"], "final_loss": final_loss(run),
                          "difference_to_same_seed": final_loss(run) - same_seed,
                          "inside": spread[0] <= final_loss(run) <= spread[1],
                          "required": run["name"] in REQUIRED} for run in lineages]}


def measure(options, recipe, trainer, machine_facts):
    """The document. It is also written after each lineage, so that a stopped run leaves its results."""
    pieces = 3 if options.quick else len(WORLD_SIZES)
    ends = [recipe.steps * number // pieces for number in range(1, pieces + 1)]
    seeded = [trainer.seeded(seed, SEEDED_RANKS, ends) for seed in SEEDS]
    chosen = middle_of(seeded)
    lineages = []
    for name in options.lineages:
        codec = None if name == "f32" else name
        lineages.append(Lineage(trainer, name, codec, chosen["seed"], ends[:-1], WORLD_SIZES).go())
        document = {**document_of(options, recipe, seeded, lineages), "machine": machine_facts}
        write(options, document)
    return document


def document_of(options, recipe, seeded, lineages):
    text = Text()
    return {
        "cairn_training_json": VERSION,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": shlex.join(["bench/training/run", *options.given]),
        "text": {"module": "pydoc_data.topics", "size_bytes": text.size_bytes, "sha256": text.sha256,
                 "held_out_bytes": len(text.held_out)},
        "recipe": dataclasses.asdict(recipe),
        "middle_seed": middle_of(seeded)["seed"],
        "verdicts": verdicts_of(seeded, lineages),
        "runs": [*seeded, *lineages],
    }


def table_of(document):
    spread = document["verdicts"]["spread"]
    verdicts = {verdict["name"]: verdict for verdict in document["verdicts"]["lineages"]}
    rows = [["run", "seed", "resumes", "held-out loss", "to the same seed", "in the spread", "update RMS, %",
             "sqrt(v) RMS, %", "size, of F32"]]
    for run in document["runs"]:
        row = [run["name"], str(run["seed"]), str(len(run["resumes"])), f"{final_loss(run):.4f}"]
        verdict, resumes = verdicts.get(run["name"]), run["resumes"]
        if verdict:
            row += [f"{verdict['difference_to_same_seed']:+.4f}", "yes" if verdict["inside"] else "NO"]
        if resumes and "update_rms" in resumes[0]:
            row += [_range([100 * resume[key] for resume in resumes]) for key in ("update_rms", "root_rms")]
            row += [f"{resumes[0]['size_bytes_checkpoint'] / resumes[0]['size_bytes_plain']:.3f}"]
        rows.append(row + ["-"] * (len(rows[0]) - len(row)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = ["-" * width for width in widths]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"
             for row in [rows[0], rule, *rows[1:]]]
    lines += ["", f"spread of {len(SEEDS)} seeds without quantisation: {spread['min']:.4f} to {spread['max']:.4f}"]
    for verdict in document["verdicts"]["lineages"]:
        if verdict["required"]:
            lines.append(f"{verdict['name']}: {verdict['final_loss']:.4f}: "
                         f"{'inside' if verdict['inside'] else 'OUTSIDE'} the spread")
    return "\n".join(lines)


def _range(values):
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} - {high}"


def json_of(document):
    """Indented, with lists of numbers on one line."""
    text = json.dumps(document, indent=1)
    return re.sub(r"\[\s+([-+\d.,\seE]+?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def write(options, document):
    outputs = [options.output] if options.output else []
    if options.results:
        outputs.append(machine.ROOT / "bench/results" / f"training-{document['date']}.json")
    for path in outputs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_of(document))
        path.with_suffix(".svg").write_text(plot.svg_of(json.loads(json_of(document))))
        say(f"wrote {path} and {path.with_suffix('.svg')}")


def main():
    given = sys.argv[1:]
    options = parse(given)
    options.given = without_lock(given[4:])  # after --bin and --mpirun, which bench/training/run puts in front
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    launcher = Launcher(options.mpirun, options.bin)
    facts = machine.describe(launcher)
    recipe = Recipe(**(QUICK if options.quick else {}))
    if not options.directory.is_dir():
        raise SystemExit(f"{options.directory} is not a directory: "
                         "give --directory one on the file system to be measured")
    with tempfile.TemporaryDirectory(prefix="cairn-training-", dir=options.directory.resolve()) as folder:
        turns = Turns(options.lock)
        document = measure(options, recipe, Trainer(launcher, recipe, pathlib.Path(folder), turns, say), facts)
        turns.end()
    print(table_of(document))
    sys.exit(0 if all(verdict["inside"] for verdict in document["verdicts"]["lineages"] if verdict["required"]) else 1)


if __name__ == "__main__":
    main()
