"""A training run that stops and resumes, each time through a checkpoint that Cairn coded, on another number of ranks.

One resume, in this order:

1. The ranks of the piece that ends write plain safetensors and end.
2. `cairn convert --quant CODEC`, on as many ranks, makes checkpoint-N of the files; `cairn verify` checks it.
3. The plain files are removed.
4. `cairn convert --quant off`, on the number of ranks that continue, makes plain files of checkpoint-N.
5. New processes read these. Their state is compared with the files of step 4 (the same bits) and with those of step 1
   (by codes.compare), and their number with the expected one.
"""

import shutil
import time

import codes
import ranks
from piece import MOMENTS, Piece, run_piece

WORLD_SIZES = (2, 3, 4, 2, 1, 3, 2, 4, 3, 4, 2)


class Trainer:
    """Starts the ranks of a piece, and Cairn's ranks, when it is this run's turn."""

    def __init__(self, launcher, recipe, folder, turns, say):
        self.launcher, self.recipe, self.folder = launcher, recipe, folder
        self.turns, self.say = turns, say
        self.step_seconds = 0  # of the slowest piece

    def train(self, size, piece):
        """Facts of rank 0, after checking that there were `size` ranks and that each held its share of the moments."""
        steps = piece.end - piece.begin
        self.turns.take(steps * self.step_seconds)
        begun = time.monotonic()
        every = ranks.run(size, run_piece, self.recipe, piece)
        self.step_seconds = max(self.step_seconds, (time.monotonic() - begun) / steps)
        for facts in every:
            if facts["ranks"] != size:
                raise RuntimeError(f"a rank of {size} was one of {facts['ranks']}")
        held, whole = [facts["moment_elements_held"] for facts in every], every[0]["moment_elements"]
        if sum(held) != whole or len({facts["process"] for facts in every}) != size:
            raise RuntimeError(f"ranks held {held} elements of moments, {whole} in all")
        return every[0], held

    def cairn(self, size, *arguments):
        return self.launcher.document(size, "cairn", *arguments, "--json")

    def seeded(self, seed, size, evaluate_at):
        """An uninterrupted run."""
        self.say(f"seed {seed}, {self.recipe.steps} steps on {size} ranks, uninterrupted")
        facts, _ = self.train(size, Piece(seed, 0, self.recipe.steps, tuple(evaluate_at)))
        return {"name": f"seed {seed}", "seed": seed, "codec": None, "world_sizes": [size], "losses": facts["losses"],
                "held_out": facts["held_out"], "resumes": []}


class Lineage:
    def __init__(self, trainer, name, codec, seed, resume_at, world_sizes):
        self.trainer, self.codec, self.seed = trainer, codec, seed
        self.folder = trainer.folder / name
        self.ends = [*resume_at, trainer.recipe.steps]
        self.sizes = world_sizes[:len(self.ends)]
        if any(a == b for a, b in zip(self.sizes, self.sizes[1:])) or len(self.sizes) != len(self.ends):
            raise ValueError(f"{len(self.ends)} pieces need as many numbers of ranks, each other than the one before")
        self.run = {"name": name, "seed": seed, "codec": codec, "world_sizes": list(self.sizes), "losses": [],
                    "held_out": {}, "resumes": []}

    def go(self):
        """The run as a record, like that of Trainer.seeded()."""
        self.folder.mkdir(parents=True)
        self._train(0, None)
        for number in range(1, len(self.ends)):
            begun = time.monotonic()
            saved, resume = self._through_a_checkpoint(number)
            facts = self._train(number, self.folder / "resumed")
            self._check_what_resumed(saved, facts["resumed"])
            resume["seconds"] = round(time.monotonic() - begun, 1)
            self.run["resumes"].append(resume)
        shutil.rmtree(self.folder)
        return self.run

    def _train(self, number, source):
        begin, end, size = self.ends[number - 1] if number else 0, self.ends[number], self.sizes[number]
        is_last = number + 1 == len(self.ends)
        self.trainer.say(f"{self.run['name']}, steps {begin} to {end} on {size} {'rank' if size == 1 else 'ranks'}")
        piece = Piece(self.seed, begin, end, (end,), source and str(source),
                      None if is_last else str(self.folder / "plain"))
        facts, held = self.trainer.train(size, piece)
        self.run["losses"] += facts["losses"]
        self.run["held_out"].update(facts["held_out"])
        self.run.setdefault("moment_elements_held", []).append(held)
        return facts

    def _through_a_checkpoint(self, number):
        """(state before, facts) of one resume; leaves `resumed` as the only plain files."""
        step, before, after = self.ends[number - 1], self.sizes[number - 1], self.sizes[number]
        plain, resumed = self.folder / "plain", self.folder / "resumed"
        checkpoint = self.folder / f"checkpoint-{step}"
        shutil.rmtree(resumed, ignore_errors=True)
        saved = codes.read_state(plain)
        quantise = ["--quant", self.codec, "--report"] if self.codec else []
        coded = self.trainer.cairn(before, "convert", plain, checkpoint, *quantise)
        verified = self.trainer.cairn(1, "verify", checkpoint)
        if not (verified["good"] and verified["has_checksums"]):
            raise RuntimeError(f"verify says that {checkpoint.name} is not good: {verified}")
        shutil.rmtree(plain)
        self.trainer.cairn(after, "convert", checkpoint, resumed, *(["--quant", "off"] if self.codec else []))
        shutil.rmtree(checkpoint)
        errors = codes.compare(self.codec, saved, codes.read_state(resumed), coded.get("coding_errors", []))
        return saved, {"step": step, "ranks_before": before, "ranks_after": after,
                       "size_bytes_plain": sum(array.nbytes for some in saved.values() for array in some.values()),
                       "size_bytes_checkpoint": coded["size_bytes"], **errors}

    def _check_what_resumed(self, saved, digests):
        """Checks that the new ranks' optimizers hold the decoded moments, and that coded moments differ from the saved
        ones."""
        resumed = codes.read_state(self.folder / "resumed")
        moments = {name: array for name, array in resumed["optimizer"].items() if name.endswith(MOMENTS)}
        if digests["weights"] != codes.digests_of(resumed["model"]) or digests["moments"] != codes.digests_of(moments):
            raise RuntimeError("the ranks that resumed did not hold what the checkpoint decodes to")
        before = codes.digests_of({name: saved["optimizer"][name] for name in moments})
        is_coded = {name: codes.is_coded(self.codec, array.shape) for name, array in moments.items()}
        wrong = [name for name in moments if (digests["moments"][name] != before[name]) != is_coded[name]]
        if wrong:
            raise RuntimeError(f"moments that resumed with the bits saved although coded, or otherwise: {wrong}")
