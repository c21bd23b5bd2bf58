"""Man pages and shell completions, as the build makes them, against the help of every command."""

import os
import pathlib
import re
import subprocess

from program import CAIRN, CairnTest, cairn, main

SHARE = CAIRN.parents[1] / "share"
BASH = SHARE / "bash-completion/completions/cairn"
JSON_PAGE = pathlib.Path(__file__).resolve().parents[2] / "src/cli/JSON.md"
# What these print is what they are for.
WITHOUT_QUIET = {"cairn", "cairn demo", "cairn inspect", "cairn ls", "cairn advise", "cairn report", "cairn help"}


class Pages(CairnTest):
    @classmethod
    def setUpClass(cls):
        cls.commands = {}
        cls.look_at([])
        assert len(cls.commands) > 14

    @classmethod
    def look_at(cls, words):
        """Reads the help of the command and of those below it: cls.commands has options and arguments by name."""
        help_text = cairn(*words, "--help").out
        lists = dict(re.findall(r"(?ms)^(Positionals|Options|Subcommands):\n(.*?)(?:\n\n|\Z)", help_text))
        options = re.findall(r"(?m)^  (?:-h,)?(--[a-z-]+)", lists["Options"])
        arguments = re.findall(r"(?m)^  ([a-z]+)", lists.get("Positionals", ""))
        cls.commands[" ".join(["cairn", *words])] = (options, arguments)
        for name in re.findall(r"(?m)^  ([a-z]+) ", lists.get("Subcommands", "")):
            cls.look_at([*words, name])

    def test_man_pages_have_every_command_and_option(self):
        pages = {path.name: path.read_text() for path in (SHARE / "man/man1").iterdir()}
        self.assertEqual(set(pages), {f"{name.replace(' ', '-')}.1" for name in self.commands})
        for name, (options, arguments) in self.commands.items():
            page = pages[f"{name.replace(' ', '-')}.1"]
            found = {line.split("\\fR")[0] for line in re.findall(r"(?m)^\.TP\n(\\f[BI].*)$", page)}
            escaped = {"\\fB" + option.replace("-", "\\-") for option in options} | {"\\fI" + each for each in arguments}
            below = {"\\fB" + each for each in self.commands if each.rpartition(" ")[0] == name}
            self.assertEqual(found, escaped | below, name)
            for part in (".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH EXAMPLES", ".SH SEE ALSO"):
                if (part, name) != (".SH EXAMPLES", "cairn"):
                    self.assertRegex(page, f"(?m)^{re.escape(part)}", name)
            # Other requests would be text that looks like one.
            requests = set(re.findall(r"(?m)^[.']\S*", page))
            self.assertLessEqual(requests, {".TH", ".SH", ".TP", ".nf", ".fi"}, name)
            self.assertNotRegex(page, r"[^\x20-\x7e\n]", name)

    def test_completions_have_every_command_and_option(self):
        bash, zsh, fish = (BASH.read_text(), (SHARE / "zsh/site-functions/_cairn").read_text(),
                           (SHARE / "fish/vendor_completions.d/cairn.fish").read_text())
        for name, (options, _) in self.commands.items():
            self.assertIn(f"    '{name}') values='{' '.join(options)}' ;;", bash)
            function = re.search(rf"(?ms)^{name.replace(' ', '_').replace('cairn', '_cairn')}\(\) {{$(.*?)^}}$", zsh)[1]
            self.assertEqual(re.findall(r"(?m)^    '\*?(--[a-z-]+)", function), options, name)
            words = name.split()[1:]
            seen = [line for line in fish.splitlines() if words and f"_from {words[-1]}'" in line or
                    f"_from {words[-1]};" in line and "and not" in line] if words else [
                        line for line in fish.splitlines() if "__fish_use_subcommand" in line]
            self.assertEqual(["--" + option for option in re.findall(r" -l (\S+)", "\n".join(seen))], options, name)

    def test_every_command_can_be_quiet_or_prints_a_result_alone(self):
        loud = {name for name, (options, _) in self.commands.items() if "--quiet" not in options}
        self.assertEqual(loud, WITHOUT_QUIET)

    def test_the_page_of_json_has_every_command(self):
        have = {name for name, (options, _) in self.commands.items() if "--json" in options}
        named = set(re.findall(r"(?m)^## ([a-z ]+?)(?: --.*)?$", JSON_PAGE.read_text()))
        self.assertEqual({name.removeprefix("cairn ") for name in have}, named)

    def complete(self, *words):
        """The words that bash offers for the last one."""
        script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cairn; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", str(BASH), "cairn", *words], text=True, check=True,
                              capture_output=True, cwd=self.folder, env={**os.environ, "LC_ALL": "C"})
        self.assertEqual(done.stderr, "")
        return done.stdout.split("\n")[:-1]

    def test_bash_completes(self):
        for name in ("a file", "data.h5", "@"):
            (self.folder / name).touch()
        (self.folder / "directory").mkdir()
        cases = [
            (["ver"], ["verify"]),
            (["demo", ""], ["save", "load"]),
            (["help", "un"], ["unpin"]),
            (["convert", "--eng"], ["--engine"]),
            (["convert", "--engine", ""], ["auto", "direct", "mpiio", "posix"]),
            (["convert", "--engine", "=", "d"], ["direct"]),  # as bash splits --engine=d
            (["convert", "--engine", "="], ["auto", "direct", "mpiio", "posix"]),
            (["convert", "a", "--engine", "auto", "--quant", "q"], ["q8", "q4"]),
            (["convert", "--part", ""], ["directory"]),
            (["convert", ""], ["@", "a file", "data.h5", "directory"]),
            (["convert", "--layout", "@d"], ["@data.h5", "@directory"]),
            (["convert", "a", "b", "--json", ""], self.commands["cairn convert"][0]),
            (["ls", ""], ["directory"]),
            (["verify", "a", "--require", "m"], ["model", "master_weights"]),
            (["ls", "--watch", "--j"], ["--json"]),
            (["demo", "save", "--model", "smollm2-135"], ["smollm2-135m"]),
            (["verify", "a", "--nothing", "x"], [""]),
        ]
        for words, offered in cases:
            with self.subTest(words=words):
                self.assertEqual(sorted(self.complete(*words)), sorted(offered))


if __name__ == "__main__":
    main()
