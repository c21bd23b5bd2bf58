"""Two nodes that lack a shared directory: the second rank has a host name and mounts of its own (namespaces)."""

import subprocess

from program import CAIRN, CairnTest, launcher, main, run_command

# Rank 1 is on "node2", where the directory is on another file system.
ON_NODE_2 = """
case "${OMPI_COMM_WORLD_RANK-}${PMI_RANK-}" in
1) hides=$1; shift; exec unshare --mount --uts sh -c 'hostname node2; hides=$1; shift
   [ -z "$hides" ] || mount -t tmpfs cairn-test "$hides" || exit 77; exec "$@"' sh "$hides" "$@" ;;
*) shift; exec unshare --mount --uts sh -c 'hostname node1; exec "$@"' sh "$@" ;;
esac
"""


class Nodes(CairnTest):
    def setUp(self):
        super().setUp()
        tried = subprocess.run(["unshare", "--mount", "--uts", "hostname", "node2"], capture_output=True, check=False)
        if tried.returncode != 0:
            self.skipTest("namespaces are forbidden here: " + tried.stderr.decode().strip())
        self.root = self.folder / "root"
        self.root.mkdir()

    def on_two(self, *arguments, hidden=""):
        command = [*launcher(2), "sh", "-c", ON_NODE_2, "sh", str(hidden), str(CAIRN), *map(str, arguments)]
        return run_command(command, {})

    def checks(self, code, *arguments, **options):
        result = self.on_two("doctor", *arguments, "--json", **options)
        self.assertEqual(result.code, code, result.err + result.out)
        found = {}
        for check in result.json()["checks"]:
            found.setdefault(check["name"], []).append(check)
        return found

    def test_a_root_of_one_node_is_refused_before_anything_is_saved(self):
        result = self.on_two("demo", "save", "--dir", self.root, "--layers", "1", hidden=self.root)
        self.assertNotEqual(result.code, 0)
        self.assertEqual(len(result.errors), 1, result.err)
        self.assertIn(f"'{self.root}' is not the directory that rank 0 sees under this name", result.errors[0])
        self.assertIn("(rank 1 on node2)", result.errors[0])
        self.assertEqual(list(self.root.iterdir()), [])

    def test_a_destination_of_one_node_is_refused_before_anything_is_written(self):
        self.good("demo", "save", "--dir", self.folder / "saved", "--layers", "1")
        out = self.root / "out"
        result = self.on_two("convert", self.folder / "saved" / "checkpoint-100", out, hidden=self.root)
        self.assertNotEqual(result.code, 0)
        self.assertIn("is not the directory that rank 0 sees under this name", result.errors[0])
        self.assertIn("(rank 1 on node2)", result.errors[0])
        self.assertEqual(list(self.root.iterdir()), [])

    def test_a_root_that_both_see_is_saved_into(self):
        self.assertEqual(self.on_two("demo", "save", "--dir", self.root, "--layers", "1").code, 0)
        self.assertIn("good:", self.good("verify", self.root / "checkpoint-100").out)
        self.assertEqual([path.name for path in self.root.iterdir() if path.name.endswith(".look")], [])

    def test_doctor_looks_from_every_node(self):
        found = self.checks(1, self.root, hidden=self.root)
        [shared] = found["shared directory"]
        self.assertEqual(shared["verdict"], "danger")
        self.assertIn("(rank 1 on node2)", shared["finding"])
        self.assertEqual([check["hosts"] for check in found["file system"]], [["node1"], ["node2"]])
        self.assertIn("tmpfs", found["file system"][1]["finding"])
        text = self.on_two("doctor", self.root, hidden=self.root).out
        self.assertIn("(on node2)", text)

    def test_what_all_nodes_find_is_said_once(self):
        found = self.checks(0, self.root)
        self.assertEqual({len(checks) for checks in found.values()}, {1}, found)
        self.assertEqual({tuple(check["hosts"]) for [check] in found.values()}, {()})
        self.assertEqual(found["shared directory"][0]["verdict"], "good")
        self.assertEqual(list(self.root.iterdir()), [])


if __name__ == "__main__":
    main()
