"""A table of small directories, as many programs write them, and the answers of `cairn inspect`, `ls`, `verify` and
`convert` and of a load (load_boxes, which opens them with cairn::load_from). What is converted and loaded has the values
that the directory's own system would read; everything else is refused, with the words that help."""

import concurrent.futures
import json
import os
import pathlib
import struct
import subprocess

from program import CAIRN, CairnTest, Result, cairn, environment, main
from small_files import INDEX, FIRST, SECOND, header_of, read_safetensors

DATA = pathlib.Path(os.environ["CAIRN_TEST_DATA"])
CODES = {"F32": "f", "BF16": "H", "F8_E4M3": "B", "U16": "H"}


def tensors_of(text):
    """{name: (dtype, shape, data)} of "a=1 b:BF16[2,3]=5": elements count up from the number. F32[4] is left out."""
    out = {}
    for word in text.split():
        name, _, start = word.partition("=")
        name, _, kind = name.partition(":")
        dtype, _, sizes = (kind or "F32[4]").partition("[")
        shape = [int(size) for size in sizes.rstrip("]").split(",")]
        count = 1
        for size in shape:
            count *= size
        numbers = range(int(start or 0), int(start or 0) + count)
        data = bytes(numbers[: count // 2]) if dtype == "F4" else struct.pack(f"<{count}{CODES[dtype]}", *numbers)
        out[name] = (dtype, shape, data)
    return out


def packed(text, metadata=None):
    """The bytes of a safetensors file."""
    tensors = tensors_of(text)
    header = json.dumps(header_of(tensors, metadata)).encode()
    return struct.pack("<Q", len(header)) + header + b"".join(data for _, _, data in tensors.values())


def with_format(word, text):
    return packed(text, {"format": word})


def index(places):
    return {"metadata": {"total_size": 16 * len(places)}, "weight_map": places}


def sample(*folder, without=(), only=None):
    """The files of a folder of tests/data, with those that are stored in another folder there."""
    root = DATA.joinpath(*folder)
    found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for name, place in json.loads((DATA / "paddle/links.json").read_text()).items():
        if folder[0] == "paddle" and name.startswith(folder[1] + "/"):
            found[name.split("/", 1)[1]] = (DATA / "paddle" / place).read_bytes()
    return {name: data for name, data in found.items()
            if not name.startswith(tuple(without)) and (only is None or name.startswith(only))}


def inside(folder, files):
    return {f"{folder}/{name}": content for name, content in files.items()}


def content_of(name, content):
    """Text is tensors in a data file, and itself in any other."""
    if isinstance(content, dict):
        return json.dumps(content).encode()
    if isinstance(content, str):
        return packed(content) if ".safetensors" in name and not name.endswith(".json") else content.encode()
    return content


def of_sections(tensors):
    """{(section, name): tensor} for {"section/name": tensor}; the section is model if there is none."""
    return {tuple((["model"] + key.split("/"))[-2:]): tensor for key, tensor in tensors.items()}


def model_of(truth):
    tensors, _ = read_safetensors(DATA / f"paddle/truth/{truth}.safetensors")
    return of_sections({key: tensor for key, tensor in tensors.items() if key.startswith("model/")})


def turned(dtype, shape, data):
    rows, columns = shape
    size = len(data) // (rows * columns)
    places = (size * (row * columns + column) for column in range(columns) for row in range(rows))
    return dtype, [columns, rows], b"".join(data[at : at + size] for at in places)


def in_hugging_face(tensors):
    """PaddleNLP's weights of linear layers are [in, out]; a head that is tied is the embedding."""
    is_turned = not any(name.startswith("model.") for _, name in tensors)
    tokens = max(shape[0] for (_, name), (_, shape, _) in tensors.items() if "embed_tokens" in name)
    out = {}
    for (section, name), tensor in tensors.items():
        is_linear = name.endswith("_proj.weight") or (name == "lm_head.weight" and tensor[1][0] != tokens)
        out[section, name.replace("llama.", "model.")] = turned(*tensor) if is_turned and is_linear else tensor
    return out


class Case:
    """`files`: name -> tensors, text, JSON or bytes. `holds`: the tensors, "section/name" if the section is not model, or
    their number; `says`: words of a note about them. `refused`: words of the error of every command, in place of
    `holds`. Other arguments: words of one command's output, behind the exit code if it is not 0. `truth`: a file of
    tests/data/paddle/truth with the model's tensors, which are turned and renamed on their way to Hugging Face."""

    def __init__(self, name, files, holds=None, says=(), refused=None, truth=None, **words):
        self.name, self.files, self.refused = name, files, as_words(refused)
        self.count = holds if isinstance(holds, int) else len((holds or "").split())
        self.tensors = model_of(truth) if truth else of_sections(tensors_of(holds) if isinstance(holds, str) else {})
        self.has_truth = truth is not None
        self.becomes = in_hugging_face(self.tensors) if truth else self.tensors
        self.says = as_words(says)
        self.words = {command: as_words(texts) for command, texts in words.items()}
        assert (holds is None) != (refused is None), name

    def expected(self, command):
        """Exit code and words of a command."""
        words = self.words.get(command, ())
        return (words[0], words[1:]) if words and isinstance(words[0], int) else (0, words)

    def write(self, folder):
        folder.mkdir()
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content_of(name, content))


def as_words(words):
    return (words,) if isinstance(words, str) else tuple(words or ())


CONFIG = {"config.json": {"model_type": "llama"}}
MODEL = "model.safetensors"
TWO = {FIRST: "a=1", SECOND: "b=5"}
LISTED = {**TWO, INDEX: index({"a": FIRST, "b": SECOND})}
PICKLE = (DATA / "pickles/torch-legacy.pt").read_bytes()
BEFORE = {"model.safetensors-00001-of-00002": "a=1", "model.safetensors-00002-of-00002": "b=5"}
LORA = {"adapter_model.safetensors": "x.lora_A.weight=1 x.lora_B.weight=5"}
IN_LORA = "adapter/x.lora_A.weight=1 adapter/x.lora_B.weight=5"
PEFT = {"adapter_config.json": {"peft_type": "LORA", "r": 4}}
NOTHING = "is not a checkpoint that can be read"
NO_PICKLES = (NOTHING, "pickled torch files (.bin, .pt, .pth) are not read")
A_COPY = "by its name this is a second copy of "
OF_A_RANK = "its name says that it holds one rank's slices"
SHARDS = sample("dcp", "hf_sharded", "ckpt")

CASES = [
    # ---- Hugging Face: names of files
    Case("one file", {MODEL: with_format("pt", "a=1 b=5"), **CONFIG}, "a=1 b=5", inspect="Hugging Face"),
    Case("one file with another name", {"weights.safetensors": "a=1"}, "a=1", "taken for the model"),
    Case("an index", {**LISTED, **CONFIG}, "a=1 b=5"),
    Case("no index", TWO, "a=1 b=5", "2 files of 'model' have no index"),
    Case("no padding", {"model-1-of-2.safetensors": "a=1", "model-2-of-2.safetensors": "b=5"}, "a=1 b=5", "no index"),
    Case("numbers from 0", {"model-00000-of-00002.safetensors": "a=1", FIRST: "b=5"}, "a=1 b=5", "no index"),
    Case("suffix before the numbers", BEFORE, "a=1 b=5", "no index"),
    Case("suffix before the numbers, index",
         {**BEFORE, INDEX: index(dict(zip("ab", BEFORE)))}, "a=1 b=5"),
    Case("suffix before the numbers, one missing", {"model.safetensors-00001-of-00002": "a=1"},
         refused=("file 2 of 2 of 'model' is missing", "model.safetensors-00002-of-00002")),
    Case("one of a set", {FIRST: "a=1"}, refused=("file 2 of 2 of 'model' is missing", SECOND)),
    Case("the index names a missing file", {FIRST: "a=1", INDEX: LISTED[INDEX]},
         refused=(SECOND + ": the file is missing", "tensor 'b'")),
    Case("a stale index", {MODEL: "a=1 b=5", INDEX: LISTED[INDEX]},
         refused=(FIRST + ": the file is missing", MODEL + " is a complete set", "move it away")),
    Case("files of two saves", {**TWO, "model-00003-of-00003.safetensors": "c=9"},
         refused=("model-00003-of-00003.safetensors: belongs to another save", "move the files of the older save away")),
    Case("an index of files in folders",
         {"x/one.safetensors": "a=1", "y/two.safetensors": "b=5",
          INDEX: index({"a": "x/one.safetensors", "b": "y/two.safetensors"})}, "a=1 b=5"),
    Case("consolidated next to a set", {**LISTED, "consolidated.safetensors": "x=1 y=5"},
         "a=1 b=5 consolidated/x=1 consolidated/y=5", "usually a second copy of 'model'"),
    Case("companions of macOS", {**LISTED, "._" + FIRST: b"\0\5\x16\7", "._" + INDEX: b"\0\5\x16\7"}, "a=1 b=5"),
    Case("a hidden data file", {MODEL: "a=1", ".model.safetensors": "a=7", ".old.safetensors": "c=3"}, "a=1"),
    Case("a variant", {"model.fp16.safetensors": "a=1", **CONFIG}, "a=1"),
    Case("a model and a variant", {MODEL: "a=1", "model.fp16.safetensors": "a=7"}, "a=1 model.fp16/a=7"),

    Case("a browser's second download", {MODEL: "a=1", "model (1).safetensors": "a=1"},
         refused=("model (1).safetensors", A_COPY + MODEL + "; move one of the two away")),
    Case("a copy with other content", {MODEL: "a=1", "model copy 2.safetensors": "b=5"}, refused=A_COPY + MODEL),
    Case("a copy of a file of a set", {**LISTED, "model-00002-of-00002 - Copy (3).safetensors": "b=5"},
         refused=A_COPY + SECOND + "; move one"),
    Case("a copy in place of a file", {FIRST: "a=1", "model-00002-of-00002(1).safetensors": "b=5"},
         refused=A_COPY + SECOND + ", which is not here; rename it"),
    Case("only a copy", {"model (1).safetensors": "a=1", **CONFIG}, "a=1"),
    Case("copies that are not data files", {MODEL: "a=1", "model.safetensors.1": b"?", "model.safetensors.bak": b"?"}, "a=1",
         convert=(0, "left behind", "model.safetensors.1, model.safetensors.bak")),

    # ---- Hugging Face: content
    Case("an alias of a tied tensor", {MODEL: packed("a=1", {"format": "pt", "b": "a"})}, "a=1",
         inspect=MODEL + "  b       a\n"),
    Case("an adapter", {**LORA, **PEFT}, IN_LORA),
    Case("an adapter without its configuration", LORA, IN_LORA),
    Case("an adapter next to its model", {MODEL: "a=1", **CONFIG, **LORA, **PEFT}, "a=1 " + IN_LORA),
    Case("an optimizer", {MODEL: "a=1", "optimizer.safetensors": "a.exp_avg=3"}, "a=1 optimizer/a.exp_avg=3"),
    Case("format pd", {MODEL: with_format("pd", "a=1"), **CONFIG}, "a=1", inspect="Hugging Face"),
    Case("format tf", {MODEL: with_format("tf", "a=1"), **CONFIG}, "a=1", inspect="Hugging Face"),
    Case("format ms", {MODEL: with_format("ms", "a=1"), **CONFIG}, "a=1", inspect="MindSpore Transformers",
         convert=(2, "does not become a model of transformers", "names of MindSpore's programs", "--keep-names")),
    Case("elements of 4 bits", {MODEL: "a:F4[2,4]=1 s:F8_E4M3[2]=3", **CONFIG}, "a:F4[2,4]=1 s:F8_E4M3[2]=3"),
    Case("a header that is damaged", {**LISTED, SECOND: packed("b=5").replace(b'"dtype":', b'"dtype"?')},
         refused=(SECOND, "header", "not valid JSON")),
    Case("a file without bytes", {**LISTED, SECOND: b""}, refused=(SECOND, "empty or cut off")),
    Case("a file that is cut off", {**LISTED, SECOND: packed("b=5")[:-3]}, refused=(SECOND, "cut off")),
    Case("only a file without bytes", {MODEL: b"", **CONFIG}, refused=(MODEL, "0 bytes are too few", "is empty or cut off")),
    Case("an optimizer without bytes", {MODEL: "a=1", "optimizer.safetensors": b""},
         refused=("optimizer.safetensors", "0 bytes are too few")),
    Case("an index without bytes", {**TWO, INDEX: b""}, refused=(INDEX, "damaged or cut off")),
    Case("no tensors", {MODEL: ""}, "", "1 file is without a single tensor: " + MODEL,
         verify=(1, "has no tensors"), convert=(2, "has no tensors, so there is nothing to convert")),
    Case("a file without tensors in a set", {FIRST: "a=1", SECOND: ""}, "a=1",
         ("no index", "1 file is without a single tensor: " + SECOND)),
    Case("weights that ZeRO-3 left empty", {MODEL: "x.weight:F32[0] y=1"}, "x.weight:F32[0] y=1", "as ZeRO-3 leaves",
         verify=(1, "stage3_gather_16bit_weights_on_model_save"),
         convert=(1, "is not converted: 1 of 2 tensors", "--section and --name convert the others")),
    Case("a git-lfs pointer", {MODEL: b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1234\n"},
         refused=(MODEL, "git lfs pull")),
    Case("an index with a name twice",
         {**TWO, INDEX: f'{{"weight_map": {{"a": "{SECOND}", "b": "{SECOND}", "a": "{FIRST}"}}}}'}, "a=1 b=5"),
    Case("a name in two files", {**LISTED, SECOND: "a=7 b=5"}, refused=("tensor 'a'", FIRST, SECOND)),
    Case("an unlisted tensor", {**LISTED, SECOND: "b=5 c=7"}, refused=(SECOND, "tensor 'c'", "does not list")),
    Case("an index that is damaged", {**TWO, INDEX: json.dumps(LISTED[INDEX])[:-5]},
         refused=(INDEX, "damaged or cut off")),
    Case("NaN and Infinity in config.json",
         {MODEL: "a=1", "config.json": '{"model_type": "llama", "x": NaN, "y": [Infinity, -Infinity]}'}, "a=1"),

    Case("a config.json that is cut off", {MODEL: "a=1", "config.json": '{"model_type": "lla'}, "a=1",
         inspect="what config.json says, though the file itself is carried as it is: ",
         convert=(0, "what config.json says, though the file itself is carried as it is: ", "is damaged or cut off")),
    Case("files that say nothing of a model",
         {MODEL: "a=1", ".gitattributes": "x", ".gitignore": "x", ".cache/huggingface/x.lock": "x", "README.md": "x",
          ".DS_Store": "x"}, "a=1"),

    # ---- pickles and folders of trainers
    Case("pytorch_model.bin", {"pytorch_model.bin": PICKLE, **CONFIG}, refused=NO_PICKLES),
    Case("an index of .bin files",
         {"pytorch_model-00001-of-00001.bin": PICKLE,
          "pytorch_model.bin.index.json": index({"a": "pytorch_model-00001-of-00001.bin"})}, refused=NO_PICKLES),
    Case("a .pt file", {"model.pt": PICKLE}, refused=NO_PICKLES),
    Case("a trainer's checkpoint",
         {MODEL: "a=1", **CONFIG, "optimizer.pt": PICKLE, "training_args.bin": PICKLE, "trainer_state.json": {"global_step": 7}},
         "a=1", inspect="step 7", convert=(0, "left behind", "optimizer.pt", "training_args.bin")),
    Case("torch DCP", {".metadata": PICKLE, "__0_0.distcp": bytes(64), "__1_0.distcp": bytes(64)},
         refused=(NOTHING, ".distcp files of torch DCP are not read")),
    Case("FSDP1 of accelerate", {"pytorch_model_fsdp_0/.metadata": PICKLE, "pytorch_model_fsdp_0/__0_0.distcp": PICKLE,
                                 "optimizer_0/__0_0.distcp": PICKLE}, refused=NOTHING),
    Case("DeepSpeed", {"latest": "global_step10", "global_step10/mp_rank_00_model_states.pt": PICKLE,
                       "global_step10/zero_pp_rank_0_mp_rank_00_optim_states.pt": PICKLE}, refused=NOTHING),
    Case("DeepSpeed next to a model",
         {MODEL: "a=1", "latest": "global_step10", "global_step10/mp_rank_00_model_states.pt": PICKLE}, "a=1",
         "sub-directories are neither read nor carried along: global_step10"),
    Case("Megatron", {"latest_checkpointed_iteration.txt": "100", "iter_0000100/mp_rank_00/model_optim_rng.pt": PICKLE},
         refused=NOTHING),

    # ---- torch DCP in safetensors files
    Case("shards", SHARDS, 27, inspect=("torch DCP safetensors", "layout ranks=4")),
    Case("shards, one missing", {name: data for name, data in SHARDS.items() if "shard-00002" not in name},
         refused=("lm_head.weight", "is in no file", "a shard file is missing")),
    Case("shards next to their consolidated files", sample("dcp", "hf_consolidated", "ckpt"), 27,
         "neither read nor carried along: sharded", inspect="Hugging Face"),
    Case("shards next to a model", {**SHARDS, MODEL: "a=1"}, refused=(MODEL, "two checkpoints in one directory")),

    # ---- slices of ranks
    Case("vLLM's slices", {"model-rank-0-part-0.safetensors": "a=1", "model-rank-1-part-0.safetensors": "a=5"},
         refused=("model-rank-0-part-0.safetensors", OF_A_RANK)),
    Case("one of vLLM's slices", {"model-rank-0-part-0.safetensors": "a=1"}, refused=OF_A_RANK),
    Case("slices by TP", {"model-TP-000.safetensors": "a=1", "model-TP-001.safetensors": "a=5"}, refused=OF_A_RANK),
    Case("slices by rank", {"rank0.safetensors": "a=1", "rank1.safetensors": "a=5"}, refused=OF_A_RANK),
    Case("slices of DeepSeek's converter", {"model0-mp2.safetensors": "a=1", "model1-mp2.safetensors": "a=5"},
         refused=("model0-mp2.safetensors", OF_A_RANK)),
    Case("one slice of MindSpore", {"tiny_rank_0-0_1.safetensors": "a=1"}, refused=OF_A_RANK),
    Case("MindSpore Transformers", {"model-0000000-0000002.safetensors": "a=1", "model-0000001-0000002.safetensors": "a=5"},
         refused=("one rank's file of a MindSpore Transformers checkpoint", "convert it to Hugging Face files there")),
    Case("folders of MindSpore's ranks", {"rank_0/x.safetensors": "a=1", "rank_1/x.safetensors": "a=5"}, refused=NOTHING),
    Case("a .ckpt file of MindSpore", {"model.ckpt": b"\x0a\x05hello"},
         refused=(NOTHING, ".ckpt files (of Lightning, TensorFlow and others) are not read: save them as safetensors")),

    # ---- others
    Case("GGUF", {"model-Q4_K_M.gguf": b"GGUF\3\0\0\0", **CONFIG}, refused=(NOTHING, "GGUF files are not read: take")),
    Case("Keras", {"tf_model.h5": b"\x89HDF\r\n\x1a\n", **CONFIG}, refused=(NOTHING, "HDF5 files are read if Cairn wrote")),
    Case("Flax", {"flax_model.msgpack": b"\x81", **CONFIG}, refused=(NOTHING, "files of Flax (.msgpack) are not read")),
    Case("Orbax", {"_CHECKPOINT_METADATA": "{}", "d/0123": b"x", "manifest.ocdbt": b"x"}, refused=NOTHING),
    Case("an empty directory", {}, refused=NOTHING),
    Case("only a configuration", CONFIG, refused=NOTHING),
]

# What PaddleNLP and PaddleFormers wrote. Other values: tests/interop.
NAMES = (0, "Hugging Face's names and order of dimensions (from PaddlePaddle; --keep-names keeps both)")
NO_MODEL = (2, "does not become a model of transformers", "--keep-names converts it as it is")
CASES += [
    Case("PaddleNLP, tied", sample("paddle", "n-1-O0"), 72, "(tie_word_embeddings)", truth="nlp-B", convert=NAMES),
    Case("PaddleNLP, no index of the optimizer", sample("paddle", "n-1-O0", without=("optimizer.safetensors.index",)), 72,
         "(tie_word_embeddings)", truth="nlp-B", convert=NAMES),
    Case("PaddleNLP O1, no index of the optimizer",
         sample("paddle", "n-dp2-O1", without=("optimizer.safetensors.index",)),
         refused=("no index names their codec (ckpt_quant_stage)", "rank 0", "--part")),
    Case("PaddleNLP, pickles", sample("paddle", "n-legacy-one"), 72, "stored as U16", truth="nlp-S", convert=NAMES),
    Case("PaddleNLP, pickles of 2 ranks", sample("paddle", "n-legacy-tp2"), 72, "in files of several ranks",
         truth="nlp-S", inspect="layout tp=2", convert=NAMES),
    Case("PaddleNLP, fused weights", sample("paddle", "n-legacy-fused-tp2"), 54, "stored as U16",
         convert=(*NO_MODEL, "is several weights in one")),
    Case("PaddleNLP, an adapter", sample("paddle", "n-legacy-lora-tp2"), 36, "stored as U16",
         convert=(*NO_MODEL, "of an adapter of PaddlePaddle, which PEFT does not load")),
    Case("format np without a configuration", {MODEL: with_format("np", "a=1")}, "a=1", inspect="PaddlePaddle",
         convert=(*NO_MODEL, "config.json says no model_type")),
    Case("PaddleFormers, pickled state", sample("paddle", "f-legacy-dp2"), 12, truth="f-S",
         inspect="PaddleFormers", convert=(0, "not taken over: the optimizer state (optimizer.pdopt)")),
    Case("PaddleNLP, one rank's slices of two", sample("paddle", "n-legacy-tp2", without=("model_state.tp01", "optimizer.tp01")),
         refused=("model_state.tp01.pdparams", "the file is missing", "model_state.tp00.pdparams is here")),
    Case("PaddleNLP, one rank's optimizer of two",
         sample("paddle", "n-tp2-O1-nomerge", without=("optimizer.tp01", "master_weights.tp01")),
         refused=("master_weights.tp01.safetensors", "the file is missing", "ignore_merge_optimizer")),
]

# Names that transformers does not know, slices that only their tensors show, and names that are not read.
OTHER_NAMES = (2, "does not become a model of transformers", "is a name of", "--keep-names converts it as it is")
ALIKE = "hold tensors of the same names"
IN_WORDS = ("by its name this is one of several files", "call them 'model-00001-of-00002.safetensors'")
CASES += [
    Case("Meta's names", {"consolidated.00.safetensors": "layers.0.attention.wq.weight=1 tok_embeddings.weight=5"},
         "layers.0.attention.wq.weight=1 tok_embeddings.weight=5", "taken for the model", convert=OTHER_NAMES),
    Case("Megatron's names", {MODEL: "decoder.layers.0.self_attention.linear_qkv.weight=1"},
         "decoder.layers.0.self_attention.linear_qkv.weight=1", convert=OTHER_NAMES),
    Case("names of torch.compile", {MODEL: "_orig_mod.model.norm.weight=1"}, "_orig_mod.model.norm.weight=1",
         convert=OTHER_NAMES),
    Case("names of DistributedDataParallel", {MODEL: "module.a=1 module.b=5"}, "module.a=1 module.b=5",
         convert=(2, "all names begin with 'module.'", "--keep-names")),
    Case("a module of that name", {MODEL: "module.a=1 b=5"}, "module.a=1 b=5"),
    Case("an adapter that is called as a model", {MODEL: "a.lora_A.weight=1 a.lora_B.weight=5", **PEFT},
         "a.lora_A.weight=1 a.lora_B.weight=5", convert=(2, "is a name of an adapter", "adapter_model.safetensors")),
    Case("slices of Meta's files", {"consolidated.00.safetensors": "w=1", "consolidated.01.safetensors": "w=5"},
         "consolidated.00/w=1 consolidated.01/w=5", ALIKE),
    Case("two steps", {"net-1_100.safetensors": "w=1", "net-2_100.safetensors": "w=5"},
         "net-1_100/w=1 net-2_100/w=5", ALIKE),
    Case("numbered files with other tensors", {"part_1.safetensors": "a=1", "part_2.safetensors": "b=5"},
         "part_1/a=1 part_2/b=5"),
    Case("slices with a word like an adapter's", {"model-rank-0.safetensors": "explorative.weight=1"}, refused=OF_A_RANK),
    Case("slices of experts", {"model-ep-0.safetensors": "a=1"}, refused=OF_A_RANK),
    Case("PaddleNLP, slices of tensor-parallel ranks",
         {**CONFIG, **{f"model.tp0{i}.safetensors": with_format("np", "a=1") for i in (0, 1)}}, refused=OF_A_RANK),
    Case("half of a set in words", {"model_00001_of_00002.safetensors": "a=1"}, refused=IN_WORDS),
    Case("a set in words", {"model.part1of2.safetensors": "a=1", "model.part2of2.safetensors": "b=5"}, refused=IN_WORDS),
    Case("a name behind the numbers", {"model-00001-of-00002-x.safetensors": "a=1"}, refused=IN_WORDS),
    Case("files that disagree about metadata",
         {FIRST: packed("a=1", {"title": "x"}), SECOND: packed("b=5", {"title": "y"}), INDEX: LISTED[INDEX]}, "a=1 b=5",
         convert=(0, "title")),
    Case("another name alone", {"ema.safetensors": "a=1"}, "a=1", "'ema' are taken for the model"),
    Case("two indexes of the same files", {**LISTED, "other.safetensors.index.json": LISTED[INDEX]},
         refused=("lists", "as", "does; keep one of the two indexes")),
]


# Other things that a user may name: (exit code, words) for each command.
NONE_HERE = (0, "0 checkpoints under")
NO_DIRECTORY = (1, "is not a directory", "give the root of a run's checkpoints")
NO_COMPLETE = (1, "no complete checkpoint under", "checkpoint-11: no cairn.json", "name a checkpoint directory")
ZIP = (1, "not a safetensors file but a zip archive, perhaps a PyTorch", "convert it to safetensors first")
A_PICKLE = (1, "not a safetensors file but a pickle, perhaps a PyTorch", "load it with torch")
GGUF = (1, "not a safetensors file but a GGUF file", "take the safetensors files")
CKPT = (1, "is not a safetensors file", ".ckpt files (of Lightning, TensorFlow and others) are not read")
NOT_HERE = (1, "does not exist")
TOO_FEW = (1, "6 bytes are too few for a safetensors file")
DAMAGED = (1, "model.safetensors", "block 0", "has checksum", "the file was damaged")
TRUNCATED = (1, "HDF5", "truncated file")
GOOD = (0, "2 tensors")
CONVERTED = (0, "converted 2 tensors")
BYTES = {"text.txt": b"hello\n", "pytorch_model.bin": b"PK\3\4" + bytes(100), "consolidated.pth": PICKLE,
         "frame.bin": b"\x80\x04\x95\x20" + bytes(100), "model.gguf": b"GGUF\3" + bytes(100),
         "lightning.ckpt": b"PK\3\4\0\0\x08\x08" + bytes(100), "mindspore.ckpt": b"\x0a\x05hello" + bytes(100)}
PLACES = {
    #                    inspect      ls            verify                        convert      load
    "root":              (NO_COMPLETE, (0, "3 checkpoints under", "0 complete", "of Hugging Face, no checksums",
                                        "incomplete", SECOND + ": the file is missing"), NO_COMPLETE, NO_COMPLETE,
                          (1, NOTHING)),
    "own":               (GOOD, NONE_HERE, (0, "good: 2 tensors", "checked"), CONVERTED, (0,)),
    "damaged":           (DAMAGED, NONE_HERE, DAMAGED, DAMAGED, DAMAGED),
    "one.safetensors":   (GOOD, NO_DIRECTORY, (0, "structure good: 2 tensors"), CONVERTED, (0,)),
    "state.h5":          (GOOD, NO_DIRECTORY, (0, "structure good: 2 tensors"), CONVERTED, (0,)),
    "cut.h5":            (TRUNCATED, NO_DIRECTORY, TRUNCATED, TRUNCATED, TRUNCATED),
    "pytorch_model.bin": (ZIP, NO_DIRECTORY, ZIP, ZIP, ZIP),
    "consolidated.pth":  (A_PICKLE, NO_DIRECTORY, A_PICKLE, A_PICKLE, A_PICKLE),
    "frame.bin":         (A_PICKLE, NO_DIRECTORY, A_PICKLE, A_PICKLE, A_PICKLE),
    "model.gguf":        (GGUF, NO_DIRECTORY, GGUF, GGUF, GGUF),
    "lightning.ckpt":    (ZIP, NO_DIRECTORY, ZIP, ZIP, ZIP),
    "mindspore.ckpt":    (CKPT, NO_DIRECTORY, CKPT, CKPT, CKPT),
    "text.txt":          (TOO_FEW, NO_DIRECTORY, TOO_FEW, TOO_FEW, TOO_FEW),
    "nowhere":           (NOT_HERE, NOT_HERE, NOT_HERE, NOT_HERE, NOT_HERE),
}


def converted(folder):
    """The same of what `convert` wrote."""
    manifest = json.loads((folder / "cairn.json").read_text())
    section_of = {file["name"]: file["section"] for file in manifest["data_files"]}
    return {(section_of[path.name], name): tensor for path in folder.glob("*.safetensors")
            for name, tensor in read_safetensors(path)[0].items()}


def load(directory, tensors, out):
    """Loads {(section, name): tensor} with one process. Returns its result, and the data in the order of the keys."""
    out.mkdir()
    lines = ["\t".join(map(str, (*key, dtype, *shape))) + "\n" for key, (dtype, shape, _) in tensors.items()
             if 0 not in shape]  # load_boxes cuts tensors with elements
    (out / "list").write_text("".join(lines))
    program = CAIRN.with_name("load_boxes")
    done = subprocess.run([program, directory, out / "list", out], capture_output=True, text=True, check=False,
                          timeout=300, env=environment({}), stdin=subprocess.DEVNULL)
    data = (out / "rows.0.bin").read_bytes() if done.returncode == 0 else b""
    return Result(done.returncode, done.stdout, done.stderr.replace("load_boxes: ", "cairn: error: ")), data


class Directories(CairnTest):
    ASKED = {("model", "a"): ("F32", [4], b"")}  # of directories that are refused

    def run_case(self, number, case):
        """Results by command."""
        directory = self.folder / "root" / f"checkpoint-{number}"
        case.write(directory)
        results = {"inspect": cairn("inspect", directory), "verify": cairn("verify", directory),
                   "convert": cairn("convert", directory, self.folder / f"out-{number}")}
        if case.tensors or case.refused:
            results["load"], self.loaded[number] = load(directory, case.tensors or self.ASKED,
                                                        self.folder / f"load-{number}")
        return results

    def expect_words(self, words, text):
        for word in as_words(words):
            self.assertIn(word, text)

    def expect_refused(self, case, results, number):
        for command, result in results.items():
            with self.subTest(case=case.name, command=command):
                self.assertEqual(result.code, 1, result.err + result.out)
                self.expect_words(case.refused, result.out + result.err)
                if command != "verify":
                    self.assertEqual(len(result.errors), 1, result.err)
                    self.assertEqual(result.err.count("\n"), 1, result.err)
        self.assertFalse((self.folder / f"out-{number}").exists())

    def expect_good(self, case, results, number):
        for command, result in results.items():
            with self.subTest(case=case.name, command=command):
                code, words = case.expected(command)
                self.assertEqual(result.code, code, result.err + result.out)
                said = result.out + result.err
                self.expect_words(case.says if command != "load" and result.code == 0 else (), said)
                self.expect_words(words, said)
                if not case.says and command != "convert":
                    self.assertNotIn("note: ", said)
                    self.assertNotIn("warning: ", said)
        count = f"{case.count} tensor" + ("" if case.count == 1 else "s")
        self.assertIn(f"\n{count}, ", results["inspect"].out)
        if results["verify"].code == 0:
            self.assertIn(f"structure good: {count} in ", results["verify"].out)
        code, out = results["convert"].code, self.folder / f"out-{number}"
        self.assertEqual(out.exists(), code == 0)
        if code == 0:
            self.assertIn(f"converted {count}, ", results["convert"].out)
        if code == 0 and not case.has_truth and "config.json" in case.files:
            self.assertEqual((out / "config.json").read_bytes(), content_of("config.json", case.files["config.json"]))
        if case.tensors:
            self.assertEqual(self.loaded[number], b"".join(data for _, _, data in case.tensors.values()))
        if case.tensors and code == 0:
            found = converted(out)
            self.assertEqual({key: found.get(key) for key in case.becomes}, case.becomes)
            self.assertEqual(len(found), case.count)

    def make_places(self):
        files = {MODEL: with_format("pt", "a=1 b=5"), **CONFIG}
        Case("", files, 2).write(self.folder / "plain")
        (self.folder / "root").mkdir()
        for step, case in ((9, files), (10, LISTED), (11, {**CONFIG, FIRST: "a=1", INDEX: LISTED[INDEX]})):
            Case("", case, 2).write(self.folder / "root" / f"checkpoint-{step}")
        self.has_hdf5 = "HDF5: none" not in cairn("--version").out
        for name in ("own", "damaged", *(["state.h5"] if self.has_hdf5 else [])):
            self.good("convert", self.folder / "plain", self.folder / name)
        with (self.folder / "damaged" / MODEL).open("r+b") as stream:
            stream.seek(-3, os.SEEK_END)
            stream.write(b"?")
        if self.has_hdf5:
            (self.folder / "cut.h5").write_bytes((self.folder / "state.h5").read_bytes()[:-100])
        (self.folder / "one.safetensors").write_bytes(files[MODEL])
        for name, content in BYTES.items():
            (self.folder / name).write_bytes(content)

    def test_places(self):
        self.make_places()
        truth = of_sections(tensors_of("a=1 b=5"))
        for name, outcomes in PLACES.items():
            if name.endswith(".h5") and not self.has_hdf5:
                continue
            place, out = self.folder / name, self.folder / f"out-of-{pathlib.Path(name).stem}"
            loaded, data = load(place, truth, self.folder / f"load-{name}")
            results = {"inspect": cairn("inspect", place), "ls": cairn("ls", place), "verify": cairn("verify", place),
                       "convert": cairn("convert", place, out), "load": loaded}
            for (command, result), (code, *words) in zip(results.items(), outcomes):
                with self.subTest(place=name, command=command):
                    self.assertEqual(result.code, code, result.err + result.out)
                    self.expect_words(words, result.out + result.err)
            self.assertEqual(out.exists(), results["convert"].code == 0)
            if out.exists():
                self.assertEqual(converted(out), truth)
                self.assertEqual(data, b"".join(tensor[2] for tensor in truth.values()))

    def test_what_counts_as_left_out(self):
        files = {MODEL: "a=1", "README.md": "x", ".gitattributes": "x", ".cache/huggingface/x.lock": "x"}
        for name, more, code in (("known", {}, 0), ("file", {"notes.bin": "x"}, 1), ("folder", {"onnx/x": "x"}, 1),
                                 ("empty", {"vae.safetensors": ""}, 1), ("damaged", {"config.json": "{"}, 1)):
            Case("", {**files, **more}, 1).write(self.folder / name)
            result = cairn("convert", "--strict", self.folder / name, self.folder / f"{name}-out")
            self.assertEqual(result.code, code, name + result.out + result.err)
            self.assertEqual("--strict: 1 note is above" in result.out, code == 1, name + result.out)

    def test_a_root_with_steps_of_another_system(self):
        root = self.folder / "root"
        root.mkdir()
        for step in (5, 9):
            Case("", {MODEL: "a=1", **CONFIG}, 1).write(root / f"checkpoint-{step}")
        foreign = "checkpoint-9: it is a checkpoint of Hugging Face, without cairn.json"
        for command in ("inspect", "verify"):
            self.bad(1, command, root, says=["no complete checkpoint under", foreign, "name a checkpoint directory"])
        self.good("convert", root / "checkpoint-5", root / "checkpoint-7")
        newer = "checkpoint-9 is of a higher step: it is a checkpoint of Hugging Face, without cairn.json"
        for command in (("inspect", root), ("verify", root), ("convert", root, self.folder / "out")):
            result = self.good(*command)
            self.assertIn(newer, result.out)
            self.assertIn("this is checkpoint-7", result.out)
        self.assertTrue(self.good("verify", root, "--json").json()["good"])

    def test_table(self):
        self.loaded = {}
        (self.folder / "root").mkdir()
        with concurrent.futures.ThreadPoolExecutor(2) as workers:
            all_results = list(workers.map(self.run_case, range(1, len(CASES) + 1), CASES))
        listed = {entry["step"]: entry for entry in self.good("ls", self.folder / "root", "--json").json()["checkpoints"]}
        for number, (case, results) in enumerate(zip(CASES, all_results), 1):
            with self.subTest(case=case.name):
                self.assertEqual(listed[number]["state"], "incomplete" if case.refused else "foreign")
                self.expect_words(case.refused, listed[number]["problem"])
                check = self.expect_refused if case.refused else self.expect_good
                check(case, results, number)


if __name__ == "__main__":
    main()
