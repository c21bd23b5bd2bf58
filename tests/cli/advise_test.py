"""`cairn advise`: the page's example, text and JSON, and what is refused."""

import pathlib
import re
import shlex

from program import CairnTest, exit_codes, main

PAGE = pathlib.Path(__file__).resolve().parents[2] / "src/life/README.md"
COSTS = ("--stall", "1.2", "--background", "40", "--load", "30", "--restart", "5m", "--step", "15")


class Advise(CairnTest):
    def advise(self, *arguments):
        return self.good("advise", *arguments, "--json").json()

    def test_the_example_of_the_page(self):
        command, output = re.search(r"(?m)^    \$ cairn (advise .*)\n((?:(?:    .*)?\n)+)", PAGE.read_text()).groups()
        text = self.good(*shlex.split(command)).out
        lines = [line.removeprefix("    ").rstrip() for line in output.strip("\n").splitlines()]
        self.assertEqual([line.rstrip() for line in text.splitlines()], lines)

    def test_the_document(self):
        document = self.advise(*COSTS, "--failures", "12", "--hours", "400", "--run", "30d")
        self.assertEqual(document["command"], "advise")
        best = document["best"]
        self.assertEqual(best["seconds"], 15 * best["steps"])
        for band in (document["band"], document["likely_band"]):
            self.assertLess(band["shortest"]["steps"], best["steps"])
            self.assertGreater(band["longest"]["steps"], best["steps"])
        self.assertLess(document["likely_band"]["shortest"]["steps"], document["band"]["shortest"]["steps"])
        self.assertAlmostEqual(document["mtbf_seconds"], 400 * 3600 / 12)
        self.assertLess(document["mtbf_low_seconds"], document["mtbf_seconds"])
        self.assertGreater(document["mtbf_high_seconds"], document["mtbf_seconds"])
        costs = {cost["name"]: cost for cost in document["costs"]}
        self.assertEqual({name: cost["seconds"] for name, cost in costs.items()},
                         {"stall": 1.2, "background": 40, "load": 30, "restart": 300})
        self.assertAlmostEqual(sum(cost["waste"] for cost in costs.values()) + document["lost_work"], best["waste"])
        most = max(costs.values(), key=lambda cost: cost["saved_if_halved"])
        self.assertEqual(document["mend_first"], most["name"])
        formulas = {formula["name"]: formula for formula in document["formulas"]}
        self.assertEqual(list(formulas), ["Young", "Daly", "optimum", "Saxena", "guide"])
        self.assertAlmostEqual(formulas["Young"]["seconds"], (2 * 1.2 * document["mtbf_seconds"]) ** 0.5)
        self.assertGreater(formulas["guide"]["seconds"], formulas["Young"]["seconds"])
        self.assertAlmostEqual(document["guide_failures"], 1, places=6)
        self.assertEqual(document["notes"], [])

    def test_without_a_step_nothing_is_in_steps(self):
        document = self.advise("--stall", "10", "--restart", "5m", "--mtbf", "3.09h")
        self.assertIsNone(document["best"]["steps"])
        self.assertIsNone(document["step_seconds"])
        self.assertIsNone(document["guide_failures"])
        self.assertEqual(document["band"], document["likely_band"])
        self.assertEqual(document["notes"], ["not given, and taken as 0 s: --background, --load"])

    def test_units(self):
        documents = [self.advise("--stall", stall, "--mtbf", mtbf)
                     for stall, mtbf in (("90", "7200"), ("90000ms", "2h"), ("1.5m", "120min"))]
        self.assertEqual([document["best"] for document in documents], [documents[0]["best"]] * 3)
        self.assertEqual(documents[0]["mtbf_seconds"], 7200)

    def test_an_assumed_rate_is_said(self):
        document = self.advise(*COSTS, "--nodes", "2048")
        self.assertAlmostEqual(document["mtbf_seconds"] / 3600, 1.80, places=2)
        self.assertIn("6.5 in 1000 node-days", document["notes"][0])
        self.assertIn("no failure in 400 h", self.advise(*COSTS, "--failures", "0", "--hours", "400")["notes"][0])

    def test_the_bound_is_said(self):
        document = self.advise("--stall", "0.5", "--background", "20m", "--mtbf", "3h")
        self.assertEqual((document["bound"], document["best"]["seconds"]), ("background", 1200))
        self.assertTrue(any("would wait for each other" in note for note in document["notes"]))
        document = self.advise("--stall", "0", "--step", "20", "--mtbf", "3h")
        self.assertEqual((document["bound"], document["best"]["steps"], document["mend_first"]), ("step", 1, ""))

    def test_what_is_refused(self):
        cases = [
            ([], "nothing says how often the job fails: give --mtbf"),
            (["--failures", "3"], "--failures needs --hours"),
            (["--mtbf", "0s"], "not above 0"),
            (["--mtbf", "50", "--restart", "5m"], "the job makes no progress"),
            (["--nodes", "1", "--rate", "1e-9"], "out of range"),
        ]
        for arguments, says in cases:
            with self.subTest(arguments=arguments):
                self.bad(2, "advise", "--stall", "1", *arguments, says=[says])
        self.bad(2, "advise", "--mtbf", "3h", says=["give --stall, or the root of a run"])
        self.bad(2, "advise", self.folder, "--mtbf", "3h", says=["has no save; give --stall"])
        self.bad(1, "advise", self.folder / "absent", "--mtbf", "3h", says=["does not exist"])
        self.bad(2, "advise", "--stall", "0", "--mtbf", "3h", says=["could be made at every moment"])

    def test_every_rank_ends_alike_and_rank_0_speaks(self):
        self.assertEqual(exit_codes("advise", *COSTS, "--mtbf", "3h", ranks=2), [0, 0])
        self.assertEqual(exit_codes("advise", *COSTS, "--mtbf", "3", ranks=2), [2, 2])


if __name__ == "__main__":
    main()
