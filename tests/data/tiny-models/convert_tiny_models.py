#!/usr/bin/env python3
"""Converts the tiny models to GGUF with llama.cpp's own converter.

    convert_tiny_models.py LLAMA_CPP OUT [TENSORS]

LLAMA_CPP is a checkout of llama.cpp (its Python needs torch and transformers), OUT a folder that gets
NAME.gguf of every model that such a file can describe, or parts of at most TENSORS tensors each. Then

    REFRAIN_TINY_MODELS_GGUF=OUT .bazel/bin/tests/integration/golden/tiny_models_test

compares what Refrain computes from these files with what transformers computes from the folders. The
files are not kept: half a dozen would be as large as the models themselves, and what they show is
whether our reading of GGUF agrees with today's converter.
"""

import pathlib
import sys

# What the converter does not write: sliding windows, YaRN's mscale and an original context outside
# of rope_scaling, and embeddings that transformers saved under the head's name.
NOT_DESCRIBED = {"mistral-window", "mistral-window-linear", "yarn-all-fields", "yarn-defaults",
                 "yarn-mscale-untruncated"}


def made_up_vocabulary(model) -> None:
    """The tiny models have none; token ids are all that the test uses."""
    count = model.hparams["vocab_size"]
    writer = model.gguf_writer
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"<{i}>" for i in range(count)])
    writer.add_token_types([1] * count)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def main() -> None:
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    llama_cpp, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    parts = {"split_max_tensors": int(sys.argv[3])} if sys.argv[3:] else {}
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    import gguf
    from conversion import ModelBase, get_model_class

    out.mkdir(parents=True, exist_ok=True)
    for folder in sorted(path.parent for path in pathlib.Path(__file__).parent.glob("*/config.json")):
        if folder.name in NOT_DESCRIBED:
            continue
        architecture = ModelBase.load_hparams(folder, False)["architectures"][0]
        model_class = get_model_class(architecture)
        for base in model_class.__mro__:
            if "set_vocab" in base.__dict__:
                base.set_vocab = made_up_vocabulary
        path = out / f"{folder.name}.gguf"
        model_class(folder, gguf.LlamaFileType.ALL_F32, path, **parts).write()


if __name__ == "__main__":
    main()
