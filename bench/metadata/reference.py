"""Opens the files of a directory with the safetensors package and asks each tensor for its shape and dtype."""

import pathlib
import sys

from safetensors import safe_open

count = 0
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.safetensors")):
    with safe_open(path, framework="np") as file:
        for name in file.keys():
            tensor = file.get_slice(name)
            if tensor.get_shape() and tensor.get_dtype():
                count += 1
print(count)
