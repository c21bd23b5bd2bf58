"""The value of every element, as in src/bench/demo_state.hpp: SplitMix64 over (section, name, element), masked into
finite numbers. Any part of any tensor can be made and checked without the rest.
"""

import numpy

GOLDEN = 0x9E3779B97F4A7C15
MASK64 = 2**64 - 1
LANES = {"BF16": (0x83FF83FF83FF83FF, 0x3B803B803B803B80), "F32": (0x83FFFFFF83FFFFFF, 0x3B8000003B800000)}
SIGNS = 0x8000000080000000
CHUNK_WORDS = 1 << 16  # stays in the processor's caches
UNSIGNED = {"BF16": numpy.uint16, "F32": numpy.uint32}


def _mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def _hash_text(value, text):
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK64
    return value


class Values:
    """The values of one tensor."""

    def __init__(self, tensor):
        seed = _hash_text(_hash_text(0xCBF29CE484222325, tensor.section) * GOLDEN & MASK64, tensor.name)
        mask, base = LANES[tensor.dtype]
        if tensor.name.endswith("/moment2_0"):
            mask &= ~SIGNS
        self.tensor = tensor
        self.seed, self.mask, self.base = (numpy.uint64(value) for value in (_mix(seed), mask, base))
        self.per_word = 8 // tensor.element_bytes
        self.dtype = UNSIGNED[tensor.dtype]

    def _words(self, first, count):
        with numpy.errstate(over="ignore"):
            z = numpy.arange(first, first + count, dtype=numpy.uint64)
            z *= numpy.uint64(GOLDEN)
            z += self.seed
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                z ^= z >> numpy.uint64(shift)
                z *= numpy.uint64(factor)
            z ^= z >> numpy.uint64(31)
            z &= self.mask
            z += self.base
        return z

    def elements(self, first, count):
        """Elements [first, first + count) of the flat tensor, as unsigned integers of their width."""
        first_word = first // self.per_word
        end_word = -(-(first + count) // self.per_word)
        made = self._words(first_word, end_word - first_word).view(self.dtype)
        return made[first - first_word * self.per_word:][:count]

    def pieces(self, box):
        """Yields (rows of the box, their values) in pieces of bounded size; a tensor of one dimension is one column."""
        rows, columns = box.shape[0], (box.shape[1] if len(box.shape) == 2 else 1)
        width = self.tensor.shape[1] if len(self.tensor.shape) == 2 else 1
        first_column = box.offset[1] if len(box.offset) == 2 else 0
        at_once = max(1, CHUNK_WORDS * self.per_word // width)
        for row in range(0, rows, at_once):
            count = min(at_once, rows - row)
            made = self.elements((box.offset[0] + row) * width, count * width).reshape(count, width)
            yield slice(row, row + count), made[:, first_column:first_column + columns]

    def fill(self, box, array):
        """Fills `array`, which has the box's shape and unsigned integers of the element's width."""
        flat = array.reshape(array.shape[0], -1)
        for rows, made in self.pieces(box):
            flat[rows] = made

    def is_equal(self, box, array):
        flat = array.reshape(array.shape[0], -1)
        return array.shape == box.shape and array.dtype == self.dtype and all(
            numpy.array_equal(flat[rows], made) for rows, made in self.pieces(box))
