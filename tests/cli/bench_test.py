"""`cairn bench`: small runs on 1, 4 and 8 ranks whose records add up; damage leaves no figure."""

import csv
import json
import os
import pathlib
import xml.etree.ElementTree as ElementTree

from program import CairnTest, cairn, exit_codes, main, run_command

TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 512,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
GIB = 2**30
ROUNDING = 1e-5  # of seconds in the CSV


class Bench(CairnTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "tiny.json"
        self.model.write_text(json.dumps(TINY))
        self.work = self.folder / "work"
        self.work.mkdir()

    def bench(self, *arguments, ranks=1, repeats=2, **extra):
        return cairn("bench", "--dir", self.work, "--repeats", repeats, *arguments, ranks=ranks, **extra)

    def tiny(self, *arguments, **options):
        return self.bench("--model", f"@{self.model}", *arguments, **options)

    def record_of(self, result):
        self.assertEqual(result.code, 0, result.err)
        self.assertEqual(list(self.work.iterdir()), [], "the run leaves nothing behind")
        return result.json()

    def check_summary(self, summary, count):
        self.assertEqual(len(summary["values"]), count)
        self.assertEqual(summary["min"], min(summary["values"]))
        self.assertEqual(summary["max"], max(summary["values"]))
        self.assertTrue(summary["min"] <= summary["median"] <= summary["max"])

    def check_operation(self, operation, repeats=2):
        """Compares every figure of a save or a load with the others."""
        for busy in operation["processors_busy"].values():
            self.assertTrue(all(0 <= share <= 1 for share in busy["values"]), busy)
        for key in ("seconds_max", "seconds_min", "gib_per_s", "share_of_ceiling"):
            self.check_summary(operation[key], repeats)
        ceilings = operation["ceiling"]["gib_per_s"]["values"]
        self.check_summary(operation["ceiling"]["gib_per_s"], 2 * repeats)
        copied = operation["ceiling"]["copied_gib_per_s"]
        self.check_summary(copied, repeats)
        for i in range(repeats):
            seconds = operation["seconds_max"]["values"][i]
            rate = operation["gib_per_s"]["values"][i]
            self.assertLessEqual(operation["seconds_min"]["values"][i], seconds)
            self.assertAlmostEqual(rate, operation["size_bytes"] / seconds / GIB, delta=rate * 1e-9)
            mean = (ceilings[2 * i] + ceilings[2 * i + 1]) / 2
            self.assertAlmostEqual(operation["share_of_ceiling"]["values"][i], rate / mean, delta=rate / mean * 1e-9)
            of_copied = rate / copied["values"][i]
            self.assertAlmostEqual(operation["share_of_copied_ceiling"]["values"][i], of_copied, delta=of_copied * 1e-9)
            for phase in operation["phases"]:
                self.assertLessEqual(phase["seconds_max"]["values"][i], seconds, phase["name"])
                self.assertLessEqual(phase["seconds_min"]["values"][i], phase["seconds_max"]["values"][i] + 1e-9)
        names = [phase["name"] for phase in operation["phases"]]
        self.assertEqual(len(names), len(set(names)))
        moved = {phase["name"]: phase["size_bytes"] for phase in operation["phases"]}
        if operation["operation"] == "save":
            self.assertLessEqual({"plan", "exchange", "checksum", "write", "fsync", "commit"}, set(names))
            self.assertGreaterEqual(moved["write"], operation["size_bytes"])
            self.assertTrue(operation["durable"])
        else:
            self.assertLessEqual({"plan", "read", "verify", "scatter"}, set(names))
            self.assertGreaterEqual(moved["read"], operation["size_bytes"])
            self.assertGreaterEqual(operation["delivered_bytes"], operation["size_bytes"])
            self.check_summary(operation["cache"]["cached_share"], repeats)
            dropped = operation["cache"]["cached_share"]["max"] <= 0.01
            self.assertEqual(operation["cache"]["state"] == "dropped", dropped, operation["cache"])
        self.assertGreaterEqual(operation["verified"]["size_bytes"], operation["size_bytes"])

    def test_four_ranks_save_and_three_and_eight_load(self):
        paths = {name: self.folder / f"result.{name}" for name in ("json", "csv", "html")}
        record = self.record_of(self.tiny("--save-ranks", "4", "--layout", "tp=2,pp=2", "--load-ranks", "3,8",
                                          "--load-layouts", "fsdp=3", "tp=4,pp=2,uneven", "--json",
                                          "--record", paths["json"], "--csv", paths["csv"], "--html", paths["html"],
                                          ranks=8, LSB_JOBID="12"))
        self.assertEqual(record["command"], "bench")
        self.assertEqual(record["record_version"], 1)
        self.assertEqual(json.loads(paths["json"].read_text()), record)
        (run,) = record["runs"]
        parameters = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 160 + 2 * 64) + 2 * 512 * 64 + 64
        self.assertEqual(run["size_bytes"], 14 * parameters)
        self.assertEqual([run["save"]["ranks"], *(load["ranks"] for load in run["loads"])], [4, 3, 8])
        self.assertEqual([load["layout"] for load in run["loads"]], ["fsdp=3", "tp=4,pp=2,uneven"])
        for operation in (run["save"], *run["loads"]):
            self.check_operation(operation)
        for ceiling in record["memory_ceilings_gib_per_s"].values():
            self.check_summary(ceiling, 2)
            self.assertGreater(ceiling["min"], 0)
        self.check_machine(record)
        self.check_csv(paths["csv"], run)
        self.check_html(paths["html"], run)

    def check_machine(self, record):
        machine = record["machine"]
        self.assertEqual(sum(host["ranks"] for host in machine["hosts"]), 8)
        self.assertRegex(machine["tool"], r"^cairn \d")
        self.assertNotIn("\\x", machine["mpi_library"])
        self.assertIn("--save-ranks 4", machine["command_line"])
        self.assertTrue(machine["file_system"]["type"])
        self.assertRegex(machine["date"], r"^\d{4}-\d\d-\d\dT")

    def check_csv(self, path, run):
        with path.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        for operation in (run["save"], *run["loads"]):
            mine = [row for row in rows if (row["operation"], row["layout"]) ==
                    (operation["operation"], operation["layout"])]
            self.assertEqual({row["repeat"] for row in mine}, {"1", "2"})
            for repeat in (1, 2):
                parts = {row["part"]: row for row in mine if row["repeat"] == str(repeat)}
                self.assertEqual(len(parts), 4 + len(operation["phases"]))
                total = parts["total"]
                self.assertAlmostEqual(float(total["seconds_max"]), operation["seconds_max"]["values"][repeat - 1],
                                       delta=ROUNDING)
                self.assertEqual(int(total["size_bytes"]), operation["size_bytes"])
                self.assertEqual(int(total["verified_bytes"]), operation["verified"]["size_bytes"])
                for phase in operation["phases"]:
                    self.assertEqual(int(parts["phase " + phase["name"]]["size_bytes"]), phase["size_bytes"])

    def check_html(self, path, run):
        page = ElementTree.parse(path).getroot()
        space = "{http://www.w3.org/1999/xhtml}"
        self.assertEqual(page.tag, space + "html")
        plots = [svg for svg in page.iter("{http://www.w3.org/2000/svg}svg") if svg.get("role") == "img"]
        self.assertEqual(len(plots), 2 + len(run["loads"]))  # phases, and one for each operation
        self.assertIsNone(page.find(f".//{space}script"))
        text = path.read_text()
        self.assertNotIn("src=", text)
        self.assertIn("prefers-color-scheme: dark", text)
        results = page.find(f"{space}body")[1]  # below the title
        self.assertIn("tiny.json: 4 ranks in layout tp=2,pp=2 saved", "".join(results.itertext()))
        self.assertIn("LSF job 12", text)
        self.assertIn("cost the same whatever the size", text)

    def test_one_rank_alone(self):
        record = self.record_of(self.tiny("--json", ranks=None))
        self.assertIsNone(record["memory_ceilings_gib_per_s"]["exchange"])
        (run,) = record["runs"]
        self.assertEqual((run["save"]["layout"], run["loads"][0]["layout"]), ("fsdp=1", "fsdp=1"))
        for operation in (run["save"], *run["loads"]):
            self.check_operation(operation)

    def test_every_engine(self):
        for engine in ("posix", "mpiio", "direct"):
            with self.subTest(engine=engine):
                record = self.record_of(self.tiny("--engine", engine, "--json", repeats=1, ranks=2))
                (run,) = record["runs"]
                if record["machine"]["file_system"]["type"] in ("ext4", "xfs"):
                    self.assertEqual(run["loads"][0]["cache"]["state"], "dropped")
                self.assertEqual((run["save"]["engine"], run["save"]["engine_reason"]), (engine, "asked for"))
                disabled = {"romio_cb_read": "disable", "romio_cb_write": "disable"}
                for operation in (run["save"], run["loads"][0]):
                    hints = operation["engine_hints"]
                    if engine == "mpiio":
                        self.assertEqual({key: hints.get(key) for key in disabled}, disabled)
                    else:
                        self.assertEqual(hints, {})
                    self.check_operation(operation, 1)

    def test_hints_of_the_user_are_told_as_mpi_took_them(self):
        hints = ("--hint", "romio_cb_write=enable", "--hint", "cb_buffer_size=1048576")
        result = self.tiny("--engine", "mpiio", *hints, "--json", repeats=1, ranks=2)
        (run,) = self.record_of(result)["runs"]
        told = run["save"]["engine_hints"]
        self.assertEqual((told["romio_cb_write"], told["cb_buffer_size"]), ("enable", "1048576"))
        self.assertEqual(told["romio_ds_write"], "disable")
        self.check_operation(run["save"], 1)

    def test_checkpointers_are_kept_when_told(self):
        (run,) = self.record_of(self.tiny("--sections", "model", "--reuse-plan", "--json"))["runs"]
        for operation in (run["save"], run["loads"][0]):
            self.assertTrue(operation["checkpointer_kept"])
            self.check_operation(operation)
        (run,) = self.record_of(self.tiny("--sections", "model", "--json"))["runs"]
        self.assertFalse(run["loads"][0]["checkpointer_kept"])

    def test_sections_and_saves_without_loads(self):
        (run,) = self.record_of(self.tiny("--sections", "model", "--no-load", "--reuse-plan", "--json"))["runs"]
        self.assertEqual(run["loads"], [])
        self.assertTrue(run["save"]["plan_reused"])
        self.assertIn("verify", run["save"]["verified"]["by"])
        self.check_operation(run["save"])

    def test_a_sweep_has_a_run_for_each_size(self):
        record = self.record_of(self.bench("--sweep", "4MiB,8MiB", "--json", "--html", self.folder / "sweep.html",
                                           repeats=1))
        sizes = [run["size_bytes"] for run in record["runs"]]
        for size, wanted in zip(sizes, (2**22, 2**23), strict=True):
            self.assertTrue(wanted / 2 < size < wanted * 2, sizes)
        ElementTree.parse(self.folder / "sweep.html")
        self.assertIn("Size sweep", (self.folder / "sweep.html").read_text())

    def test_mlperf_is_scaled_and_says_so(self):
        (run,) = self.record_of(self.bench("--mlperf", "405b", "--size", "4MiB", "--json", repeats=1, ranks=2))["runs"]
        self.assertEqual(run["save"]["layout"], "tp=2,pp=1")
        self.assertIn("on 512 ranks", run["note"])

    def test_tables_are_printed(self):
        result = self.tiny("--save-ranks", "2", "--load-ranks", "1", ranks=2)
        self.assertEqual(result.code, 0, result.err)
        self.assertRegex(result.out, r"(?m)^save +2 +fsdp=2 ")
        self.assertRegex(result.out, r"(?m)^load +1 +fsdp=1 ")
        self.assertRegex(result.out, r"(?m)^checksum +\d")
        self.assertIn("memory ceilings", result.out)
        self.assertIn("repeat 2 of 2", result.err)

    def test_asynchronous_saves(self):
        result = self.tiny("--async", "--json", "--async-cores", "0", ranks=2)
        self.assertEqual(result.code, 0, result.err)
        record = result.json()
        self.assertEqual(record["verified_bytes"], record["size_bytes"])
        self.assertGreaterEqual(record["snapshot_bytes"], record["size_bytes"])
        seconds = record["seconds_max"]
        self.assertEqual(set(seconds), {"memcpy", "stall", "stall_plan", "stall_copy", "save", "behind", "busy", "step",
                                        "busy_step"})
        for figures in [*seconds.values(), record["steps"]]:
            self.assertEqual(len(figures["values"]), 2)
            self.assertGreater(figures["min"], 0)
        for repeat in range(2):
            self.assertLessEqual(seconds["stall"]["values"][repeat], seconds["behind"]["values"][repeat])
            self.assertAlmostEqual(record["ratios"]["stall"]["values"][repeat],
                                   seconds["stall"]["values"][repeat] / seconds["memcpy"]["values"][repeat], places=6)
        self.assertIn("kept the program", self.tiny("--async", ranks=2).out)
        self.assertEqual(list(self.work.iterdir()), [])
        synchronous = self.tiny("--async", "--engine", "mpiio", ranks=2)
        self.assertEqual(synchronous.code, 2)
        self.assertIn("synchronous", synchronous.err)

    def test_damage_leaves_no_figure(self):
        paths = [self.folder / f"result.{name}" for name in ("json", "csv", "html")]
        options = ["--json", "--record", paths[0], "--csv", paths[1], "--html", paths[2]]
        cases = {"bench.saved:after=1": "block",  # the second save: the first one after warm-up
                 "bench.load:after=1:rank=1": "not the value that was saved",
                 "bench.raw:rank=0": "not what was written"}
        for rule, words in cases.items():
            with self.subTest(rule=rule):
                result = self.tiny(*options, ranks=2, CAIRN_FAULT=rule)
                self.assertEqual((result.code, result.out), (1, ""), result.err)
                self.assertEqual(len(result.errors), 1, result.err)
                self.assertIn(words, result.errors[0])
                self.assertEqual([path for path in paths if path.exists()], [])
        result = self.tiny("--json", "--no-load", ranks=2, CAIRN_FAULT="bench.saved")
        self.assertEqual((result.code, result.out, len(result.errors)), (1, "", 1), result.err)

    def test_a_save_that_fails_leaves_no_figure(self):
        result = self.tiny("--json", "--engine", "posix", ranks=2, CAIRN_FAULT="fsync:errno=ENOSPC:path=model")
        self.assertEqual((result.code, result.out, len(result.errors)), (1, "", 1), result.err)
        self.assertEqual(list(self.work.iterdir()), [])

    def test_sleepers_end_like_the_others(self):
        codes = exit_codes("bench", "--dir", self.work, "--model", f"@{self.model}", "--save-ranks", "1",
                           "--repeats", "1", "--warm-up", "0", ranks=3)
        self.assertEqual(codes, [0, 0, 0])

    def test_wrong_options(self):
        cases = [
            (["--model", "gpt-9"], "gpt-9"),
            (["--size", "4XB"], "--size"),
            (["--size", "1MiB", "--model", "smollm2-135m"], "--model"),
            (["--sweep", "1MiB,many"], "--sweep"),
            (["--sweep", "1MiB", "--layers", "2"], "--layers"),
            (["--mlperf", "8b", "--layers", "2"], "--mlperf"),
            (["--mlperf", "9b"], "9b"),
            (["--sections", "weights"], "weights"),
            (["--layout", "tp=2"], "2 ranks"),
            (["--save-ranks", "2"], "mpirun -n 2"),
            (["--save-ranks", "0"], "--save-ranks"),
            (["--load-ranks", "5"], "mpirun -n 5"),
            (["--load-layouts", "fsdp=3"], "mpirun -n 3"),
            (["--load-ranks", "1,2", "--load-layouts", "fsdp=1"], "--load-layouts"),
            (["--no-load", "--load-ranks", "1"], "--no-load"),
            (["--repeats", "0"], "--repeats"),
            (["--in-flight", "0"], "--in-flight"),
            (["--request-size", "1000"], "--request-size"),
            (["--engine", "tape"], "tape"),
            (["--size", "100TiB"], "--size"),
            (["--program-cores", "0"], "--program-cores"),
            (["--async-cores", "0"], "--async-cores"),
            (["--no-load", "--drop-caches"], "--drop-caches"),
            (["--async", "--record", self.work / "no" / "record.json"], "--record"),
            (["--async", "--hint", "x"], "--hint"),
        ]
        for option, *value in (["--sweep", "1MiB"], ["--save-ranks", "1"], ["--load-ranks", "1"], ["--no-load"],
                               ["--load-layouts", "fsdp=1"], ["--reuse-plan"], ["--scattered-memory"], ["--drop-caches"],
                               ["--request-size", "1MiB"], ["--in-flight", "4"], ["--csv", "a.csv"], ["--html", "a.html"]):
            cases.append((["--async", option, *value], f"{option} has no effect with --async"))
        for arguments, word in cases:
            with self.subTest(arguments=arguments):
                self.bad(2, "bench", "--dir", self.work, *arguments, says=[word])
                self.assertEqual(list(self.work.iterdir()), [])
        self.bad(2, "bench", says=["--dir"])
        for ranks in (None, 2):
            self.bad(2, "bench", "--dir", self.folder / "nowhere", "--size", "1MiB", ranks=ranks,
                     says=["--dir", "nowhere", "does not exist"])
        self.assertFalse((self.folder / "nowhere").exists())

    def test_the_job_script(self):
        """With a program in place of srun that shows how it is called."""
        script = pathlib.Path(__file__).resolve().parents[2] / "slurm/bench.sbatch"
        (self.folder / "srun").write_text('#!/bin/sh\necho "$@"\n')
        (self.folder / "srun").chmod(0o755)
        job = {"PATH": f"{self.folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "8",
               "SLURM_NTASKS_PER_NODE": "4", "SLURM_CPUS_ON_NODE": "8", "SLURM_SUBMIT_DIR": str(self.folder)}
        refused = run_command(["bash", str(script)], {**job, "SCRATCH": ""})
        self.assertEqual((refused.code, refused.out), (2, ""))
        self.assertIn("CAIRN_BENCH_DIR", refused.err)
        result = run_command(["bash", str(script)], {**job, "SCRATCH": str(self.work)})
        self.assertEqual(result.code, 0, result.err)
        doctor, bench = result.out.splitlines()
        self.assertEqual(doctor, f"--mpi=pmix --cpus-per-task=2 cairn doctor {self.work}")
        self.assertIn(f"--cpus-per-task=2 cairn bench --dir {self.work} --size 32GiB --layout fsdp=8", bench)
        self.assertNotIn("#SBATCH --cpus-per-task", script.read_text())  # more than some nodes have

    def test_what_does_not_fit_is_told_before_anything_is_written(self):
        result = self.bench("--size", "4TiB", "--layout", "fsdp=2", ranks=2)
        self.assertEqual((result.code, len(result.errors)), (2, 1), result.err)
        self.assertIn("of memory on host", result.errors[0])
        self.assertEqual(list(self.work.iterdir()), [])


if __name__ == "__main__":
    main()
