"""Test features of torch that users expect to work: flop counts, names in profiles, trainers of other libraries.

SPDX-License-Identifier: Apache-2.0"""
import pytest

torch = pytest.importorskip("torch")
import relpos
import relpos.torch
from torch.utils.flop_counter import FlopCounterMode

q, k, v = (torch.randn(2, heads, length, 16, generator=torch.Generator().manual_seed(1))
           for heads, length in ((4, 9), (2, 13), (2, 13)))


def counted(call, backward):
    """Return the number of operations that torch counts for a call and its gradients."""
    tensors = [x.clone().requires_grad_(backward) for x in (q, k, v)]
    with FlopCounterMode(display=False) as counter:
        out = call(*tensors)
        if backward:
            out.sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("backward", [False, True])
def test_counted_operations(backward):
    """The count equals that of torch's own attention, except for one product of the backward pass if torch stores the
    scores. The term adds nothing."""
    got = counted(lambda q, k, v: relpos.attention(q, k, v, bias=relpos.ALiBi()), backward)
    want = counted(lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True), backward)
    products = 2 * 2 * 4 * 9 * 13 * 16
    # torch may store the scores: one product less. Torch 2.12 does not count its own attention on CPUs
    assert got == products * (2 + 5 * backward) and want in (0, products * (2 + 4 * backward), got)


def profiled(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return {event.key: event.count for event in profile.key_averages()}


def test_names_in_a_profile():
    with torch.no_grad():
        assert profiled(lambda: relpos.attention(q, k, v))["relpos::attention"] == 1
    tensors = [x.clone().requires_grad_() for x in (q, k, v)]
    names = profiled(lambda: [relpos.attention(*tensors).sum().backward() for _ in range(2)])
    assert names["relpos::attention"] == 2 and names["relpos::attention_backward"] == 2
    compiled = torch.compile(lambda q, k, v: relpos.attention(q, k, v), backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        compiled(q, k, v)
        # the profile has one entry for each dispatch key of torch
        assert profiled(lambda: compiled(q, k, v))["relpos::attention"] >= 1
    assert torch.equal(compiled(q, k, v), relpos.attention(q, k, v))


class Lines(torch.utils.data.Dataset):
    """A data set in which each text repeats one token. A model learns it quickly."""

    def __len__(self):
        return 32

    def __getitem__(self, n):
        ids = torch.full((16,), 5 + n % 7)
        return {"input_ids": ids, "attention_mask": torch.ones(16, dtype=torch.long), "labels": ids[:6]}


def small_t5(implementation):
    transformers = pytest.importorskip("transformers")
    import relpos.hf  # noqa: F401
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=20, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                                   decoder_start_token_id=0,
                                   dropout_rate=0.0)
    return transformers.T5ForConditionalGeneration._from_config(config, attn_implementation=implementation)


@pytest.mark.parametrize("bf16", [False, True])
def test_the_trainer_of_transformers(bf16, tmp_path):
    """The losses equal those of eager attention, also under autocast."""
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    losses = {}
    for implementation in ("relpos", "eager"):
        arguments = transformers.TrainingArguments(str(tmp_path / implementation), max_steps=12,
                                                   per_device_train_batch_size=8, use_cpu=True,
                                                   bf16=bf16, learning_rate=3e-3, logging_steps=1, report_to=[],
                                                   save_strategy="no",
                                                   seed=3, disable_tqdm=True)
        trainer = transformers.Trainer(small_t5(implementation), arguments, train_dataset=Lines())
        trainer.train()
        losses[implementation] = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(losses["relpos"]) == 12 and losses["relpos"][-1] < losses["relpos"][0] - 0.5
    assert losses["relpos"] == pytest.approx(losses["eager"], abs=0.05 if bf16 else 2e-4)


def test_accelerate():
    """A training loop of accelerate with accumulated gradients gives the same weights as eager attention."""
    accelerate = pytest.importorskip("accelerate")
    found = []
    for implementation in ("relpos", "eager"):
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = small_t5(implementation).double()  # training steps amplify rounding errors
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, data = accelerator.prepare(model, optimizer,
                                                     torch.utils.data.DataLoader(Lines(), batch_size=8))
        before = model.shared.weight.detach().clone()
        for batch in data:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch).loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        found.append(accelerator.unwrap_model(model).shared.weight.detach())
        assert (found[-1] - before).abs().max() > 1e-3
    torch.testing.assert_close(*found, atol=1e-6, rtol=0)
