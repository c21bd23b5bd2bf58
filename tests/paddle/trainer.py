"""One process of a tiny training run that saves and resumes checkpoints with the package's own Trainer:
unified ones, or with --legacy the older pickles.

  trainer.py --package paddlenlp|paddleformers --output DIR [--resume CHECKPOINT] [options]

Starts at step 0, or resumes, and saves a checkpoint after every third step; stops after --until steps. `losses.json` below
--output has {step: loss}. Environment PADDLE_TRAINER_ID and the like make it one process of several.

Real parts: Trainer.train() with its loading and saving, AdamW, the schedule, the processes. Replaced parts, because
Paddle has no BF16 kernels for processors: the gradients come from an F32 copy of the whole model with the live weights,
on tokens that depend only on the step, the same in every process; AdamW's F32 kernel runs on the master weight, and the
result is rounded."""

import argparse
import json
import os
import pathlib
import sys
import unittest.mock

# They download models, which nothing here does.
for name in ("aistudio_sdk", "aistudio_sdk.hub", "aistudio_sdk.file_download"):
    sys.modules[name] = unittest.mock.MagicMock(__path__=[], __spec__=None)

# pylint: disable=wrong-import-position
import numpy as np
import paddle
import paddle.distributed as dist
from paddle import _C_ops

BATCH, LENGTH = 4, 12
MODEL = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
         "num_key_value_heads": 2, "num_hidden_layers": 1, "max_position_embeddings": 64}
# Weights that tensor parallelism cuts along axis 0, and along axis 1.
ROWS = ("embed_tokens.weight", "o_proj.weight", "down_proj.weight", "down_proj.lora_A")
COLUMNS = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "gate_proj.weight", "up_proj.weight", "lm_head.weight",
           "qkv_proj.weight", "gate_up_fused_proj.weight", "q_proj.lora_B", "v_proj.lora_B")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", choices=("paddlenlp", "paddleformers"), required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--resume", type=pathlib.Path)
    parser.add_argument("--until", type=int, default=6)
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--sharding", type=int, default=1)
    parser.add_argument("--stage", default="O0", help="ckpt_quant_stage")
    parser.add_argument("--config", default="", help="unified_checkpoint_config")
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--paddle-order", action="store_true", help="save_to_hf and convert_from_hf off")
    parser.add_argument("--from-hf", action="store_true", help="convert_from_hf all the same")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--legacy", action="store_true", help="unified_checkpoint off")
    parser.add_argument("--pipeline", type=int, default=1)
    parser.add_argument("--fused", action="store_true", help="fuse_attention_qkv and fuse_attention_ffn")
    parser.add_argument("--f32-norms", action="store_true")
    parser.add_argument("--sizes", default="", help="of the model: key=value,...")
    parser.add_argument("--sharding-config", default="", help="sharding_parallel_config")
    options = parser.parse_args()
    MODEL.update(num_hidden_layers=options.layers)
    MODEL.update((key, int(value)) for key, value in (size.split("=") for size in options.sizes.split(",") if size))
    return options


def run_adamw_in_f32():
    """Paddle's AdamW has no BF16 kernel for processors."""
    kernel = _C_ops.adamw_

    def adamw(param, grad, lr, first, second, second_max, power1, power2, master, *rest):
        if master is None:
            return kernel(param, grad, lr, first, second, second_max, power1, power2, master, *rest)
        found_inf, *middle, multi_precision, use_global, amsgrad = rest
        assert multi_precision, rest
        done = kernel(master, grad.astype("float32"), lr, first, second, second_max, power1, power2, None, found_inf,
                      *middle, False, use_global, amsgrad)
        paddle.assign(master.astype(param.dtype), param)
        return done

    _C_ops.adamw_ = adamw


def divide_exactly():
    """With AVX-512, Paddle's division of tensors on processors is sometimes off by an ulp, and so are the moments
    that it decodes from O1. Its reciprocal is correct; Cairn divides by IEEE 754, as Paddle does elsewhere."""
    divide = paddle.Tensor.__rtruediv__
    paddle.Tensor.__rtruediv__ = lambda self, other: paddle.reciprocal(self) if other == 1 else divide(self, other)


def run_pipelines_on_processors():
    from paddle.distributed.fleet.utils import tensor_fusion_helper
    tensor_fusion_helper.get_current_device_type = lambda: "gpu"
    paddle.distributed.parallel.ParallelEnv._device_id = 0


def axis_of(name, degree):
    """Nothing for weights that every process has."""
    if name.endswith(("embed_tokens.weight", "lm_head.weight")) and MODEL["vocab_size"] % degree:
        return None
    if name.endswith(("k_proj.weight", "v_proj.weight", "v_proj.lora_B")) and MODEL["num_key_value_heads"] % degree:
        return None
    if name.endswith(ROWS):
        return 0
    return 1 if name.endswith(COLUMNS) else None


class Shape:
    """The part of the weights that tensor and pipeline parallelism leave on this process."""

    def __init__(self, degree, stages):
        self.degree, self.stages, self.rank = degree, stages, 0
        if degree > 1:
            self.group = dist.fleet.get_hybrid_communicate_group().get_model_parallel_group()
            self.rank = self.group.rank

    @staticmethod
    def side_by_side(name):
        """The number of weights fused in one, of each of which a process has its columns."""
        return 2 if name.endswith("gate_up_fused_proj.weight") else 1

    def part(self, name, value):
        axis = axis_of(name, self.degree)
        if self.degree == 1 or axis is None:
            return value
        weights = paddle.split(value, self.side_by_side(name), axis)
        return paddle.concat([paddle.split(weight, self.degree, axis)[self.rank] for weight in weights], axis)

    def whole(self, name, value):
        axis = axis_of(name, self.degree)
        if self.degree == 1 or axis is None:
            return value
        parts = []
        dist.all_gather(parts, value, group=self.group)
        parts = [paddle.split(part, self.side_by_side(name), axis) for part in parts]
        return paddle.concat([part[i] for i in range(self.side_by_side(name)) for part in parts], axis)

    def all_wholes(self, params):
        """{name: F32 weight} of all stages."""
        mine = {name: self.whole(name, param.astype("float32")) for name, param in params.items()}
        if self.stages == 1:
            return mine
        of_processes = []
        dist.all_gather_object(of_processes, {name: value.numpy() for name, value in mine.items()})
        return {name: paddle.to_tensor(value) for others in of_processes for name, value in others.items()}


def build_model(package, options, dtype, degree, stages):
    paddle.seed(7)
    sizes = dict(MODEL, tie_word_embeddings=options.tied, use_cache=False)
    if package == "paddlenlp":
        from paddlenlp.peft import LoRAConfig, LoRAModel
        from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM, LlamaForCausalLMPipe
        if stages > 1:
            LlamaForCausalLM = LlamaForCausalLMPipe
        config = LlamaConfig(**sizes, dtype=dtype, tensor_parallel_degree=degree,
                             tensor_parallel_output=True, use_flash_attention=False)
        config.fuse_attention_qkv = config.fuse_attention_ffn = options.fused
        if degree > 1:
            config.tensor_parallel_rank = dist.fleet.get_hybrid_communicate_group().get_model_parallel_rank()
        lora = {"tensor_parallel_degree": degree}
    else:
        from paddleformers.peft import LoRAConfig, LoRAModel
        from paddleformers.transformers import LlamaConfig, LlamaForCausalLM
        config = LlamaConfig(**sizes, dtype=dtype)
        config._attn_implementation = "eager"
        config.fuse_rms_norm = False
        lora = {}
    paddle.set_default_dtype(dtype)
    model = LlamaForCausalLM(config)
    if options.lora:
        modules = [".*q_proj.*", ".*v_proj.*", ".*down_proj.*"]
        model = LoRAModel(model, LoRAConfig(target_modules=modules, r=8, lora_alpha=16, dtype=dtype, **lora))
        model.mark_only_lora_as_trainable()
    paddle.set_default_dtype("float32")
    return model


def params_of(model, options):
    """{name: parameter}; in a pipeline by the names of the whole model."""
    if options.pipeline == 1:
        return dict(model.named_parameters())
    return (model.model if options.lora else model).state_dict()


def tokens_of(step):
    generator = np.random.default_rng(1000 + step)
    return paddle.to_tensor(generator.integers(0, MODEL["vocab_size"], (BATCH, LENGTH)))


class Tokens(paddle.io.Dataset):
    """The content of the data loader's batches has no influence."""

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return {"input_ids": np.zeros(LENGTH, "int64"), "labels": np.zeros(LENGTH, "int64")}


def main():
    options = arguments()
    if options.package == "paddlenlp":
        from paddlenlp.trainer import Trainer, TrainerCallback, TrainingArguments
        how = {"unified_checkpoint": not options.legacy, "tensor_parallel_degree": options.tensor_parallel,
               "pipeline_parallel_degree": options.pipeline, "sharding_parallel_config": options.sharding_config}
        if options.sharding > 1:
            how["sharding_parallel_degree"] = options.sharding
    else:
        from paddleformers.trainer import Trainer, TrainerCallback, TrainingArguments
        form = None if options.legacy else "unified_checkpoint"
        how = {"save_checkpoint_format": form, "load_checkpoint_format": form,
               "amp_master_grad": False, "save_to_hf": not options.paddle_order, "convert_from_hf": options.from_hf or not options.paddle_order}
        if options.sharding > 1:
            how["sharding_parallel_size"] = options.sharding
    run_adamw_in_f32()
    divide_exactly()
    if options.pipeline > 1:
        run_pipelines_on_processors()
    paddle.set_device("cpu")
    args = TrainingArguments(
        output_dir=str(options.output), device="cpu", bf16=True, fp16_opt_level="O2", max_steps=9, save_steps=3,
        per_device_train_batch_size=1, learning_rate=1e-3, weight_decay=0.01, adam_epsilon=1e-8, warmup_steps=2,
        lr_scheduler_type="linear", max_grad_norm=0.0, report_to=[], disable_tqdm=True, logging_steps=1000, seed=5,
        ckpt_quant_stage=options.stage, unified_checkpoint_config=options.config, skip_profile_timer=True,
        sharding="stage1" if options.sharding > 1 else "", **how)
    shape = Shape(options.tensor_parallel, options.pipeline)
    copy = build_model(options.package, options, "float32", 1, 1)
    live = build_model(options.package, options, "bfloat16", options.tensor_parallel, options.pipeline)
    whole = params_of(copy, options)
    for name, param in params_of(live, options).items():
        value = shape.part(name, whole[name])
        if options.resume and not param.stop_gradient:
            value = value + 1  # the checkpoint's value, or visibly wrong
        param.set_value(value.astype(param.dtype))
    losses = {}

    class TinyTrainer(Trainer):
        def training_step(self, model, inputs, **_):
            step = self.state.global_step
            params = params_of(live, options)
            for name, value in shape.all_wholes(params).items():
                whole[name].set_value(value)
            tokens = tokens_of(step)
            logits = copy(input_ids=tokens)
            logits = logits[0] if isinstance(logits, tuple) else getattr(logits, "logits", logits)
            loss = paddle.nn.functional.cross_entropy(logits[:, :-1].reshape([-1, MODEL["vocab_size"]]),
                                                      tokens[:, 1:].reshape([-1]))
            loss.backward()
            for name, param in params.items():
                if not param.stop_gradient:
                    param.grad = shape.part(name, whole[name].grad).astype(param.dtype)
                whole[name].clear_gradient()
            losses[step] = loss.item()
            return loss.detach()

    class StopEarly(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            if options.f32_norms:  # otherwise the trainer casts all weights before
                for layer in live.sublayers():
                    if type(layer).__name__.endswith("RMSNorm"):
                        layer.to(dtype="float32")

        def on_step_end(self, args, state, control, **_):
            control.should_save = state.global_step % 3 == 0
            control.should_training_stop = state.global_step >= options.until

    trainer = TinyTrainer(model=live, args=args, train_dataset=Tokens(), callbacks=[StopEarly()])
    trainer.train(resume_from_checkpoint=str(options.resume) if options.resume else None)
    if dist.get_rank() == 0:
        (options.output / "losses.json").write_text(json.dumps(losses))
    if dist.get_world_size() > 1:
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo sometimes aborts when the process that keeps its store ends before the others


if __name__ == "__main__":
    main()
