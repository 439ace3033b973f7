#!/usr/bin/env python3
"""Makes sampling.json and beams.json of this folder from two of ../tiny-models.

    python make_selection_golden.py

Logits come from transformers in float64. What sampling makes of them is computed here in float64,
in the order of vLLM's sampler; beams are those of transformers' generate().
"""

import json
import pathlib
import random

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

FOLDER = pathlib.Path(__file__).parent
END = 2
LEAST_MARGIN = 1e-4  # of a logit, a mass or a log-probability to where a cut is made
SAMPLING_CASES = 72
BEAM_CASES = 40


def load(name, dtype):
    return AutoModelForCausalLM.from_pretrained(FOLDER.parent / "tiny-models" / name, dtype=dtype,
                                                attn_implementation="eager").eval()


def edited(logits, row, params):
    """Allowed tokens, bad words, min_tokens, bias, then penalties: vLLM's order."""
    logits = logits.copy()
    output = row["output"]
    if params.get("allowed_token_ids"):
        kept = np.zeros(len(logits), bool)
        kept[params["allowed_token_ids"]] = True
        logits[~kept] = -np.inf
    for banned in params.get("banned_sequences", []):
        begun = banned[:-1]
        if not begun or output[-len(begun):] == begun:
            logits[banned[-1]] = -np.inf
    if len(output) < params.get("min_tokens", 0):
        logits[[END] + params.get("stop_token_ids", [])] = -np.inf
    for token, bias in params.get("logit_bias", {}).items():
        logits[int(token)] += bias
    penalty = params.get("repetition_penalty", 1)
    for token in set(row["prompt"]) | set(output):
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    for token in set(output):
        logits[token] -= (params.get("presence_penalty", 0) +
                          params.get("frequency_penalty", 0) * output.count(token))
    return logits


def distribution(logits, params):
    """The probabilities, or None where a cut lies too close to a token."""
    if not np.isfinite(logits).any():
        return None  # Refrain lets bans give way then
    temperature = params.get("temperature", 1)
    if temperature == 0:
        best = np.sort(logits)[-2:]
        return None if best[1] - best[0] < LEAST_MARGIN else np.eye(len(logits))[logits.argmax()]
    scaled = (logits - logits.max()) / temperature
    kept = np.isfinite(scaled)
    if params.get("min_p", 0) > 0:
        least = np.log(params["min_p"])
        if np.abs(scaled - least)[scaled < 0].min() < LEAST_MARGIN:
            return None
        kept &= scaled >= least
    if 0 < params.get("top_k", 0) < kept.sum():
        best = np.sort(scaled[kept])[::-1]
        last, next_one = best[params["top_k"] - 1:params["top_k"] + 1]
        if last - next_one < LEAST_MARGIN:
            return None
        kept &= scaled >= last
    masses = np.where(kept, np.exp(scaled), 0)
    masses /= masses.sum()
    if params.get("top_p", 1) < 1:
        order = np.argsort(-masses, kind="stable")
        before = np.concatenate([[0], np.cumsum(masses[order])[:-1]])
        if np.abs(before - params["top_p"]).min() < LEAST_MARGIN:
            return None
        stays = before < params["top_p"]
        stays[0] = True
        masses[order[~stays]] = 0
        masses /= masses.sum()
    return masses


def random_params(rng, vocab):
    params = {}

    def sometimes(probability, name, choose):
        if rng.random() < probability:
            params[name] = choose()

    def tokens(most):
        return sorted(rng.sample(range(3, vocab), rng.randint(1, most)))

    sometimes(.7, "temperature", lambda: rng.choice([0, 1e-6, .1, .3, .7, 1.5, 2]))
    sometimes(.3, "top_k", lambda: rng.choice([1, 2, 5, 20, 64, vocab - 1, vocab + 1, 10**6]))
    sometimes(.3, "top_p", lambda: rng.choice([1e-9, 1e-3, .1, .5, .8, .95, .999]))
    sometimes(.3, "min_p", lambda: rng.choice([1e-12, 1e-5, .001, .05, .3, .7]))
    sometimes(.35, "repetition_penalty", lambda: rng.choice([.5, .9, 1.1, 1.3, 2, 10]))
    sometimes(.3, "presence_penalty", lambda: rng.choice([-2, -.5, .5, 2]))
    sometimes(.3, "frequency_penalty", lambda: rng.choice([-2, -.5, .5, 2]))
    sometimes(.3, "logit_bias",
              lambda: {str(t): rng.choice([-100, -5, -1, 1, 5, 100]) for t in tokens(9)})
    sometimes(.25, "allowed_token_ids", lambda: tokens(60))
    sometimes(.3, "stop_token_ids", lambda: tokens(9))
    sometimes(.3, "min_tokens", lambda: rng.choice([1, 3, 5]))
    sometimes(.3, "ignore_eos", lambda: True)
    return params


def make_sampling():
    model = load("llama1", torch.float64)
    vocab = model.config.vocab_size
    rng = random.Random(7)
    rows, cases = [], []
    for length in (0, 1, 2, 4, 6):
        prompt = [rng.randrange(3, vocab) for _ in range(5)]
        output = []
        for _ in range(length + 1):
            with torch.no_grad():
                logits = model(torch.tensor([prompt + output])).logits[0, -1].numpy()
            if len(output) == length:
                break
            output.append(int(np.argsort(-logits)[rng.randrange(3)]))
            if len(output) == 3:
                output[2] = output[0]  # something occurs twice
        rounded = [round(float(x), 3) for x in logits]
        rounded[END] = round(max(rounded) - 0.7, 3)  # an end that often comes
        rows.append({"prompt": prompt, "output": output, "logits": rounded})
    while len(cases) < SAMPLING_CASES:
        index = len(cases) % len(rows)
        row = rows[index]
        params = random_params(rng, vocab)
        logits = np.array(row["logits"])
        best = [int(t) for t in np.argsort(-logits)[:8]]
        if rng.random() < .3:  # bans of what would come: behind the output's end, and behind others
            begun = row["output"][-1:] or best[:1]
            params["banned_sequences"] = [begun + best[:1], best[1:2], best[2:4]]
        probabilities = distribution(edited(logits, row, params), params)
        if probabilities is None:
            continue
        ids = [int(t) for t in np.flatnonzero(probabilities > 0)]
        cases.append({"row": index, "params": params, "ids": ids,
                      "probabilities": [float(f"{probabilities[t]:.6g}") for t in ids]})
    return {"rows": rows, "cases": cases}


def generate(model, case):
    prompt = torch.tensor([case["prompt"]])
    some = {"min_new_tokens": case["min_tokens"]} if case["min_tokens"] else {}
    with torch.no_grad():
        found = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), num_beams=case["beams"],
            num_return_sequences=case["beams"], max_new_tokens=case["max_tokens"],
            length_penalty=case["length_penalty"], early_stopping=case["early_stopping"],
            do_sample=False, eos_token_id=case["end_tokens"], pad_token_id=0,
            return_dict_in_generate=True, output_scores=True, **some)
    sequences = []
    for ids, score in zip(found.sequences.tolist(), found.sequences_scores.tolist()):
        answer = ids[len(case["prompt"]):]
        ends = [i for i, token in enumerate(answer) if token in case["end_tokens"]]
        sequences.append({"tokens": answer[:ends[0] + 1] if ends else answer,
                          "score": round(score, 5)})
    return sequences


def make_beams():
    rng = random.Random(11)
    models = {name: [load(name, dtype) for dtype in (torch.float64, torch.float32)]
              for name in ("llama1", "mistral-window")}
    cases = []
    while len(cases) < BEAM_CASES:
        name = rng.choice(list(models))
        exact, other = models[name]
        case = {"model": name,
                "prompt": [rng.randrange(3, exact.config.vocab_size)
                           for _ in range(rng.choice([1, 4, 12, 60]))],
                "beams": rng.choice([2, 3, 5, 8]),
                "max_tokens": rng.choice([1, 2, 4, 10, 20]),
                "min_tokens": 0,
                "length_penalty": rng.choice([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0]),
                "early_stopping": rng.random() < .3}
        if rng.random() < .3:
            case["min_tokens"] = rng.randint(1, case["max_tokens"])
        ends = {END}
        for _ in range(rng.choice([0, 2, 6])):  # tokens that a search comes by
            ids = list(case["prompt"])
            for _ in range(rng.randint(1, 4)):
                with torch.no_grad():
                    logits = exact(torch.tensor([ids])).logits[0, -1]
                ids.append(int(logits.topk(4).indices[rng.randrange(4)]))
            ends.add(ids[-1])
        case["end_tokens"] = sorted(ends)
        case["sequences"] = generate(exact, case)
        scores = [s["score"] for s in case["sequences"]]
        least = min(a - b for a, b in zip(scores, scores[1:]))
        if least < 100 * LEAST_MARGIN or (
                [s["tokens"] for s in generate(other, case)] !=
                [s["tokens"] for s in case["sequences"]]):
            continue  # rounding decides
        cases.append(case)
    return {"cases": cases}


def write(name, value):
    text = json.dumps(value)
    for key in ('{"row"', '{"model"', '{"prompt"', '"cases"'):
        text = text.replace(key, "\n" + key)
    (FOLDER / name).write_text(text + "\n")


if __name__ == "__main__":
    write("sampling.json", make_sampling())
    write("beams.json", make_beams())
