#!/usr/bin/env python3
"""Makes the tiny random models of this folder and expected.json, with transformers.

    python make_tiny_models.py [FOLDER]

Each model is saved by save_pretrained, its config.json rewritten where an older or rarer spelling
is the point, and read again by from_pretrained: what is expected comes from the files as they are.
The weights and prompts follow from the seeds alone (torch.manual_seed on the CPU).
"""

import json
import math
import pathlib
import sys

import safetensors.torch
import torch
import transformers
from transformers import (AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config,
                          Qwen3Config, SmolLM3Config)

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

PROMPT_TOKENS = (5, 70, 340)  # the last beyond every original context and window
GREEDY_TOKENS = 24
TOP = 10
LEAST_MARGIN = 0.01  # up to the first below it greedy tokens are compared; 90 % must be


def as_transformers_4(config):
    """The keys as transformers 4 wrote them."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")


def with_type(config):
    """As before rope_type: type."""
    as_transformers_4(config)
    config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")


def original_context_outside(config):
    """The original context beside the scaling, not in it."""
    as_transformers_4(config)
    key = "original_max_position_embeddings"
    config[key] = config["rope_scaling"].pop(key)


def as_llama_1(config):
    """Only what the first converted checkpoints had, and a parallelism that changes no result."""
    as_transformers_4(config)
    for key in ("num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "attention_bias",
                "mlp_bias", "tie_word_embeddings"):
        del config[key]
    config["pretraining_tp"] = 2


def with_frequencies(tensors, config):
    """The buffers that checkpoints had before transformers 4.31, and a later spelling of them."""
    dim = config.head_dim
    inv_freq = 1.0 / 10000.0 ** (torch.arange(0, dim, 2).float() / dim)
    for layer in range(config.num_hidden_layers):
        tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = inv_freq.clone()
    tensors["model.rotary_emb.inv_freq"] = inv_freq


def with_head_only(tensors, config):
    """safetensors.torch.save_model keeps the first name of tensors that share memory."""
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")


def with_both(tensors, config):
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()


def llama(**changes):
    return LlamaConfig(**({"hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2,
                           "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 144,
                           "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
                           "bos_token_id": 1, "eos_token_id": 2} | changes))


def mistral(**changes):
    return MistralConfig(**({"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 2,
                             "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 144,
                             "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
                             "bos_token_id": 1, "eos_token_id": 2} | changes))


def as_qwen_2_5(config):
    """As Qwen2.5 was published, with a window that is not used."""
    with_type(config)
    config.pop("layer_types")
    config |= {"use_sliding_window": False, "sliding_window": 40, "max_window_layers": 1}


def as_qwen3_defaults(config):
    """Heads of 128, whatever the hidden size."""
    as_transformers_4(config)
    del config["head_dim"]


def without_layer_lists(config):
    """What follows from the defaults."""
    for key in ("layer_types", "no_rope_layers", "no_rope_layer_interval"):
        del config[key]


def smollm3(**changes):
    return SmolLM3Config(**({"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 4,
                             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 144,
                             "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2,
                             "pad_token_id": 0} | changes))


def qwen2(**changes):
    return Qwen2Config(**({"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 2,
                           "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 144,
                           "max_position_embeddings": 512, "bos_token_id": 1,
                           "eos_token_id": 2} | changes))


def qwen3(**changes):
    return Qwen3Config(**({"hidden_size": 36, "intermediate_size": 56, "num_hidden_layers": 2,
                           "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24,
                           "vocab_size": 144, "max_position_embeddings": 512, "bos_token_id": 1,
                           "eos_token_id": 2} | changes))


def rope(kind, theta=10000.0, **fields):
    return {"rope_type": kind, "rope_theta": theta, **fields}


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}

# name: configuration, element type, then how the files are changed and which change of the
# configuration, or which tensors without effect, must be seen in the results, or the model would
# show nothing.
MODELS = {
    "llama3-tied": dict(
        config=llama(tie_word_embeddings=True, head_dim=16,
                     rope_parameters=rope("llama3", 50000.0, **LLAMA3)),
        dtype=torch.bfloat16, tensors=with_both,
        matters={"rope_parameters": rope("default", 50000.0)}),
    "llama3-transformers4": dict(
        config=llama(head_dim=24, num_key_value_heads=1, vocab_size=150,
                     rope_parameters=rope("llama3", 500000.0, **LLAMA3)),
        dtype=torch.float16, json=as_transformers_4,
        matters={"rope_parameters": rope("llama3", 10000.0, **LLAMA3)}),
    "linear-odd-sizes": dict(
        config=llama(hidden_size=39, intermediate_size=61, num_attention_heads=3,
                     num_key_value_heads=3, head_dim=18, vocab_size=131,
                     rope_parameters=rope("linear", factor=4.0)),
        dtype=torch.float16, json=with_type, shards="50KB",
        matters={"rope_parameters": rope("default")}),
    "yarn-defaults": dict(
        config=llama(head_dim=32, num_key_value_heads=1,
                     rope_parameters=rope("yarn", factor=8.0,
                                          original_max_position_embeddings=64)),
        dtype=torch.bfloat16, json=original_context_outside,
        matters={"original_max_position_embeddings": 512}),
    "yarn-all-fields": dict(
        config=llama(head_dim=64, num_attention_heads=2, num_key_value_heads=1,
                     tie_word_embeddings=True,
                     rope_parameters=rope("yarn", 20000.0, factor=6.0, attention_factor=1.4,
                                          beta_fast=16.0, beta_slow=2.0, mscale=0.7,
                                          mscale_all_dim=0.3,
                                          original_max_position_embeddings=80)),
        dtype=torch.bfloat16, tensors=with_head_only,
        matters={"rope_parameters": rope("yarn", 20000.0, factor=6.0, attention_factor=1.4,
                                         original_max_position_embeddings=80)}),
    "yarn-mscale-untruncated": dict(
        config=mistral(head_dim=40, num_attention_heads=3, num_key_value_heads=1,
                       sliding_window=None,
                       rope_parameters=rope("yarn", 5000.0, factor=16.0, mscale=1.5,
                                            mscale_all_dim=0.4, truncate=False,
                                            original_max_position_embeddings=32)),
        dtype=torch.float16, shards="40KB",
        matters={"rope_parameters": rope("yarn", 5000.0, factor=16.0, mscale=1.5,
                                         mscale_all_dim=0.4,
                                         original_max_position_embeddings=32)}),
    "mistral-window": dict(
        config=mistral(sliding_window=48, head_dim=20, rope_parameters=rope("default", 1e6)),
        dtype=torch.bfloat16, shards="50KB", matters={"sliding_window": 49}),
    "mistral-window-linear": dict(
        config=mistral(sliding_window=64, head_dim=96, num_attention_heads=2,
                       num_key_value_heads=2, hidden_size=33, intermediate_size=40,
                       tie_word_embeddings=True, rope_parameters=rope("linear", factor=2.0)),
        dtype=torch.bfloat16, json=as_transformers_4, matters={"sliding_window": None}),
    "llama1": dict(
        config=llama(num_key_value_heads=4, rms_norm_eps=1e-6, rope_parameters=rope("default")),
        dtype=torch.float32, json=as_llama_1, tensors=with_frequencies,
        matters={"rope_parameters": rope("default", 500.0)}),
    "large-eps-f32-norms": dict(
        config=llama(hidden_size=40, intermediate_size=53, num_attention_heads=5,
                     num_key_value_heads=5, head_dim=8, rms_norm_eps=0.05,
                     rope_parameters=rope("default", 100.0)),
        dtype=torch.bfloat16, f32_norms=True, matters={"rms_norm_eps": 1e-6}),
    "qwen2": dict(
        config=qwen2(rope_parameters=rope("default", 20000.0)),
        dtype=torch.bfloat16, without=("q_proj.bias",)),
    "qwen2-yarn": dict(
        config=qwen2(hidden_size=64, num_attention_heads=2, num_key_value_heads=1,
                     intermediate_size=40, vocab_size=131,
                     rope_parameters=rope("yarn", 1e6, factor=4.0,
                                          original_max_position_embeddings=64)),
        dtype=torch.float16, json=as_qwen_2_5, shards="60KB", without=("v_proj.bias",)),
    "qwen3": dict(
        config=qwen3(rope_parameters=rope("default", 1e6)),
        dtype=torch.bfloat16, without=("q_norm", "k_norm")),
    "qwen3-defaults": dict(
        config=qwen3(hidden_size=33, num_attention_heads=2, num_key_value_heads=1, head_dim=128,
                     rope_parameters=rope("default", 10000.0)),
        dtype=torch.bfloat16, json=as_qwen3_defaults, f32_norms=True, without=("k_norm",)),
    "smollm3": dict(
        config=smollm3(tie_word_embeddings=False, rope_parameters=rope("default", 50000.0)),
        dtype=torch.bfloat16, json=without_layer_lists, matters={"no_rope_layers": 4 * [1]}),
}


def fill(model, seed):
    """Attention that is not uniform, logits that are not flat."""
    torch.manual_seed(seed)
    tied = model.config.tie_word_embeddings
    with torch.no_grad():
        for name, weight in model.named_parameters():
            fan_in = weight.shape[-1]
            if "norm" in name:
                weight.copy_(1.0 + 0.3 * torch.randn(weight.shape))
                continue
            if name.endswith("bias"):
                weight.copy_(torch.randn(weight.shape))
                continue
            gain = 1.0
            if "q_proj" in name or "k_proj" in name:
                gain = 1.5
            elif "v_proj" in name or "o_proj" in name:
                gain = 1.3
            elif "lm_head" in name:
                gain = 3.0
            elif "embed_tokens" in name:
                gain = 0.5 * (math.sqrt(fan_in) if not tied else 4.0)
            weight.copy_(gain / math.sqrt(fan_in) * torch.randn(weight.shape))


def save(spec, seed, folder):
    config = spec["config"]
    model = AutoModelForCausalLM.from_config(config)
    fill(model, seed)
    model = model.to(spec["dtype"])
    if spec.get("f32_norms"):
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.data = weight.data.float()
    model.save_pretrained(folder, max_shard_size=spec.get("shards", "1GB"))
    (folder / "generation_config.json").unlink(missing_ok=True)
    if "json" in spec:
        path = folder / "config.json"
        text = json.loads(path.read_text())
        spec["json"](text)
        path.write_text(json.dumps(text, indent=2) + "\n")
    if "tensors" in spec:
        path = folder / "model.safetensors"
        tensors = safetensors.torch.load_file(path)
        spec["tensors"](tensors, config)
        safetensors.torch.save_file(tensors, path, {"format": "pt"})


def load(folder, **changes):
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", **changes)
    return model.double().eval()


@torch.no_grad()
def logprobs(model, ids):
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    assert logits.dtype == torch.float64
    return torch.log_softmax(logits, dim=-1)


def positions(prompt_tokens):
    candidates = {0, 1, 4, 31, 47, 48, 49, 63, 64, 65, 96, 130, 200, 255, 300, prompt_tokens - 1}
    return sorted(p for p in candidates if p < prompt_tokens)


def greedy(model, prompt):
    ids, margins, chosen = list(prompt), [], []
    for _ in range(GREEDY_TOKENS):
        best = torch.topk(logprobs(model, ids)[-1], 2)
        ids.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 6))
        chosen.append(round(float(best.values[0]), 6))
    return {"ids": ids[len(prompt):], "margins": margins, "logprobs": chosen}


def prompts(vocab_size, seed):
    generator = torch.Generator().manual_seed(1000 + seed)
    return [torch.randint(3, vocab_size, (n,), generator=generator).tolist()
            for n in PROMPT_TOKENS]


class AllDouble:
    """The parts that transformers computes in f32 whatever the model's type, in f64."""

    def __enter__(self):
        from transformers.models.llama import modeling_llama as llama_code
        from transformers.models.mistral import modeling_mistral as mistral_code
        from transformers.models.qwen2 import modeling_qwen2 as qwen2_code
        from transformers.models.qwen3 import modeling_qwen3 as qwen3_code
        from transformers.models.smollm3 import modeling_smollm3 as smollm3_code
        self.saved = []
        for code, name in ((llama_code, "Llama"), (mistral_code, "Mistral"),
                           (qwen2_code, "Qwen2"), (qwen3_code, "Qwen3"),
                           (smollm3_code, "SmolLM3")):
            norm = getattr(code, name + "RMSNorm")
            self.saved.append((norm, "forward", norm.forward))
            norm.forward = lambda self, x: self.weight * (
                x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))
            rotary = getattr(code, name + "RotaryEmbedding")
            self.saved.append((rotary, "forward", rotary.forward))

            def angles(self, x, position_ids):
                freqs = position_ids[..., None].double() * self.inv_freq.double()
                emb = torch.cat((freqs, freqs), dim=-1)
                return emb.cos() * self.attention_scaling, emb.sin() * self.attention_scaling

            rotary.forward = angles
        self.saved.append((torch.nn.functional, "softmax", torch.nn.functional.softmax))
        softmax = torch.nn.functional.softmax
        torch.nn.functional.softmax = lambda x, dim, dtype=None: softmax(x, dim=dim)
        return self

    def __exit__(self, *unused):
        for owner, name, value in self.saved:
            setattr(owner, name, value)


def expected(name, spec, seed, folder):
    model = load(folder)
    cases = []
    for prompt in prompts(spec["config"].vocab_size, seed):
        rows = logprobs(model, prompt)
        top = []
        for p in positions(len(prompt)):
            best = torch.topk(rows[p], TOP)
            top.append({"position": p, "ids": best.indices.tolist(),
                        "logprobs": [round(float(v), 6) for v in best.values]})
        cases.append({"prompt": prompt, "top": top, "greedy": greedy(model, prompt)})
    with AllDouble():
        f32_share = float((logprobs(model, prompt) - rows).abs().max())
    changed = load(folder)
    for key, value in spec.get("matters", {}).items():
        setattr(changed.config, key, value)
    changed = AutoModelForCausalLM.from_config(changed.config, attn_implementation="eager").double()
    changed.load_state_dict(model.state_dict(), strict=True)
    for key, tensor in changed.named_parameters():
        if any(part in key for part in spec.get("without", ())):
            tensor.data.fill_(0.0 if key.endswith("bias") else 1.0)
    change = float((logprobs(changed.eval(), prompt)[-40:] - rows[-40:]).abs().max())
    distinct = sum(len(set(c["greedy"]["ids"])) for c in cases) / (len(cases) * GREEDY_TOKENS)
    compared = sum(next((i for i, m in enumerate(c["greedy"]["margins"]) if m < LEAST_MARGIN),
                        GREEDY_TOKENS) for c in cases) / (len(cases) * GREEDY_TOKENS)
    print(f"{name:25} f32 parts {f32_share:.1e}  largest change of a log-probability {change:.2f}"
          f"  distinct greedy tokens {distinct:.2f}  compared {compared:.2f}"
          f"  best log-probability {rows.max(-1).values.mean():.2f}")
    assert change > 0.2, f"{name}: {spec.get('matters') or spec['without']} is not seen"
    return cases if compared >= 0.9 else None


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    results = {}
    for number, (name, spec) in enumerate(MODELS.items()):
        seed = 100 * number
        while name not in results:
            save(spec, seed, root / name)
            if (cases := expected(name, spec, seed, root / name)) is not None:
                results[name] = cases
            seed += 1
    (root / "expected.json").write_text(json.dumps(results, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
