"""A root with saves that are killed, as a test sees it."""

import json
import os
import pathlib
import shutil
import subprocess

CAIRN = pathlib.Path(os.environ["CAIRN_BIN_DIR"]) / "cairn"
LIMIT_S = 300


def verify(path):
    return subprocess.run([CAIRN, "verify", path, "--json"], capture_output=True, text=True, check=False, timeout=LIMIT_S)


def newest(test, root):
    """The step of the newest checkpoint, or of this one, after all its blocks were read and checked."""
    done = verify(root)
    test.assertEqual(done.returncode, 0, done.stdout + done.stderr)
    result = json.loads(done.stdout)
    test.assertTrue(result["good"] and result["blocks"] > 0, result)
    return int(pathlib.Path(result["path"]).name.removeprefix("checkpoint-"))


def remove_before(root, step):
    for path in root.glob("checkpoint-*"):
        number = path.name.split("-")[1].split(".")[0]
        if ".partial" not in path.name and int(number) < step:
            shutil.rmtree(path)
