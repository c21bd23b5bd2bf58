"""`cairn diff`: differences by name, exact for every dtype."""

from program import CairnTest, cairn, exit_codes, main
from small_files import counting, two_shards, values, write_safetensors


class Diff(CairnTest):
    def setUp(self):
        super().setUp()
        self.a, self.b = self.folder / "a", self.folder / "b"

    def write(self, folder, **tensors):
        write_safetensors(folder / "model.safetensors", {name.replace("_", "."): tensor for name, tensor in tensors.items()})

    def differences(self, *arguments, **options):
        result = cairn("diff", self.a, self.b, "--json", *arguments, **options)
        self.assertEqual(result.code, 1, result.err)
        document = result.json()
        self.assertFalse(document["equal"])
        return {row["name"]: row for row in document["differences"]}

    def test_equal_although_the_files_differ(self):
        two_shards(self.a)
        self.good("convert", self.a, self.b)
        text = self.good("diff", self.a, self.b).out
        self.assertEqual(text, "equal: 3 tensors, 212 bytes compared\n")
        document = self.good("diff", self.a, self.b, "--json", ranks=3).json()
        self.assertTrue(document["equal"])
        self.assertEqual((document["tensors"], document["size_bytes_compared"], document["differences"]), (3, 212, []))

    def test_values_that_differ(self):
        self.write(self.a, same=counting("F32", [4]), other=values("F32", [2, 3], [0, 1, 2, 3, 4, 5]))
        self.write(self.b, same=counting("F32", [4]), other=values("F32", [2, 3], [0, 1, 2.5, 3, 4, 9]))
        for ranks in (None, 3):
            rows = self.differences(ranks=ranks)
            self.assertEqual(set(rows), {"other"})
            row = rows["other"]
            self.assertEqual((row["elements_differing"], row["elements"], row["max_abs_difference"]), (2, 6, 4.0))
        text = cairn("diff", self.a, self.b).out
        self.assertRegex(text, r"(?m)^model +other +differs +2 +6 +4")
        self.assertIn("different: 1 of 2 tensors", text)
        self.assertEqual(exit_codes("diff", self.a, self.b, ranks=3), [1, 1, 1])

    def test_tensors_that_are_missing_or_of_another_shape(self):
        self.write(self.a, a=counting("F32", [2]), shape=counting("F32", [4, 8]), nan=values("F32", [1], [float("nan")]))
        self.write(self.b, b=counting("F32", [2]), shape=counting("F32", [8, 4]), nan=values("F32", [1], [1.0]))
        rows = self.differences()
        self.assertEqual({name: row["verdict"] for name, row in rows.items()},
                         {"a": "only in A", "b": "only in B", "shape": "other shape", "nan": "differs"})
        self.assertEqual(rows["nan"]["max_abs_difference"], "infinity")
        self.assertIn("[4, 8]", rows["shape"]["detail"])
        self.assertIsNone(rows["shape"]["elements_differing"])

    def test_another_dtype(self):
        self.write(self.a, w=counting("F32", [3]))
        self.write(self.b, w=counting("F64", [3]))
        row = self.differences()["w"]
        self.assertEqual((row["verdict"], row["max_abs_difference"]), ("other dtype", 0.0))

    def test_large_integers(self):
        """Counters and seeds, above 2^53: neighbours there are one double."""
        for folder, more in ((self.a, 0), (self.b, 1)):
            self.write(folder, seed=values("U64", [1], [2**60 + 100 * more]), count=values("I64", [1], [2**53 + more]),
                       step=values("I64", [], [1000 + more]), flag=("BOOL", [2], bytes([1, more])))
        for options in ([], ["--atol", "0.5"], ["--rtol", "0.5"], ["--atol", "1"]):
            with self.subTest(options):
                rows = self.differences(*options, ranks=3)
                self.assertEqual({name: row["max_abs_difference"] for name, row in rows.items()},
                                 {"seed": 100, "count": 1, "step": 1, "flag": 1})
                outside = {name for name, row in rows.items() if row["elements_outside"]}
                self.assertEqual(outside, {"seed", "flag"} if options == ["--atol", "1"] else set(rows))
                self.assertEqual({name: row["compared_as"] for name, row in rows.items()},
                                 {"seed": "integers", "count": "integers", "step": "integers", "flag": "bits"})
        self.write(self.b, seed=values("U64", [1], [2**60 + 2**59 + 1]), count=values("I64", [1], [2**53]),
                   step=values("I64", [], [1000]), flag=("BOOL", [2], bytes([1, 0])))
        self.assertEqual(self.differences()["seed"]["max_abs_difference"], 2**59 + 1)
        self.assertIn("576,460,752,303,423,489", cairn("diff", self.a, self.b).out)
        text = self.good("diff", self.a, self.b, "--atol", "1e18", "--rtol", "0.25").out
        self.assertIn("tolerance: floats |A - B| <= 1e+18 + 0.25 * |B|, integers |A - B| <= 1e+18, all other", text)
        self.assertNotIn("tolerance", cairn("diff", self.a, self.b).out)

    def test_tolerances_with_all_digits(self):
        self.write(self.a, n=values("I64", [2], [2**63 - 1, 0]), f=values("F64", [1], [1e308]))
        self.write(self.b, n=values("I64", [2], [-(2**63), 2**53 + 1]), f=values("F64", [1], [-1e308]))
        most = 2**64 - 1
        rows = self.differences("--atol", str(most - 1), "--rtol", "2")
        self.assertEqual([name for name, row in rows.items() if row["elements_outside"]], ["n"])
        document = self.good("diff", self.a, self.b, "--atol", str(most), "--rtol", "2", "--json").json()
        self.assertEqual((document["close"], document["atol"]), (True, most))
        self.assertIn(f"integers |A - B| <= {2**53 + 1}", cairn("diff", self.a, self.b, "--atol", str(2**53 + 1)).out)
        self.assertEqual(self.differences("--atol", str(2**53 + 1))["n"]["elements_outside"], 1)

    def test_elements_that_share_bytes(self):
        """Two of F4 and four of F6, also where a row ends inside a byte."""
        f4, f6 = bytes(range(256)) * 60, bytes(range(255, 0, -1)) * 60
        self.write(self.a, f4=("F4", [30, 1024], f4), odd=("F4", [1024, 15], f4[:7680]), f6=("F6_E2M3", [36, 35], f6[:945]))
        self.write(self.b, f4=("F4", [30, 1024], b"\x01" + f4[1:-1] + b"\x0f"), f6=("F6_E2M3", [36, 35], f6[:944] + b"\x00"),
                   odd=("F4", [1024, 15], f4[:7] + b"\xf8" + f4[8:7680]))
        for ranks in (None, 4):
            rows = self.differences(ranks=ranks)
            self.assertEqual({name: (row["elements_differing"], row["elements"]) for name, row in rows.items()},
                             {"f4": (2, 30720), "odd": (2, 15360), "f6": (1, 1260)})
            self.assertEqual({row["max_abs_difference"] for row in rows.values()}, {None})
            self.assertEqual({row["compared_as"] for row in rows.values()}, {"bits"})
        self.assertEqual(set(self.differences("--atol", "100")), {"f4", "odd", "f6"})

    def test_something_that_is_no_checkpoint(self):
        two_shards(self.a)
        self.bad(1, "diff", self.a, self.folder / "nowhere", says=["nowhere"])


if __name__ == "__main__":
    main()
