"""Helpers of the Slurm tests: steps in which every task records its node, and waiting.

A test that means two nodes and gets one proves nothing, so each step states the nodes of its tasks, and the records are
compared.
"""

import atexit
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["CAIRN_BIN_DIR"])
CAIRN = BIN / "cairn"
END = time.monotonic() + 180  # less than cluster.sh gives a test, so that the test itself names what is missing
STUCK_S = 45  # without a step for so long while a test waits: Slurm is stuck, whatever is tested
STUCK = 75  # exit status: cluster.sh tries once more, with a new cluster
# Two layers of a small Llama: 1.6 MB of weights, master weights and moments.
TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 500,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "max_position_embeddings": 128}
RECORDED = 'echo "$SLURM_NODEID $(hostname)" >"$0/$SLURM_PROCID"; exec "$@"'


class SlurmIsStuck(KeyboardInterrupt):
    """A BaseException, since unittest continues after any other."""


class Watch:
    """While a test waits: raises SlurmIsStuck when no step has run for STUCK_S."""

    def __init__(self):
        self.last = self.looked = time.monotonic()

    def look(self):
        if time.monotonic() - self.looked < 2:
            return
        self.looked = time.monotonic()
        steps = subprocess.run(["squeue", "--steps", "--noheader", "--format=%i"], capture_output=True, text=True,
                               check=False, timeout=STUCK_S, stdin=subprocess.DEVNULL)
        if steps.stdout.strip():
            self.last = time.monotonic()
        elif time.monotonic() - self.last > STUCK_S:
            raise SlurmIsStuck


def environment(**extra):
    """Open MPI uses TCP between two nodes, and the nodes have only the loopback device in common."""
    names = {name: value for name, value in os.environ.items() if name != "CAIRN_FAULT"}
    return {**names, "OMPI_MCA_btl_tcp_if_include": "lo", **extra}


def start(*command, stderr=subprocess.PIPE, **extra):
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=stderr, text=True,
                            env=environment(**extra), stdin=subprocess.DEVNULL, start_new_session=True)


def finish(process):
    """The process after its end, with `out` and `err`. srun has a second process that keeps its output open."""
    watch = Watch()
    while True:
        try:
            process.out, process.err = process.communicate(timeout=2)
            return process
        except subprocess.TimeoutExpired:
            watch.look()
        if time.monotonic() > END:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"{process.args} did not end; jobs and nodes are above\n{out}{err}")


def output_of(*command, **extra):
    """Standard output of a command that must succeed."""
    done = finish(start(*command, **extra))
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.out}{done.err}")
    return done.out


def wait_for(what, condition):
    """Waits until the condition holds; returns its value."""
    watch = Watch()
    while not (found := condition()):
        if time.monotonic() > END:
            raise AssertionError(f"did not come: {what}")
        watch.look()
        time.sleep(0.2)
    return found


def state_of(job):
    return re.search(r"JobState=(\w+)", output_of("scontrol", "show", "job", job))[1]


def wait_for_state(job, wanted):
    """Waits until the job is in this state; fails at once when it has ended in another."""
    def is_there():
        state = state_of(job)
        if state != wanted and state not in ("PENDING", "RUNNING", "COMPLETING"):
            raise AssertionError(f"the job is {state}, not {wanted}: {output_of('scontrol', 'show', 'job', job)}")
        return state == wanted

    wait_for(f"the job is {wanted}", is_there)


class SlurmTest(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="slurm-")).resolve()
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)  # after SlurmIsStuck unittest cleans nothing up
        self.root = self.folder / "root"
        self.model = self.folder / "tiny.json"
        self.model.write_text(json.dumps(TINY))

    def step(self, placement, *command, nodes):
        """Standard output of `srun PLACEMENT COMMAND`, after a check that its tasks ran on {node: tasks}."""
        record = pathlib.Path(tempfile.mkdtemp(prefix="record-", dir=self.folder))
        printed = output_of("srun", "--mpi=pmix", "--kill-on-bad-exit=1", *placement, "sh", "-c", RECORDED, record,
                            *command)
        found = [path.read_text().split() for path in record.iterdir()]
        self.assertEqual(dict(collections.Counter(name for _, name in found)), nodes, "the tasks' own host names")
        numbers = {name: {number for number, host in found if host == name} for name in nodes}
        self.assertEqual([len(seen) for seen in numbers.values()], [1] * len(nodes), "one SLURM_NODEID per host name")
        self.assertEqual(len(set.union(*numbers.values())), len(nodes), "a SLURM_NODEID of its own for each node")
        return printed

    def cairn(self, placement, *arguments, nodes):
        document = json.loads(self.step(placement, CAIRN, *arguments, "--json", nodes=nodes))
        self.assertEqual(document["cairn_json"], 1)
        return document


def main():
    try:
        program = unittest.main(module="__main__", verbosity=2, exit=False)
    except SlurmIsStuck:
        print(f"no step has run for {STUCK_S} s")
        raise SystemExit(STUCK) from None
    if program.result.testsRun == 0 or program.result.skipped:
        raise SystemExit("no test ran")
    raise SystemExit(0 if program.result.wasSuccessful() else 1)
