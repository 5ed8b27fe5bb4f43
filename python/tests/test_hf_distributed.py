"""Models of transformers whose inputs are shared out to processes give the results and gradients of one process.
SPDX-License-Identifier: Apache-2.0"""
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import processes  # noqa: E402
import relpos.hf  # noqa: E402, F401
import relpos.torch.distributed as rd  # noqa: E402

dist = torch.distributed
NAME = __name__.rpartition(".")[2]
LENGTH = 3300
SMALL = {"vocab_size": 50, "attn_implementation": "relpos"}


def tokens(batch=1, length=LENGTH, seed=0):
    return torch.randint(3, 50, (batch, length), generator=torch.Generator().manual_seed(seed))


def padding(batch):
    """Return a mask whose second entry ends early."""
    mask = torch.ones(batch, LENGTH, dtype=torch.long)
    mask[1:, 2000:] = 0
    return mask


def llama(**more):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(hidden_size=32, intermediate_size=48,
                                                                  num_hidden_layers=2, num_attention_heads=4,
                                                                  num_key_value_heads=2, max_position_embeddings=8192,
                                                                  **SMALL, **more))


def scaled(kind, trained):
    """Return a model whose RoPE has a length."""
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": trained}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0]}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, rope_parameters=rope,
        max_position_embeddings=trained if kind == "dynamic" else 8192, **SMALL))


def mistral():
    return transformers.MistralForCausalLM(transformers.MistralConfig(hidden_size=32, intermediate_size=48,
                                                                      num_hidden_layers=1, num_attention_heads=2,
                                                                      num_key_value_heads=2, sliding_window=1000,
                                                                      **SMALL))


def bloom():
    return transformers.BloomForCausalLM(transformers.BloomConfig(hidden_size=32, n_layer=2, n_head=4, **SMALL))


def t5():
    return transformers.T5ForConditionalGeneration(transformers.T5Config(d_model=32, d_kv=8, d_ff=48, num_layers=2,
                                                                         num_heads=4,
                                                                         dropout_rate=0.0, decoder_start_token_id=0,
                                                                         **SMALL))


def compare(make, whole, local):
    """Compare the logits and the gradients of all parameters. `whole` and `local` have the inputs of both calls."""
    torch.manual_seed(0)
    model = make().double().train()
    for p in model.parameters():
        p.data.mul_(3)
    want = model(**whole, use_cache=False).logits
    want.square().sum().backward()
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    with rd.context_parallel():
        found = model(**local, use_cache=False).logits
    torch.testing.assert_close(rd.unshard(found.detach()), want.detach(), rtol=1e-9, atol=1e-9)
    found.square().sum().backward()
    for p, y in zip(model.parameters(), expected):
        if y is not None:
            dist.all_reduce(p.grad)
            torch.testing.assert_close(p.grad, y, rtol=1e-8, atol=1e-10 * y.abs().max().item())


def check_llama(rank, folder):
    ids = tokens()
    compare(llama, {"input_ids": ids}, {"input_ids": rd.shard(ids), "position_ids": rd.positions(LENGTH)[None]})


def check_padded_llama(rank, folder):
    ids, mask, at = tokens(2), padding(2), rd.positions(LENGTH)[None]
    compare(llama, {"input_ids": ids, "attention_mask": mask},
            {"input_ids": rd.shard(ids), "attention_mask": rd.shard(mask), "position_ids": at})


def check_scaled_llama(rank, folder):
    ids = tokens()
    for kind, trained in ("dynamic", 3300), ("longrope", 3300), ("longrope", 900):
        compare(lambda: scaled(kind, trained), {"input_ids": ids}, {"input_ids": rd.shard(ids),
                                                                    "position_ids": rd.positions(LENGTH)[None]})


def check_mistral(rank, folder):
    ids = tokens()
    compare(mistral, {"input_ids": ids}, {"input_ids": rd.shard(ids), "position_ids": rd.positions(LENGTH)[None]})


def check_bloom(rank, folder):
    ids, mask = tokens(2), padding(2)
    compare(bloom, {"input_ids": ids, "attention_mask": mask},
            {"input_ids": rd.shard(ids), "attention_mask": rd.shard(mask)})


def check_t5(rank, folder):
    ids, answer, mask = tokens(2), tokens(2, 3200, 1), padding(2)
    compare(t5, {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": answer},
            {"input_ids": rd.shard(ids), "attention_mask": rd.shard(mask), "decoder_input_ids": rd.shard(answer)})


def check_refusals(rank, folder):
    ids, at = rd.shard(tokens()), rd.positions(LENGTH)[None]

    def refused(text, model, **inputs):
        with rd.context_parallel():
            try:
                model(**inputs, use_cache=False)
            except (ValueError, TypeError) as why:
                assert text in str(why), why
            else:
                raise AssertionError(f"accepted: {text}")

    refused("packed sequences are not supported", llama(), input_ids=ids, position_ids=at % 700)
    for kind, trained in ("dynamic", 3299), ("longrope", 3299):
        refused(f"has rope_type={kind}", scaled(kind, trained), input_ids=ids, position_ids=at)
    refused("does not support return_weights", llama(), input_ids=ids, position_ids=at, output_attentions=True)
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    refused("computes its positions from the number of tokens",
            transformers.DebertaV2Model(transformers.DebertaV2Config(
relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, max_position_embeddings=4096, **small,
**SMALL)), input_ids=ids)


NAMES = ["check_llama", "check_padded_llama", "check_scaled_llama", "check_mistral", "check_bloom", "check_t5",
         "check_refusals"]


@pytest.mark.parametrize("ranks", [2, 3])
def test_models(ranks, tmp_path):
    processes.run(ranks, NAME, NAMES, tmp_path)
