"""`cairn plan` of a save and of a load: figures that add up and are the same for any number of sampled ranks, and one
line for every wrong argument."""

from program import CairnTest, exit_codes, main

MODEL = ("--model", "smollm2-135m", "--layers", "4")
STEPS = ["shards", "describe", "catalog", "files", "indexes", "claims", "places", "transfers", "exchange"]
LOAD_STEPS = ["shards", "listing", "headers", "catalog", "tensors", "blocks", "extents", "transfers", "exchange"]
CONFIG = ('{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, '
          '"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96, "tie_word_embeddings": false, '
          '"torch_dtype": "bfloat16"}')


class Plan(CairnTest):
    def plan(self, *arguments, **options):
        return self.good("plan", *MODEL, *arguments, "--json", **options).json()

    def check_sums(self, document):
        """Every byte of the state is provided, received and written once; ranks may hold more than that."""
        rank = {name: spread["sum"] for name, spread in document["per_rank"].items()}
        self.assertEqual(rank["provided_bytes"], document["size_bytes"])
        self.assertEqual(rank["sent_bytes"] + rank["local_bytes"], document["size_bytes"])
        self.assertEqual(rank["received_bytes"], rank["sent_bytes"])
        self.assertEqual(rank["written_bytes"], document["files_size_bytes"])
        self.assertEqual(document["files_size_bytes"], document["size_bytes"] + document["header_bytes"])
        self.assertEqual(rank["transfers_in"], rank["transfers_out"])
        self.assertGreaterEqual(rank["held_bytes"], document["size_bytes"])
        for row in document["metadata"]:
            if row["name"] in ("descriptions", "sorting", "claims", "provisions", "transfers", "indexes"):
                self.assertEqual(row["sent_bytes"]["sum"], row["received_bytes"]["sum"], row["name"])
        for spread in document["per_rank"].values():
            self.assertLessEqual(spread["min"], spread["median"])
            self.assertLessEqual(spread["median"], spread["max"])
        self.assertAlmostEqual(document["local_share"], rank["local_bytes"] / document["size_bytes"])
        written = document["per_rank"]["written_bytes"]
        self.assertAlmostEqual(document["write_balance"], written["max"] * document["ranks"] / written["sum"])

    def test_the_sums_are_the_state(self):
        for layout in ("tp=3,dp=8,zero=1", "fsdp=5", "tp=2,pp=2", "tp=4,pp=2,uneven"):
            with self.subTest(layout=layout):
                document = self.plan("--layout", layout, "--max-file-size", "50MB")
                self.check_sums(document)
                self.assertGreaterEqual(document["files"], 10)
        # weights in BF16, three times F32: 4 layers, the embedding is tied
        parameters = 49152 * 576 + 576 + 4 * (2 * 576 + 2 * 576 * 576 + 2 * 192 * 576 + 3 * 1536 * 576)
        self.assertEqual(document["size_bytes"], 14 * parameters)

    def test_one_rank_keeps_everything(self):
        document = self.plan("--layout", "tp=1")
        self.check_sums(document)
        self.assertEqual((document["ranks"], document["local_share"], document["write_balance"]), (1, 1.0, 1.0))
        self.assertEqual(document["per_rank"]["sent_bytes"]["max"], 0)
        self.assertEqual(document["planning"]["ranks_sampled"], [0])

    def test_a_sample_gives_the_figures_of_all_ranks(self):
        layout = ("--layout", "tp=3,dp=8,zero=1", "--max-file-size", "50MB", "--stripe", "1MiB")
        every = self.plan(*layout, "--ranks-sampled", "all")
        some = self.plan(*layout, "--ranks-sampled", "2")
        self.assertEqual(every["planning"]["ranks_sampled"], list(range(24)))
        self.assertLess(len(some["planning"]["ranks_sampled"]), 15)
        self.assertIn(0, some["planning"]["ranks_sampled"])
        self.assertIn(12, some["planning"]["ranks_sampled"])
        for document in (every, some):
            planning = document.pop("planning")
            self.assertEqual([step["name"] for step in planning["steps"]], STEPS)
            self.assertLess(sum(step["seconds_min"] for step in planning["steps"]), planning["total"]["seconds_max"] * 1.01)
            self.assertGreater(planning["total"]["seconds_min"], 0)
            self.assertGreater(planning["total"]["peak_bytes_min"], planning["kept_bytes_max"] // 4)
            self.assertIn(planning["slowest_rank"], planning["ranks_sampled"])
        self.assertEqual(every, some)

    def test_more_ranks_than_blocks(self):
        document = self.plan("--layout", "tp=2,pp=2,dp=64", "--sections", "model")
        self.check_sums(document)
        self.assertEqual(document["per_rank"]["extents"]["min"], 0)
        self.assertEqual(document["tensors"], 38)

    def test_sections(self):
        sizes = {name: self.plan("--layout", "fsdp=2", "--sections", name)["size_bytes"]
                 for name in ("all", "model", "optimizer", "master_weights", "model,optimizer")}
        self.assertEqual(sizes["optimizer"], 4 * sizes["model"])
        self.assertEqual(sizes["master_weights"], 2 * sizes["model"])
        self.assertEqual(sizes["model,optimizer"], 5 * sizes["model"])
        self.assertEqual(sizes["all"], 7 * sizes["model"])

    def test_stripes_and_bandwidth(self):
        layout = ("--layout", "fsdp=3", "--max-file-size", "100MB")
        even = self.plan(*layout, "--stripe", "4MiB", "--bandwidth", "1GiB/s")
        self.assertEqual(even["stripes"]["stripes_shared"], 0)
        self.assertEqual(even["stripes"]["stripes"], even["blocks"])
        written = even["per_rank"]["written_bytes"]["max"]
        self.assertAlmostEqual(even["seconds_at_bandwidth"], written * 3 / 2**30)
        uneven = self.plan(*layout, "--stripe", "5MB")
        self.assertIn(uneven["stripes"]["stripes_shared"], range(1, 7))  # 3 sections, cut twice each
        self.assertIsNone(uneven["seconds_at_bandwidth"])

    def test_nodes(self):
        layout = ("--layout", "tp=2,dp=4,zero=1")
        plain = self.plan(*layout)
        self.assertIsNone(plain["per_node"])
        for words in (("--nodes", "4"), ("--ranks-per-node", "2"), ("--nodes", "4", "--ranks-per-node", "2")):
            document = self.plan(*layout, *words)
            nodes = document.pop("per_node")
            self.assertEqual((nodes["nodes"], nodes["ranks_per_node"]), (4, 2))
            for name in ("held_bytes", "written_bytes"):
                self.assertEqual(nodes[name]["sum"], document["per_rank"][name]["sum"])
            self.assertLess(0, nodes["sent_to_other_nodes_bytes"]["sum"])
            self.assertLess(nodes["sent_to_other_nodes_bytes"]["sum"], document["per_rank"]["sent_bytes"]["sum"])
        one, all_alone = (self.plan(*layout, "--nodes", nodes) for nodes in (1, 8))
        self.assertEqual(one["per_node"]["sent_to_other_nodes_bytes"]["sum"], 0)
        self.assertEqual(all_alone["per_node"]["sent_to_other_nodes_bytes"], plain["per_rank"]["sent_bytes"])
        self.assertEqual(all_alone["per_node"]["written_bytes"], plain["per_rank"]["written_bytes"])
        self.assertEqual(self.plan("--nodes", "2", "--ranks-per-node", "3")["layout"], "fsdp=6")
        self.assertRegex(self.good("plan", *MODEL, "--nodes", "2", "--ranks-per-node", "3").out, r"(?m)^per node \(2\) ")

    def test_progress_is_told(self):
        result = self.good("plan", *MODEL, "--layout", "fsdp=3", CAIRN_PROGRESS_S="0.000001")
        for phase in ("planning shards", "planning claims", "planning transfers", "measuring"):
            self.assertRegex(result.err, rf"(?m)^cairn: {phase} .* \([0-9]+ %\)$")
        self.assertEqual(self.good("plan", *MODEL, "--layout", "fsdp=3").err, "")

    def test_memory_decides_the_rounds(self):
        def rounds(memory, *model):
            return self.good("plan", *model, "--layout", "fsdp=2", "--memory", memory, "--json").json()["rounds"]

        large = ("--model", "qwen2-0.5b")
        self.assertGreater(rounds("28MiB", *large), 3 * rounds("1GiB", *large))

    def test_a_table_for_people(self):
        text = self.good("plan", *MODEL, "--layout", "tp=2,pp=2", "--stripe", "1MiB", "--bandwidth", "2GB/s").out
        for words in ("on 4 ranks in layout tp=2,pp=2", "per rank", "metadata per rank", "planning per rank",
                      "measured on all ranks", "stripes of 1.00 MiB", "writing at"):
            self.assertIn(words, text)
        for step in STEPS:
            self.assertRegex(text, rf"(?m)^{step} ")

    def test_a_config_file_and_a_layout_file(self):
        config = self.folder / "config.json"
        config.write_text(CONFIG)
        layout = self.folder / "layout.json"
        layout.write_text('{"base": "tp=2,dp=2,zero=1"}')
        document = self.good("plan", "--model", f"@{config}", "--layout", f"@{layout}", "--json").json()
        self.check_sums(document)
        self.assertEqual((document["ranks"], document["tensors"]), (4, 4 * 21))

    def test_wrong_arguments(self):
        good = [*MODEL, "--layout", "fsdp=2"]
        cases = [
            (["--layout", "fsdp=2"], "--model"),
            ([*MODEL], "--layout"),
            (["--model", "gpt-9", "--layout", "fsdp=2"], "gpt-9"),
            (["--model", "gpt2", "--layout", "sideways=2"], "sideways"),
            (["--model", "llama-3.1-405b", "--layout", "tp=8,pp=16,dp=128"], "126 layers"),
            ([*good, "--sections", "model,sketches"], "sketches"),
            ([*good, "--ranks-sampled", "0"], "--ranks-sampled"),
            ([*good, "--ranks-sampled", "few"], "few"),
            ([*good, "--stripe", "0"], "--stripe"),
            ([*good, "--bandwidth", "fast"], "fast"),
            ([*good, "--nodes", "3"], "3 nodes"),
            ([*good, "--ranks-per-node", "4"], "cannot be on nodes of 4 ranks each"),
            ([*good, "--nodes", "2", "--ranks-per-node", "2"], "cannot be on 2 nodes of 2 ranks each"),
            ([*good, "--bandwidth", "100"], "has no unit"),
            ([*MODEL, "--nodes", "2"], "--layout"),
            ([*good, "--max-file-size", "0"], "--max-file-size"),
            ([*good, "--memory", "1MiB"], "memory"),
            ([*good, "--layers", "0"], "--layers"),
        ]
        for arguments, word in cases:
            with self.subTest(arguments=arguments):
                self.bad(2, "plan", *arguments, says=[word])
        self.bad(1, "plan", "--model", f"@{self.folder}/missing.json", "--layout", "fsdp=2", says=["missing.json"])

    def test_ranks_end_alike_and_rank_0_speaks(self):
        self.assertEqual(exit_codes("plan", *MODEL, "--layout", "fsdp=2", ranks=2), [0, 0])
        self.assertEqual(self.plan("--layout", "fsdp=7", ranks=2)["ranks"], 7)


class PlanLoad(CairnTest):
    def plan(self, layout, load, *arguments, model=MODEL):
        return self.good("plan", *model, "--layout", layout, "--load", load, *arguments, "--json").json()

    def check_sums(self, document):
        """Every wanted byte arrives, and reads consist of whole blocks, each once."""
        rank = {name: spread["sum"] for name, spread in document["per_rank"].items()}
        self.assertEqual(rank["received_bytes"] + rank["local_bytes"], rank["wanted_bytes"])
        self.assertEqual(rank["sent_bytes"], rank["received_bytes"])
        self.assertEqual(rank["transfers_in"], rank["transfers_out"])
        self.assertGreaterEqual(rank["wanted_bytes"], document["size_bytes"])
        self.assertLessEqual(rank["read_bytes"], document["files_size_bytes"])
        self.assertGreater(rank["read_bytes"], document["files_size_bytes"] - document["files"] * document["block_size_bytes"])
        self.assertEqual(document["rounds"], document["per_rank"]["windows"]["max"])
        metadata = {row["name"]: row for row in document["metadata"]}
        self.assertEqual(list(metadata), ["listing", "checksums", "summaries", "samples", "sorting", "catalog", "blocks",
                                          "ranges", "transfers"])
        for name in ("summaries", "sorting", "blocks", "transfers"):
            self.assertEqual(metadata[name]["sent_bytes"]["sum"], metadata[name]["received_bytes"]["sum"], name)
        others = document["ranks"] - 1
        for name in ("listing", "checksums", "samples", "catalog", "ranges"):  # to all other ranks
            self.assertEqual(metadata[name]["received_bytes"]["sum"], others * metadata[name]["sent_bytes"]["sum"], name)
        self.assertAlmostEqual(document["local_share"], rank["local_bytes"] / rank["wanted_bytes"])
        for balance, name in (("read_balance", "read_bytes"), ("wanted_balance", "wanted_bytes")):
            spread = document["per_rank"][name]
            self.assertAlmostEqual(document[balance], spread["max"] * document["ranks"] / spread["sum"])

    def test_the_sums_are_what_is_wanted(self):
        for load in ("fsdp=5", "tp=2,pp=2", "tp=4,pp=2,uneven", "tp=3,dp=4,zero=1"):
            with self.subTest(load=load):
                document = self.plan("tp=3,dp=8,zero=1", load, "--max-file-size", "50MB")
                self.check_sums(document)
                self.assertEqual((document["layout"], document["load_layout"]), ("tp=3,dp=8,zero=1", load))
                replicas = document["per_rank"]["wanted_bytes"]["sum"] - document["size_bytes"]
                self.assertEqual(replicas == 0, load == "fsdp=5")
        self.assertEqual(document["ranks"], 12)

    def test_who_saved_it_does_not_matter(self):
        some, other = (self.plan(layout, "tp=2,pp=2", "--max-file-size", "50MB") for layout in ("fsdp=7", "tp=2,dp=3"))
        for document in (some, other):
            del document["planning"], document["layout"]
        self.assertEqual(some, other)

    def test_one_rank_tells_nobody_anything(self):
        document = self.plan("fsdp=3", "tp=1")
        self.check_sums(document)
        self.assertEqual((document["ranks"], document["local_share"], document["read_balance"]), (1, 1.0, 1.0))
        self.assertEqual(document["per_rank"]["peers"]["max"], 0)
        for row in document["metadata"]:
            self.assertEqual(row["received_bytes"]["sum"], 0, row["name"])

    def test_a_sample_gives_the_figures_of_all_ranks(self):
        every = self.plan("fsdp=2", "tp=3,dp=8,zero=1", "--max-file-size", "50MB", "--ranks-sampled", "all")
        some = self.plan("fsdp=2", "tp=3,dp=8,zero=1", "--max-file-size", "50MB", "--ranks-sampled", "2")
        self.assertEqual(every["planning"]["ranks_sampled"], list(range(24)))
        self.assertLess(len(some["planning"]["ranks_sampled"]), 10)
        for document in (every, some):
            planning = document.pop("planning")
            self.assertEqual([step["name"] for step in planning["steps"]], LOAD_STEPS)
            self.assertGreater(planning["total"]["seconds_min"], 0)
            self.assertGreater(planning["total"]["peak_bytes_min"], 0)
        self.assertEqual(every, some)

    def test_a_section_of_more_ranks_than_blocks(self):
        document = self.plan("fsdp=2", "tp=2,pp=2,dp=64", "--sections", "model")
        self.check_sums(document)
        self.assertEqual((document["tensors"], document["per_rank"]["extents"]["min"]), (38, 0))
        self.assertEqual(document["per_rank"]["sent_bytes"]["min"], 0)  # a rank that reads nothing has nothing to send
        self.assertGreater(document["per_rank"]["received_bytes"]["min"], 0)
        # Each norm exists twice in a tensor-parallel pair; the last stage also has the tied embedding.
        twice = 2 * (9 * 576 + 49152 * 576)
        self.assertEqual(document["per_rank"]["wanted_bytes"]["sum"], 64 * (document["size_bytes"] + twice))

    def test_what_is_wanted_travels_as_ranges_or_as_bits(self):
        """Few ranges are listed, one for each wanted whole file; many ranges take less as one bit per block."""
        def rows(document):
            self.check_sums(document)
            sent = {row["name"]: row["sent_bytes"]["max"] for row in document["metadata"]}
            return sent["blocks"] - 8, sent["ranges"]  # 8: the number of ranges

        replicas, halves, pieces = (self.plan("fsdp=2", load, model=("--model", "llama-3.1-8b"))
                                    for load in ("dp=2", "pp=2", "tp=8,pp=2"))
        self.assertEqual(rows(replicas), (0, 8 + 24 * replicas["files"]))
        self.assertEqual(rows(halves)[0], 0)
        self.assertGreater(rows(halves)[1], 8 + 24)
        self.assertEqual(rows(pieces), (8 * ((pieces["blocks"] + 63) // 64), 0))

    def test_no_more_rounds_than_windows(self):
        large = ("--model", "qwen2-0.5b")
        small_windows = self.plan("fsdp=4", "fsdp=2", "--memory", "28MiB", model=large)
        large_windows = self.plan("fsdp=4", "fsdp=2", "--memory", "1GiB", model=large)
        for document in (small_windows, large_windows):
            self.check_sums(document)
        self.assertGreater(small_windows["rounds"], 3 * large_windows["rounds"])

    def test_nodes(self):
        document = self.plan("fsdp=2", "tp=2,dp=2", "--nodes", "2")
        self.assertEqual(document["per_node"]["nodes"], 2)
        self.assertEqual(document["per_node"]["read_bytes"]["sum"], document["per_rank"]["read_bytes"]["sum"])
        self.assertLess(0, document["per_node"]["received_from_other_nodes_bytes"]["sum"])

    def test_bandwidth(self):
        document = self.plan("fsdp=2", "fsdp=3", "--bandwidth", "1GiB/s")
        self.assertAlmostEqual(document["seconds_at_bandwidth"], document["per_rank"]["read_bytes"]["max"] * 3 / 2**30)

    def test_a_table_for_people(self):
        text = self.good("plan", *MODEL, "--layout", "fsdp=3", "--load", "tp=2,pp=2", "--bandwidth", "2GB/s").out
        for words in ("as saved in layout fsdp=3, loaded by 4 ranks in layout tp=2,pp=2", "per rank", "metadata per rank",
                      "planning per rank", "is read by its rank", "measured on all ranks", "reading at", "while it reads"):
            self.assertIn(words, text)
        for step in LOAD_STEPS:
            self.assertRegex(text, rf"(?m)^{step} ")

    def test_a_real_load_moves_as_many_bytes(self):
        config = self.folder / "config.json"
        config.write_text(CONFIG)
        model = ("--model", f"@{config}")
        files = ("--max-file-size", "60KB")
        self.good("demo", "save", "--dir", self.folder / "root", *model, *files, "--layout", "fsdp=2", ranks=2)
        real = self.good("demo", "load", "--dir", self.folder / "root", "--layout", "tp=3,uneven",
                         "--aggregators", "1", "--json", ranks=3).json()  # one reader: nothing bypasses the windows
        self.assertTrue(real["equal"])
        planned = self.plan("fsdp=2", "tp=3,uneven", *files, model=model)
        self.check_sums(planned)
        moved = {phase["name"]: phase["size_bytes"] for phase in real["phases"]}
        self.assertEqual(planned["per_rank"]["wanted_bytes"]["sum"], real["size_bytes_compared"])
        self.assertEqual(planned["per_rank"]["wanted_bytes"]["sum"], moved["scatter"])
        self.assertEqual(planned["per_rank"]["read_bytes"]["sum"], moved["read"])

    def test_wrong_arguments(self):
        good = [*MODEL, "--layout", "fsdp=2"]
        cases = [
            (["--load", ""], "--load: the value is empty"),
            (["--load", "sideways=2"], "sideways"),
            (["--load", "pp=3"], "4 layers"),
            (["--load", "fsdp=2", "--stripe", "4MiB"], "--stripe"),
            (["--load", "fsdp=2", "--memory", "1MiB"], "memory"),
        ]
        for arguments, word in cases:
            with self.subTest(arguments=arguments):
                self.bad(2, "plan", *good, *arguments, says=[word])
        self.bad(2, "plan", *MODEL, "--layout", "pp=3", "--load", "fsdp=2", says=["4 layers"])  # no save is possible
        self.bad(1, "plan", *good, "--load", f"@{self.folder}/missing.json", says=["missing.json"])


if __name__ == "__main__":
    main()
