"""Messages of the command name its own options, not those of the library."""

import pathlib
import re
import shutil

import small_files
from program import CairnTest, main

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src"


class OwnOptions(CairnTest):
    def refused(self, code, *words, says, **options):
        result = self.bad(code, *words, says=says, **options)
        self.assertNotRegex(result.err, r"[A-Z]\w*::")
        return result

    def test_errors(self):
        source, out, root = self.folder / "source", self.folder / "out", self.folder / "root"
        small_files.two_shards(source)
        self.refused(2, "convert", source, out, "--group", "no-such-group", says=["(--group)"])
        noted = self.good("convert", source, self.folder / "noted", "--remove-master-weight").out
        self.assertIn("note: --remove-master-weight leaves nothing out", noted)
        self.good("convert", source, out)
        self.refused(2, "convert", source, out, says=["a program can have it replaced"])
        linked = self.folder / "linked"
        shutil.copytree(source, linked)
        one = sorted(linked.glob("model*.safetensors"))[0]
        one.rename(self.folder / "elsewhere")
        one.symlink_to(self.folder / "elsewhere")
        self.refused(1, "inspect", linked, says=["give --follow-links when it may be read"])
        save = ("demo", "save", "--dir", root, "--layers", 1, "--step", 100)
        self.good(*save)
        self.refused(2, *save, says=["allow it to be replaced (--overwrite)"])
        (self.folder / "work").mkdir()
        self.refused(1, "demo", "load", "--dir", root, "--layers", 2, says=["layers.1."])

    def test_warnings_and_notes(self):
        source = self.folder / "source"
        small_files.two_shards(source)
        convert = ("convert", source, self.folder / "out", "--remove-master-weight", "--json")
        notes = " ".join(self.good(*convert).json()["notes"])
        self.assertIn("--remove-master-weight leaves nothing out", notes)
        self.assertNotIn("Options::", notes)

    # Options of the library in its messages that no command sets, and that no message of a command names.
    NEVER = {
        "AsyncOptions::on_done": "no command has callbacks",
        "Options::async.max_snapshot_bytes": "no command sets a limit",
        "Options::files.metadata": "no command sets metadata",
        "Options::base.{}": "a command's base is a step, or a path that was found",
        "Options::environment": "no command adds texts to the environment",
        "Options::environment.command_line": "likewise",
        "Options::environment.values": "likewise",
        "Options::preflight": "no command leaves it out",
        "Options::reuse_step": "no command names the step to take files from",
        "Options::run_id": "the commands' own are short and UTF-8",
        "Options::waiting": "the command's own is right",
        "Extras::layout": "a layout is parsed before",
        "Extras::metadata": "a conversion says whose metadata it is",
        "Extras::metrics": "no command has metrics",
        "LoadOptions::no_load_optim": "no command leaves out moments",
        "LoadOptions::select": "no command selects what it loads",
        "LoadOptions::{}": "likewise",
        "ScheduleOptions::{}": "no command has a schedule",
    }

    def test_every_option_in_a_message_has_its_words(self):
        table = (SOURCE / "cli/option_words.cpp").read_text()
        names = set(re.findall(r'\{"(\w+::[\w.]+)", "--', table))
        phrases = " ".join(re.findall(r'\{"([^"]*::[^"]*|[^"]*)",\s', table))
        self.assertGreater(len(names), 10)
        found = {}
        for path in SOURCE.rglob("*.cpp"):
            if path.name == "option_words.cpp":
                continue
            for line in path.read_text().splitlines():
                for text in re.findall(r'"((?:[^"\\]|\\.)*)"', line.split("//")[0]):
                    for name in re.findall(r"(?:Load|Async|Prune|Schedule)?(?:Options|Extras|Checkpointer)::[\w.{}]+\w\}?|"
                                           r"(?:Load|Schedule)Options::\{\}", text):
                        aside = re.search(rf"\({re.escape(name)}[,)]", text) or f"; {name} " in text
                        if not aside:
                            found.setdefault(name, str(path.relative_to(SOURCE)))
        self.assertGreater(len(found), 15)
        for name, where in found.items():
            is_known = name in names or name in phrases or name in self.NEVER
            prefix = name.removesuffix("{}")  # "Options::quantisation.{}"
            is_known = is_known or prefix != name and any(each.startswith(prefix) for each in names)
            self.assertTrue(is_known, f"{where}: {name} is not in src/cli/option_words.cpp")


if __name__ == "__main__":
    main()
