# make_beams.py -- writes tests/t5/beams: a T5 model whose next token depends only on the last one, and the beams that
# transformers finds from each token, with settings that end the search at different lengths.
#
#     python3 tests/t5/make_beams.py
#
#   logits [token, next] f32        the model's logits after a token, also for tests without transformers
#   beams.K [start, result, t] i32, scores.K [start, result] f32        for each search K of SEARCHES, padded with -1
#
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import T5Config, T5ForConditionalGeneration

V, STEPS = 16, 8
TO = Path(__file__).parent / "beams"
SEARCHES = [(early, penalty, beams) for early in (False, True, "never")
            for penalty in (-1.0, 0.0, 0.4, 1.0, 2.0) for beams in (2, 4)]

torch.manual_seed(1)
config = T5Config(vocab_size=V, d_model=V, d_kv=4, d_ff=4, num_heads=1, num_layers=1, num_decoder_layers=1,
                  feed_forward_proj="gated-gelu", decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
                  dropout_rate=0.0)
config.tie_word_embeddings = config.scale_decoder_outputs = False  # after construction, because T5Config sets them
model = T5ForConditionalGeneration(config).eval()
logits = 1.5 * torch.randn(V, V)
logits[:, 1] += 1.0  # targets end after one to eight tokens
logits[:, 0] = -30
with torch.no_grad():
    for p in model.parameters():
        p.zero_()
    for name, p in model.named_parameters():
        if "layer_norm" in name:
            p.fill_(1)
    model.shared.weight.copy_(1024 * torch.eye(V))  # the norm of a row is 4 e_token: 1e-6 is lost beside 2^16
    model.encoder.embed_tokens.weight.copy_(model.shared.weight)
    model.decoder.embed_tokens.weight.copy_(model.shared.weight)
    model.lm_head.weight.copy_(logits.T / 4)
    got = model(input_ids=torch.tensor([[2]]), decoder_input_ids=torch.arange(V)[None]).logits[0]
    assert (got == logits).all() or (got - logits).abs().max() < 1e-5, (got - logits).abs().max()

out = {"logits": got.contiguous()}
for k, (early, penalty, beams) in enumerate(SEARCHES):
    rows, scores = torch.full((V, beams, STEPS), -1, dtype=torch.int32), torch.zeros(V, beams)
    for start in range(2, V):
        g = model.generate(torch.tensor([[2]]), decoder_input_ids=torch.tensor([[0, start]]), max_new_tokens=STEPS - 1,
                           do_sample=False, num_beams=beams, num_return_sequences=beams, early_stopping=early,
                           length_penalty=penalty, return_dict_in_generate=True, output_scores=True)
        for r in range(beams):
            row = g.sequences[r, 1:].tolist()
            end = row.index(1, 1) + 1 if 1 in row[1:] else len(row)
            rows[start, r, :end] = torch.tensor(row[:end], dtype=torch.int32)
        scores[start] = g.sequences_scores
    out[f"beams.{k}"], out[f"scores.{k}"] = rows, scores
TO.mkdir(exist_ok=True)
model.save_pretrained(TO)
save_file(out, TO / "expected.safetensors")
