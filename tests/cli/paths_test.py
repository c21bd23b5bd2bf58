"""A path that does not exist: the error names the nearest one, in every command."""

import small_files
from program import CairnTest, cairn, main


class Paths(CairnTest):
    def test_every_command_names_the_neighbour(self):
        whole = self.folder / "runs" / "llama"
        small_files.two_shards(whole)
        (self.folder / "layout.json").write_text("{}")
        near = self.folder / "runs" / "lama"
        says = f"'{near}' does not exist; did you mean '{whole}'?"
        cases = [(1, ["inspect", near]), (1, ["inspect", whole, "--part", near]), (1, ["verify", near]), (1, ["ls", near]),
                 (1, ["verify", near, "--all"]), (1, ["convert", near, self.folder / "out"]),
                 (1, ["convert", whole, self.folder / "out", "--part", near]), (1, ["diff", near, whole]),
                 (1, ["diff", whole, near]), (1, ["prune", near, "--keep-last", 1]), (1, ["pin", near / "x", 1]),
                 (1, ["demo", "load", "--dir", near]), (2, ["bench", "--dir", near]), (1, ["report", near]),
                 (1, ["advise", near])]
        for code, words in cases:
            with self.subTest(command=words):
                if words[0] == "pin":
                    self.bad(code, *words)
                else:
                    self.bad(code, *words, says=[says])
        self.bad(1, "plan", "--model", "gpt2", "--layout", f"@{self.folder / 'lyout.json'}",
                 says=[f"did you mean '{self.folder / 'layout.json'}'?"])
        self.assertFalse((self.folder / "out").exists())
        self.assertIn(f"did you mean '{whole}'?", self.good("doctor", near).out)

    def test_which_neighbour(self):
        for name in ("runs/llama/checkpoint-1", "runs/b"):
            (self.folder / name).mkdir(parents=True)
        for wrong, right in (("rnus/llama", "runs/llama"), ("rnus/nothing", "runs"), ("runs/llama/chekpoint-1",
                             "runs/llama/checkpoint-1"), ("runs/llama/", None), ("nothing", None), ("runs/xyz", None)):
            result = cairn("inspect", self.folder / wrong if not wrong.endswith("/") else f"{self.folder}/{wrong}")
            with self.subTest(wrong=wrong):
                if right is None:
                    self.assertNotIn("did you mean", result.err)
                else:
                    self.assertIn(f"did you mean '{self.folder / right}'?", result.err)


if __name__ == "__main__":
    main()
