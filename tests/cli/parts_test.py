"""A checkpoint whose files are in several directories, as machines with disks of their own leave them."""

import os
import pathlib
import re
import shutil

from program import CAIRN, CairnTest, launcher, main, run_command
from small_files import FIRST, INDEX, SECOND, counting, read_checkpoint, read_safetensors, two_shards, write_safetensors

PADDLE = pathlib.Path(os.environ["CAIRN_TEST_DATA"]) / "paddle"
# Two processes each: tensor parallelism with coded moments, fused weights, pipeline,
# and gathered slices of sharding v2.
SAMPLES = ("n-tp2-O1", "n-fused-tp2-O0", "n-pp2-O1", "n-sh2v2-O0")


def read_all(folder):
    """{(file's set, tensor): tensor}: several sections may have tensors of one name."""
    return {(path.name.split("-0")[0], name): tensor for path in sorted(folder.glob("*.safetensors"))
            for name, tensor in read_safetensors(path)[0].items()}


class Parts(CairnTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def split(self, source, count, everywhere=()):
        """Distributes the source's data files over that many directories. The other files go into the first one,
        as rank 0 writes them, or into all."""
        places = [self.folder / f"{source.name}-{count}" / f"machine{i}" for i in range(count)]
        for place in places:
            place.mkdir(parents=True)
        data = sorted(path for kind in ("*.safetensors", "model_state*.pdparams", "*.pdopt") for path in source.glob(kind))
        for path in source.iterdir():
            to = [places[data.index(path) % count]] if path in data else places[:1]
            for place in places if path.name in everywhere else to:
                shutil.copy(path, place / path.name)
        return places

    def parts(self, places, option="--part"):
        return [word for place in places[1:] for word in (option, place)]

    def convert(self, places, ranks=None):
        shutil.rmtree(self.out, ignore_errors=True)
        return self.good("convert", places[0], self.out, "--keep-names", *self.parts(places), ranks=ranks)

    def test_samples_of_paddle_are_what_the_whole_directory_is(self):
        for name in SAMPLES:
            whole = self.folder / f"{name}-whole"
            self.good("convert", PADDLE / name, whole, "--keep-names")
            expected = read_all(whole)
            self.assertGreater(len(expected), 36)
            for count in (2, 3):
                places = self.split(PADDLE / name, count)
                for ranks in (None, 2, 3) if name == SAMPLES[0] else (count,):
                    with self.subTest(name=name, count=count, ranks=ranks):
                        self.convert(places, ranks)
                        self.assertEqual(read_all(self.out), expected)
                self.good("diff", PADDLE / name, places[0], *self.parts(places, "--part-b"), ranks=2)
                self.good("diff", places[1], PADDLE / name, *self.parts([places[1], *places[2:], places[0]], "--part-a"))

    def test_every_missing_file_is_named_with_a_tensor_and_where_it_was_looked_for(self):
        for name, count in ((SAMPLES[0], 2), (SAMPLES[1], 3)):
            places = self.split(PADDLE / name, count)
            for lost in sorted(path for place in places for path in place.glob("*.safetensors")):
                with self.subTest(lost=lost):
                    lost.rename(self.folder / "aside")
                    for ranks in (None, 3) if lost.parent == places[-1] else (None,):
                        result = self.bad(1, "convert", places[0], self.out, *self.parts(places), ranks=ranks,
                                          says=[lost.name, "is missing", *places])
                        named = re.search(r"holds tensor '([^']+)'", result.errors[0])[1]
                        self.assertIn(named, read_safetensors(self.folder / "aside")[0])
                    self.assertFalse(self.out.exists())
                    (self.folder / "aside").rename(lost)

    def test_a_directory_that_is_not_given_has_all_its_files_named(self):
        places = self.split(PADDLE / SAMPLES[0], 3)
        for left_out in (1, 2):
            given = [place for i, place in enumerate(places) if i != left_out]
            names = [path.name for path in places[left_out].glob("*.safetensors")]
            self.assertGreater(len(names), 1)
            self.bad(1, "inspect", given[0], *self.parts(given), says=[*names, *given])
        # Without indexes the numbers in the names are used.
        places = self.split(PADDLE / SAMPLES[1], 2)
        self.bad(1, "convert", places[1], self.out, "--part", self.folder, ranks=2,
                 says=["00001-of-00002", "is missing", places[1], self.folder])

    def test_hugging_face_files_over_two_and_three_directories(self):
        source = self.folder / "source"
        two_shards(source)
        whole = read_checkpoint(source)
        places = self.split(source, 2)
        (self.folder / "empty").mkdir()
        for given in (places, places[::-1], [*places, self.folder / "empty"]):
            for ranks in (None, 2, 3):
                self.convert(given, ranks)
                self.assertEqual(read_checkpoint(self.out), whole)
        self.assertEqual((self.out / "config.json").read_bytes(), (source / "config.json").read_bytes())
        document = self.good("inspect", places[0], "--part", places[1], "--json").json()
        self.assertEqual(document["parts"], [str(places[1])])
        self.assertEqual([(file["name"], file["directory"]) for file in document["files"]],
                         [(FIRST, str(places[0])), (SECOND, str(places[1]))])
        self.assertIn(str(places[1]), self.good("inspect", places[0], "--part", places[1]).out)
        (places[0] / INDEX).unlink()
        self.convert(places, 2)
        self.assertEqual(read_checkpoint(self.out), whole)

    def test_what_two_directories_have_must_be_the_same(self):
        source = self.folder / "source"
        two_shards(source)
        whole = read_checkpoint(source)
        places = self.split(source, 2, everywhere=(INDEX, "config.json", FIRST))
        result = self.convert(places, 2)
        self.assertIn("1 file is in two directories with one size and header", result.out)
        self.assertEqual(read_checkpoint(self.out), whole)
        # A small file on one machine only is no reason to refuse the rest.
        (places[1] / "config.json").write_text('{"model_type": "none-of-the-familiez"}')
        self.assertIn(f"{places[1] / 'config.json'}", self.convert(places).out)
        self.assertEqual((self.out / "config.json").read_bytes(), (source / "config.json").read_bytes())
        for change in (lambda: write_safetensors(places[1] / FIRST, {"a.weight": counting("F32", [6, 4])}, {"format": "pt"}),
                       lambda: write_safetensors(places[1] / FIRST, {"a.weight": counting("F32", [4, 7])}, {"format": "pt"})):
            change()
            for ranks in (None, 2):
                self.bad(1, "diff", source, places[0], "--part-b", places[1], ranks=ranks,
                         says=[places[0] / FIRST, places[1] / FIRST, "not parts of one checkpoint"])
        shutil.copy(source / FIRST, places[1] / FIRST)
        (places[1] / INDEX).write_text((source / INDEX).read_text().replace("a.weight", "d.weight"))
        self.bad(1, "inspect", places[0], "--part", places[1], says=[places[0] / INDEX, places[1] / INDEX])

    def test_a_checkpoint_of_cairn_is_verified_from_parts(self):
        two_shards(self.folder / "source")
        self.good("convert", self.folder / "source", self.folder / "own", "--max-file-size", "100")
        places = self.split(self.folder / "own", 2)
        for given in (places, places[::-1]):
            self.convert(given, 2)
            self.assertEqual(read_checkpoint(self.out), read_checkpoint(self.folder / "source"))
        damaged = next(places[1].glob("*.safetensors"))
        content = bytearray(damaged.read_bytes())
        content[-1] ^= 1
        damaged.write_bytes(content)
        shutil.rmtree(self.out)
        self.bad(1, "convert", places[0], self.out, "--part", places[1], ranks=2, says=[damaged, "checksum"])

    def by_rank(self, per_rank, out, *options):
        """Gives each rank its own directories."""
        command = []
        for given in per_rank:
            words = [str(CAIRN), "convert", given[0], out, *self.parts(given), "--by-rank", *(options or ["--keep-names"])]
            command += [*([":", "-n"] if command else launcher("")[:-1]), "1", *map(str, words)]
        return run_command(command, {})

    def test_each_rank_reads_what_it_sees(self):
        none = self.folder / "none"
        for name in SAMPLES[::3]:
            whole = self.folder / f"{name}-whole"
            self.good("convert", PADDLE / name, whole, "--keep-names")
            two, three = self.split(PADDLE / name, 2), self.split(PADDLE / name, 3)
            for per_rank in ([[two[0]], [two[1]]], [[two[0]], [none], [two[1]]], [[two[0]], two, [two[1]]],
                             [[place] for place in three], [[three[0], three[2]], [three[1], none]]):
                with self.subTest(name=name, per_rank=per_rank):
                    shutil.rmtree(self.out, ignore_errors=True)
                    result = self.by_rank(per_rank, self.out)
                    self.assertEqual((result.code, result.errors), (0, []), result.err)
                    self.assertEqual(read_all(self.out), read_all(whole))

    def test_legacy_pickles_of_paddle(self):
        for name, missing in (("n-legacy-tp2", "model_state.tp01.pdparams"), ("n-legacy-sh2v2", "optimizer.shard01.pdopt")):
            whole = self.folder / f"{name}-whole"
            self.good("convert", PADDLE / name, whole, "--to", "paddlenlp")
            expected = read_all(whole)
            self.assertEqual(len(expected), 72)
            two = self.split(PADDLE / name, 2)
            self.good("convert", two[0], self.out, "--part", two[1], "--to", "paddlenlp", ranks=3)
            self.assertEqual(read_all(self.out), expected)
            for per_rank in ([[two[0]], [two[1]]], [[self.folder / "none"], [two[0]], [two[1]]]):
                shutil.rmtree(self.out)
                result = self.by_rank(per_rank, self.out, "--to", "paddlenlp")
                self.assertEqual((result.code, result.errors), (0, []), result.err)
                self.assertEqual(read_all(self.out), expected)
            shutil.rmtree(self.out)
            (two[0] / missing if (two[0] / missing).exists() else two[1] / missing).unlink()
            self.bad(1, "convert", two[0], self.out, "--part", two[1], says=[f"{missing}: the file is missing", "looked in"])

    def test_each_rank_may_see_other_files_under_one_name(self):
        """As with local disks: the second rank has other directories under the same names."""
        source = self.folder / "source"
        two_shards(source)
        places = self.split(source, 2)
        for rank in range(2):
            (self.folder / f"{rank}").mkdir()
            places[rank].rename(self.folder / f"{rank}" / "local")
        script = 'cd "$0/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" && exec "$@"'
        command = [*launcher(2), "sh", "-c", script, self.folder, CAIRN, "convert", "local", self.out, "--by-rank"]
        result = run_command(list(map(str, command)), {})
        self.assertEqual((result.code, result.errors), (0, []), result.err)
        self.assertEqual(read_checkpoint(self.out), read_checkpoint(source))
        self.assertNotIn("left behind", result.out)
        # Small files are carried if rank 0 sees them.
        shutil.rmtree(self.out)
        (self.folder / "1" / "local" / "merges.txt").write_text("a b")
        (self.folder / "0" / "local" / "config.json").rename(self.folder / "1" / "local" / "config.json")
        result = run_command(list(map(str, command)), {})
        self.assertEqual((result.code, result.errors), (0, []), result.err)
        self.assertEqual(read_checkpoint(self.out), read_checkpoint(source))
        for name in ("merges.txt", "config.json"):
            self.assertIn(f"{name} is left behind: only rank 1 sees it", result.out)
            self.assertFalse((self.out / name).exists())

    def test_what_no_rank_sees_is_named(self):
        source = self.folder / "source"
        two_shards(source)
        places = self.split(source, 3)
        for per_rank, says in (([[places[0]], [places[2]]], [SECOND, "b.weight", f"rank 0:{places[0]}", f"rank 1:{places[2]}"]),
                               ([[places[1]], [places[2]]], ["00001-of-00002", "is missing"]),
                               ([[self.folder / "none"]] * 2, ["no rank sees a directory"])):
            result = self.by_rank(per_rank, self.out)
            self.assertEqual((result.code, len(result.errors)), (1, 1), result.err)
            for word in says:
                self.assertIn(str(word), result.errors[0])
            self.assertFalse(self.out.exists())
        shutil.copy(places[0] / FIRST, places[1] / FIRST)
        self.assertEqual(self.by_rank([[places[0]], [places[1]]], self.out).code, 0)
        shutil.rmtree(self.out)
        write_safetensors(places[1] / FIRST, {"a.weight": counting("F32", [6, 4])}, {"format": "pt"})
        result = self.by_rank([[places[0]], [places[1]]], self.out)
        self.assertEqual(result.code, 1)
        self.assertIn(f"'rank 0:{places[0] / FIRST}' and 'rank 1:{places[1] / FIRST}'", result.errors[0])
        self.good("convert", source, self.folder / "own")
        result = self.by_rank([[self.folder / "own"]] * 2, self.out)
        self.assertEqual(result.code, 2, result.err)
        self.assertIn("cairn.json", result.errors[0])

    def test_what_cannot_be_a_part(self):
        two_shards(self.folder / "source")
        source = self.folder / "source"
        for part, code, says in ((source, 2, "give each part once"), (self.folder / "none", 1, "does not exist"),
                                 (source / FIRST, 2, "is not a directory"), (f"{source}/../source/", 2, "give each part once")):
            self.bad(code, "inspect", source, "--part", part, says=[says, part])


if __name__ == "__main__":
    main()
