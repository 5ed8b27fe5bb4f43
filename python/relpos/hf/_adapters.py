"""Replace the attention code of transformers models that compute attention themselves, and the code that creates N×N
biases.

An adapter is a function that lists the replacements in one module of transformers. _guard.py checks and applies them. A
replacement runs only in models that use relpos. Adapters must read attributes by plain names (self.name); otherwise the
guard cannot check them.

SPDX-License-Identifier: Apache-2.0"""
import math
import operator
from functools import partial

import relpos
import torch

from ..torch._functional import _added
from ._attention import attention
from ._cache import update
from ._guard import Adapter
from ._masks import MASKS, NAME, Intervals, made, masks_nothing, offset, traces
from ._sharded import distributed


def _uses_relpos(module, *_, **__):
    config = getattr(module, "config", None)  # _adopt sets the config of modules that have none
    return config is not None and config._attn_implementation == NAME


def _is_decoder(self):
    return self.is_decoder


def _t5_bias(self, is_decoder, q_offset=0):
    """Return the options of relpos.attention for the bias of an attention module; an empty dictionary if the module has
    no table."""
    if not hasattr(self, "relative_attention_bias"):
        return {}
    term = relpos.T5(self.relative_attention_bias.weight, buckets=self.relative_attention_num_buckets,
                     max_distance=self.relative_attention_max_distance, bidirectional=not is_decoder)
    return {"bias": term, "q_offset": offset(q_offset)}


def _t5(module, replace, name, is_decoder=_is_decoder):
    """T5Attention and its copies: compute_bias returns a dictionary of options. forward calls it in every layer that
    gets no bias from the layer before; the original forward creates zeros in layers without a table."""
    @replace(name + ".compute_bias", _uses_relpos)
    def compute_bias(self, original, query_length, key_length, device=None, past_seen_tokens=0):
        return _t5_bias(self, is_decoder(self), past_seen_tokens)

    @replace(name + ".forward", lambda self, *_, position_bias=None, **__: position_bias is None and _uses_relpos(self))
    def forward(self, original, *args, **kwargs):
        self.has_relative_attention_bias = True
        try:
            return original(self, *args, **kwargs)
        finally:
            self.has_relative_attention_bias = hasattr(self, "relative_attention_bias")


def _pix2struct(module, replace):
    """Pix2Struct: T5's buckets, in the decoder only."""
    def is_decoder(self):
        return True

    _t5(module, replace, "Pix2StructTextAttention", is_decoder)


def _given(*args, **kwargs):
    """Return true if an argument is a Mask or a TracedMask."""
    return any(isinstance(x, MASKS) for x in (*args, *kwargs.values()))


def _bloom(module, replace):
    """BLOOM: the model's bias, slopes times key positions, is ALiBi plus a constant in each row, which the softmax
    cancels. If there is padding between tokens, positions count tokens only."""
    @replace("BloomAttention.forward", _given)
    def forward(self, original, hidden_states, residual, alibi, attention_mask, layer_past=None, use_cache=False,
                output_attentions=False, **others):
        if not attention_mask.options.get("causal") or (self.pretraining_tp > 1 and self.slow_but_exact):
            raise ValueError(f'attn_implementation="{NAME}": BLOOM without a causal mask, or with slow_but_exact, is '
                             f'not supported; use "eager"')
        query, key, value = self._reshape(self.query_key_value(hidden_states))
        key, value, norms = update(layer_past, key, value, self.layer_idx)
        out, weights = attention(self, query, key, value, attention_mask, scaling=self.inv_norm_factor,
                                 dropout=self.attention_dropout.p if self.training else 0.0,
                                 output_attentions=output_attentions,
                                 position_bias={"bias": relpos.ALiBi(**_token_positions(attention_mask)), **norms},
                                 **others)
        return module.dropout_add(self.dense(out.flatten(2)), residual, self.hidden_dropout, self.training), weights


def _token_positions(mask):
    """Return q_positions and k_positions, for a key mask with holes. Return {} without holes: distances between indices
    are then distances between tokens. While torch traces, return positions for any key mask."""
    keys = mask.options.get("key_mask")
    if keys is None:
        return {}
    if not traces() and not (keys[:, 1:] > keys[:, :-1]).sum(1).add(keys[:, 0]).gt(1).any():
        return {}
    positions, first = keys.cumsum(1) - 1, mask.options.get("q_offset", 0)
    length = keys.shape[1] if distributed() else mask.shape[-2]  # arrays of a sharded sequence are those of all tokens
    queries = (torch.arange(length, device=keys.device) + first).expand(len(keys), -1)
    return {"q_positions": positions.gather(1, queries), "k_positions": positions}


def _shifted(mask, windows):
    """Return the options for the mask of shifted windows. The mask is (windows of an image, length, length), -100 for
    masked pairs."""
    if mask is None:
        return {}
    return {"mask": (mask == 0).repeat(windows // len(mask), 1, 1)[:, None]}


def _swin(module, replace):
    """Swin: a bias table for the pairs of a window."""
    @replace("SwinAttention.forward", _uses_relpos)
    def forward(self, original, hidden_states, attention_mask=None, **kwargs):
        query, key, value = (_heads(project(hidden_states), self.q_proj.out_features // self.head_dim)
                             for project in (self.q_proj, self.k_proj, self.v_proj))
        bias = self.relative_position_bias
        out, weights = attention(self, query, key, value, None, is_causal=False, scaling=self.scaling, **kwargs,
                                 dropout=self.attention_dropout if self.training else 0.0, position_bias={
                                     "bias": relpos.Swin(bias.relative_position_bias_table, grid=bias.window_size),
                                     **_shifted(attention_mask, len(hidden_states))})
        return self.o_proj(out.flatten(2)), weights


def _beit(module, replace):
    """BEiT: a bias table for the pairs of an image's patches and for the class token. The layer adds it to its mask."""
    @replace("BeitRelativePositionBias.forward", _uses_relpos)
    def forward(self, original, window_size, interpolate_pos_encoding=False, dim_size=None):
        height, width = window_size
        twice = self.config.use_shared_relative_position_bias and self.config.use_relative_position_bias
        if traces() or twice or interpolate_pos_encoding or height != width or (height, width) != self.window_size:
            return original(self, window_size, interpolate_pos_encoding, dim_size)
        length = height * width + 1
        return made((1, 1, length, length),
                    {"bias": relpos.Swin(self.relative_position_bias_table, grid=(height, width), extra=1)})


def _windows(module, replace, name, scores):
    """Replace attention in windows of an image. scores(self, query, key) returns query, key, scaling and the bias
    table."""
    @replace(name + "SelfAttention.forward", _uses_relpos)
    def forward(self, original, hidden_states, attention_mask=None, output_attentions=False):
        query, key, value = (_heads(project(hidden_states), self.num_attention_heads)
                             for project in (self.query, self.key, self.value))
        query, key, scaling, table = scores(self, query, key)
        out, weights = attention(self, query, key, value, None, is_causal=False, scaling=scaling,
                                 output_attentions=output_attentions,
                                 dropout=self.dropout.p if self.training else 0.0, position_bias={
                                     "bias": relpos.Swin(table, grid=self.window_size),
                                     **_shifted(attention_mask, len(hidden_states))})
        return (out.flatten(2), weights)[:1 + bool(output_attentions)]


def _swinv2(module, replace, name):
    """Swin v2 and its copy in Swin2SR: a network computes the bias table, and scores are scaled cosines."""
    def scores(self, query, key):
        normalize, scale = torch.nn.functional.normalize, self.logit_scale.clamp(max=math.log(100)).exp()
        table = 16 * self.continuous_position_bias_mlp(self.relative_coords_table).flatten(0, -2).sigmoid()
        return normalize(query, dim=-1) * scale, normalize(key, dim=-1), 1.0, table

    _windows(module, replace, name, scores)


def _swin_copy(module, replace, name):
    """Models that copy the older Swin code of transformers."""
    def scores(self, query, key):
        return query, key, self.attention_head_size ** -0.5, self.relative_position_bias_table

    _windows(module, replace, name, scores)


def _axial(self, hidden_states, heads, dropout, output_attentions):
    """Return the output and the weights of attention with relative vectors by row and by column."""
    def table(x, size):
        size = 2 * size - 1
        return x if len(x) == size else torch.nn.functional.interpolate(x.t()[None], size=size,
                                                                        mode="linear")[0].t().contiguous()

    batch, height, width, _ = hidden_states.shape
    query, key, value = self.qkv(hidden_states).view(batch, height * width, 3, heads, -1).permute(2, 0, 3, 1, 4)
    options = {"relkey": relpos.AxialKey(table(self.rel_pos_h, height), table(self.rel_pos_w, width),
                                         grid=(height, width))
               } if hasattr(self, "rel_pos_h") else {}
    out, weights = attention(self, query, key, value, None, is_causal=False, scaling=self.scale,
                             output_attentions=output_attentions,
                             dropout=dropout if self.training else 0.0, position_bias=options)
    return self.proj(out.reshape(batch, height, width, -1)), weights


def _vitdet(module, replace):
    """ViTDet: relative vectors by row and by column."""
    @replace("VitDetAttention.forward", _uses_relpos)
    def forward(self, original, hidden_states, output_attentions=False):
        return _axial(self, hidden_states, self.num_heads, 0.0, output_attentions)[:1 + bool(output_attentions)]


def _sam(module, replace, names):
    """The image encoders of SAM and SAM-HQ: relative vectors by row and by column. These classes always return a pair
    (output, weights or None)."""
    def forward(self, original, hidden_states, output_attentions=False):
        out, weights = _axial(self, hidden_states, self.num_attention_heads, self.dropout, output_attentions)
        return out, weights if weights is None else weights.flatten(0, 1)

    for name in names:
        replace(name + ".forward", _uses_relpos)(forward)


def _siglip2(module, replace):
    """SigLIP 2: a learned query pools an image. The original uses torch.nn.MultiheadAttention, which does not accept a
    Mask."""
    @replace("Siglip2MultiheadAttentionPoolingHead.forward", _uses_relpos)
    def forward(self, original, hidden_state, attention_mask=None):
        probe, pool = self.probe.expand(len(hidden_state), -1, -1), self.attention
        if attention_mask is not None:
            attention_mask = module.create_bidirectional_mask(config=self.config, inputs_embeds=probe,
                                                              attention_mask=attention_mask,
                                                              encoder_hidden_states=hidden_state)
        query, key, value = (_heads(torch.nn.functional.linear(x, weight, bias), self.num_heads)
                             for x, weight, bias in zip(
(probe, hidden_state, hidden_state), pool.in_proj_weight.chunk(3), pool.in_proj_bias.chunk(3)))
        out, _ = attention(self, query, key, value, attention_mask, is_causal=False, output_attentions=False)
        out = pool.out_proj(out.flatten(2))
        return (out + self.mlp(self.layernorm(out)))[:, 0]


def _gemma4(module, replace):
    """Gemma 4: the audio model runs with eager attention, because its code does arithmetic on the mask."""
    @replace("Gemma4AudioModel.forward", _uses_relpos)
    def forward(self, original, *args, **kwargs):
        self.config._attn_implementation = "eager"
        try:
            return original(self, *args, **kwargs)
        finally:
            self.config._attn_implementation = NAME


def _mpnet(module, replace):
    """MPNet: T5's buckets, 32 of them."""
    @replace("MPNetEncoder.compute_position_bias", _uses_relpos)
    def compute_position_bias(self, original, x, position_ids=None, num_buckets=32):
        return {"bias": relpos.T5(self.relative_attention_bias.weight[:num_buckets], buckets=num_buckets)}

    @replace("MPNetSelfAttention.forward", _uses_relpos)
    def forward(self, original, hidden_states, attention_mask=None, position_bias=None, output_attentions=False,
                **others):
        query, key, value = (_heads(project(hidden_states), self.num_attention_heads)
                             for project in (self.q, self.k, self.v))
        out, weights = attention(self, query, key, value, attention_mask, output_attentions=output_attentions,
                                 position_bias=position_bias,
                                 dropout=self.dropout.p if self.training else 0.0, **others)
        return (self.o(out.flatten(2)), weights)[:1 + bool(output_attentions)]


def _layoutlmv3(module, replace):
    """LayoutLMv3: T5's buckets for the positions of tokens, and for the left and lower edges of boxes. The tables get
    no gradient, as in the model's eager code."""
    def term(self, bias, positions, max_distance):
        with torch.no_grad():  # as in transformers: no gradient, but tangents of forward mode
            table = bias.weight.t() / (self.config.hidden_size // self.config.num_attention_heads) ** 0.5
        return relpos.T5(table.contiguous(), buckets=len(table), max_distance=max_distance, q_positions=positions,
                         k_positions=positions)

    @replace("LayoutLMv3Encoder._cal_1d_pos_emb", _uses_relpos)
    def _cal_1d_pos_emb(self, original, position_ids):
        return term(self, self.rel_pos_bias, position_ids, self.max_rel_pos)

    @replace("LayoutLMv3Encoder._cal_2d_pos_emb", _uses_relpos)
    def _cal_2d_pos_emb(self, original, bbox):
        return sum(term(self, bias, bbox[..., n].contiguous(), self.max_rel_2d_pos)
                   for bias, n in ((self.rel_pos_x_bias, 0), (self.rel_pos_y_bias, 3)))

    if hasattr(module.LayoutLMv3Encoder, "_compute_position_bias"):  # since 5.24, which uses the attention interface
        @replace("LayoutLMv3Encoder._compute_position_bias", _uses_relpos)
        def _compute_position_bias(self, original, position_ids, bbox):
            if not self.has_relative_attention_bias:
                return None
            boxes = self._cal_2d_pos_emb(bbox) if self.has_spatial_attention_bias else None
            return {"bias": _added(self._cal_1d_pos_emb(position_ids), boxes)}
        return

    @replace("LayoutLMv3SelfAttention.forward", _uses_relpos)
    def forward(self, original, hidden_states, attention_mask=None, rel_pos=None, rel_2d_pos=None, **others):
        query, key, value = (_heads(project(hidden_states), self.num_attention_heads)
                             for project in (self.query, self.key, self.value))
        # like eager attention, ignore boxes without the token bias
        boxes = rel_2d_pos if self.has_relative_attention_bias else None
        out, weights = attention(self, query, key, value, attention_mask,
                                 dropout=self.dropout.p if self.training else 0.0,
                                 position_bias={"bias": _added(rel_pos, boxes) or None}, **others)
        return out.flatten(2), weights


def _wav2vec2(module, replace, name):
    """Wav2Vec2-Conformer, Wav2Vec2-BERT and SeamlessM4T: Transformer-XL's key vectors."""
    @replace("_apply_relative_position_encoding", _uses_relpos, of=name)
    def apply(self, original, query, key, relative_position_embeddings):
        vectors = _heads(self.linear_pos(relative_position_embeddings[0]), self.num_heads).contiguous()
        return query, {"relkey": relpos.XL(vectors, self.pos_bias_u, self.pos_bias_v)}


def _wav2vec2_bert(module, replace):
    """Wav2Vec2-BERT: Transformer-XL's or Shaw's key vectors."""
    _wav2vec2(module, replace, "Wav2Vec2BertSelfAttention")

    @replace("_apply_relative_key_position_encoding", _uses_relpos, of="Wav2Vec2BertSelfAttention")
    def apply(self, original, query, key):
        return query, {"relkey": relpos.RelKey(self.distance_embedding.weight, left=self.left_max_position_embeddings,
                                               right=self.right_max_position_embeddings)}


def _projected(self, hidden_states):
    """Return Fast Conformer's queries, keys and values, (B, H, L, D)."""
    return (project(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj))


def _fast_conformer(self, query, key, value, position_embeddings, mask, kwargs):
    """Return the output and the weights of Fast Conformer's attention, Transformer-XL's. Only dropout in training makes
    the position embeddings of batch entries differ. The first is that of the largest distance of a key before a
    query, even if that query is in a cache."""
    found, lq, lk = [], query.shape[-2], key.shape[-2]
    same = not (self.training and self.config.dropout_positions)
    for at in [slice(None)] if same else [slice(n, n + 1) for n in range(len(query))]:
        vectors = self.relative_k_proj(position_embeddings[at][0, :lq + lk - 1])
        options = {"relkey": relpos.XL(_heads(vectors, self.config.num_attention_heads).contiguous(), self.bias_u,
                                       self.bias_v), "q_offset": lk - lq}
        found.append(attention(self, query[at], key[at], value[at], _of_entries(mask, at), scaling=self.scaling,
                               is_causal=False, position_bias=options,
                               dropout=self.attention_dropout if self.training else 0.0, **kwargs))
    out, weights = zip(*found)
    out, weights = found[0] if len(found) == 1 else (torch.cat(out), None if weights[0] is None else torch.cat(weights))
    return self.o_proj(out.flatten(2)), weights


def _of_entries(mask, at):
    """Return the mask of some batch entries."""
    if mask is None or at == slice(None):
        return mask
    if not isinstance(mask, MASKS):
        return mask[at]
    options = {name: x[at] if name in ("key_mask", "starts", "ends") and len(x) > 1 else x
               for name, x in mask.options.items()}
    return made((1, *mask.shape[1:]), options)


def _parakeet(module, replace):
    """Parakeet: Transformer-XL's key vectors. The encoder would make an N×N mask of its padding; the layers get the
    frames that are no padding as `frames` instead."""
    @replace("ParakeetEncoder.forward", _uses_relpos, passes=True)
    def encoder(self, original, input_features, attention_mask=None, output_attention_mask=True, **kwargs):
        if attention_mask is None:
            return original(self, input_features, None, output_attention_mask, **kwargs)
        self.subsampling.tokens = features = self.subsampling(input_features, attention_mask)
        frames = self._get_output_attention_mask(attention_mask, target_length=features.shape[1])
        try:
            found = original(self, input_features, None, output_attention_mask, frames=frames, **kwargs)
        finally:
            self.subsampling.tokens = None
        if output_attention_mask and isinstance(found, tuple):
            return *found, frames.int()
        if output_attention_mask:
            found.attention_mask = frames.int()
        return found

    @replace("ParakeetEncoderSubsamplingConv2D.forward",
             lambda self, *_, **__: getattr(self, "tokens", None) is not None)
    def subsampling(self, original, input_features, attention_mask=None):
        return self.tokens

    @replace("ParakeetEncoderBlock.forward", lambda self, *_, frames=None, **__: frames is not None, passes=True)
    def block(self, original, hidden_states, attention_mask=None, position_embeddings=None, **kwargs):
        frames, length = kwargs.pop("frames"), hidden_states.shape[1]
        options = {} if masks_nothing(frames) else {"key_mask": frames}
        return original(self, hidden_states, made((len(frames), 1, length, length), options), position_embeddings,
                        **kwargs)

    @replace("ParakeetEncoderConvolutionModule.forward", _given)
    def convolution(self, original, hidden_states, attention_mask=None):
        frames = attention_mask.options.get("key_mask")
        return original(self, hidden_states, None if frames is None else frames[:, None, None])

    @replace("ParakeetEncoderAttention.forward", _uses_relpos)
    def forward(self, original, hidden_states, position_embeddings, attention_mask=None, **kwargs):
        query, key, value = _projected(self, hidden_states)
        return _fast_conformer(self, query, key, value, position_embeddings, attention_mask, kwargs)


def _nemotron(module, replace):
    """Nemotron's streaming encoder: Parakeet's attention with a cache, in chunks. Each frame attends to an interval.
    The mask function gets its intervals in every implementation, and gives the same mask in the others."""
    @replace("chunked_limited_mask_function", lambda *_: True)
    def chunked_limited_mask_function(left_ctx, original, right_ctx):
        size = right_ctx + 1
        before = left_ctx // size if left_ctx >= 0 else 10_000  # chunks

        def interval(at):
            first = at.div(size, rounding_mode="floor") * size
            return first - before * size, first + size

        return Intervals(original(left_ctx, right_ctx), interval)

    @replace("NemotronAsrStreamingEncoderAttention.forward", _uses_relpos)
    def forward(self, original, hidden_states, position_embeddings, attention_mask=None, cache=None, **kwargs):
        query, key, value = _projected(self, hidden_states)
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        return _fast_conformer(self, query, key, value, position_embeddings, attention_mask, kwargs)


def _seamless_v2(module, replace):
    """SeamlessM4T v2: Shaw's key vectors, and chunks in which each frame attends to an interval. While torch traces,
    the mask of chunks is an array."""
    @replace("SeamlessM4Tv2ConformerEncoder._apply_chunk_attention", _uses_relpos)
    def _apply_chunk_attention(self, original, attention_mask, hidden_states):
        if traces():
            return original(self, attention_mask, hidden_states)
        size, before = self.config.speech_encoder_chunk_size, self.config.speech_encoder_left_chunk_num
        length = hidden_states.shape[1]
        first = torch.arange(length)[None] // size * size
        options = {"starts": (first - before * size).clamp(0) if before >= 0 else torch.zeros_like(first),
                   "ends": (first + size).clamp(max=length)} if length > size else {}
        if attention_mask is not None and not masks_nothing(attention_mask):
            options["key_mask"] = attention_mask.bool()
        return made((len(hidden_states), 1, length, length), options)

    @replace("SeamlessM4Tv2ConformerSelfAttention.forward",
             lambda self, *_, **__: _uses_relpos(self) and self.position_embeddings_type == "relative_key")
    def forward(self, original, hidden_states, attention_mask=None, **kwargs):
        query, key, value = (_heads(project(hidden_states), self.num_heads)
                             for project in (self.linear_q, self.linear_k, self.linear_v))
        vectors = relpos.RelKey(self.distance_embedding.weight, left=self.left_max_position_embeddings,
                                right=self.right_max_position_embeddings)
        out, weights = attention(self, query, key, value, attention_mask, scaling=self.scaling, is_causal=False,
                                 position_bias={"relkey": vectors}, dropout=self.dropout.p if self.training else 0.0,
                                 **kwargs)
        return self.linear_out(out.flatten(2)), weights


def _fastspeech2(module, replace):
    """FastSpeech2Conformer: Transformer-XL's key vectors."""
    @replace("FastSpeech2ConformerAttention.forward", _uses_relpos)
    def forward(self, original, hidden_states, attention_mask=None, pos_emb=None, output_attentions=False):
        query, key, value = (_heads(project(hidden_states), self.num_heads)
                             for project in (self.linear_q, self.linear_k, self.linear_v))
        vectors = _heads(self.linear_pos(pos_emb[0]), self.num_heads).contiguous()
        options = {"relkey": relpos.XL(vectors, self.pos_bias_u, self.pos_bias_v)}
        if attention_mask is not None:
            options["key_mask"] = attention_mask[:, 0] != 0
        out, weights = attention(self, query, key, value, None, is_causal=False, scaling=self.dim_key ** -0.5,
                                 position_bias=options, output_attentions=output_attentions,
                                 dropout=self.dropout.p if self.training else 0.0)
        return self.linear_out(out.flatten(2)), weights


class _Band:
    """A band of biases, which a model multiplies by a number of each query, its temperature. relpos.hf.attention reads
    `options`."""

    dtype = None

    def __init__(self, states, table, distance):
        """`distance` is that of the first key before the first query; the mask has it too, also while torch traces."""
        self.given = states, table, distance

    @property
    def options(self):
        states, table, distance = self.given
        return {"bias": relpos.Band(states, table), **({} if traces() else {"q_offset": int(distance)})}

    def float(self):
        return self

    def to(self, *_):
        return self

    def __mul__(self, temperature):
        states, *others = self.given
        return _Band((states.float() * temperature).to(states.dtype), *others)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):  # torch.compile calls it instead of __mul__
        if function not in (operator.mul, torch.Tensor.mul, torch.mul):
            return NotImplemented
        return cls.__mul__(*(args if isinstance(args[0], cls) else args[::-1]))


def _inkling(module, replace):
    """Inkling: a band of biases, from a vector of each query and a table of distances."""
    @replace("InklingRelativeLogits.forward", _uses_relpos)
    def forward(self, original, relative_states, query_positions, key_positions):
        return _Band(relative_states.transpose(1, 2), self.proj, query_positions[0] - key_positions[0])


def _inkling2(module, replace, name):
    """Inkling 2 and its loops: Inkling's band. Of the array of distances, forward makes the first row only."""
    @replace(name + "TextModel.forward", _uses_relpos, passes=True)
    def model(self, original, input_ids=None, attention_mask=None, position_ids=None, cache=None, inputs_embeds=None,
              use_cache=None, **kwargs):
        if input_ids is not None and inputs_embeds is None:
            input_ids, inputs_embeds = None, self.embed_tokens(input_ids)
        if inputs_embeds is not None and not traces():
            inputs_embeds.one_distance = True
        return original(self, input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
                        cache=cache, inputs_embeds=inputs_embeds, use_cache=use_cache, **kwargs)

    @replace("get_relative_distance", lambda inputs_embeds, *_, **__: hasattr(inputs_embeds, "one_distance"))
    def get_relative_distance(inputs_embeds, original, cache, is_sliding):
        return original(inputs_embeds[:, :1], cache, is_sliding)

    @replace(name + "RelativePositionBias.forward", _uses_relpos)
    def forward(self, original, hidden_states, relative_distance, position_ids):
        states = self.norm(self.linear(hidden_states).unflatten(-1, (self.num_heads, -1)), position_ids)
        return _Band(states.transpose(1, 2), self.proj, relative_distance[0, 0])


def _wavlm(module, replace):
    """WavLM: a table of buckets, times a gate of each query. This is a relpos.Band of one channel. A band has keys up
    to the position of the query, so query 0 gets that of the last key, and the band all offsets."""
    @replace("WavLMAttention.forward", _uses_relpos)
    def forward(self, original, hidden_states, attention_mask=None, position_bias=None, index=0, **others):
        query, key, value = (_heads(project(hidden_states), self.num_heads)
                             for project in (self.q_proj, self.k_proj, self.v_proj))
        length = hidden_states.shape[1]
        if position_bias is None:  # the first layer makes it, (H, 1, 2 length - 1), from the last key to the first
            offsets = torch.arange(length - 1, -length, -1, device=hidden_states.device)
            position_bias = self.rel_attn_embed(self._relative_positions_bucket(offsets)).t()[:, None].contiguous()
        gates = self.gru_rel_pos_linear(_heads(hidden_states, self.num_heads)).unflatten(-1, (2, 4)).sum(-1).sigmoid()
        gate = gates[..., :1] * (gates[..., 1:] * self.gru_rel_pos_const - 1) + 2
        options = {"bias": relpos.Band(gate, position_bias), "q_offset": length - 1}
        if attention_mask is not None:
            options["key_mask"] = attention_mask == 1
        out, weights = attention(self, query, key, value, None, is_causal=False, scaling=self.scaling,
                                 position_bias=options, dropout=self.dropout if self.training else 0.0, **others)
        # eager attention returns the mean in each head
        weights = None if weights is None else weights.mean(1, True).expand_as(weights)
        return self.out_proj(out.flatten(2)), weights, position_bias


def _wants_weights(module, replace, block):
    """Store output_attentions of a block as wants_weights of its attention module, because the block does not pass the
    argument on."""
    @replace(block + ".forward", lambda self, *_, **__: _uses_relpos(self.attn))
    def forward(self, original, *args, output_attentions=False, **kwargs):
        self.attn.wants_weights = output_attentions
        return original(self, *args, output_attentions=output_attentions, **kwargs)


def _gptj(module, replace, name):
    """GPT-J and CodeGen before 5.24: the model itself rotates queries and keys."""
    _wants_weights(module, replace, name + "Block")

    @replace(name + "Attention._attn", _uses_relpos)
    def _attn(self, original, query, key, value, attention_mask=None):
        out, weights = attention(self, query.to(value.dtype), key.to(value.dtype), value, attention_mask,
                                 scaling=1 / float(self.scale_attn), output_attentions=self.wants_weights,
                                 dropout=self.attn_dropout.p if self.training else 0.0)
        return out.transpose(1, 2), weights


def _roformer(module, replace):
    """RoFormer: the model itself rotates queries and keys, and values if rotary_value is set."""
    @replace("RoFormerSelfAttention.forward", _uses_relpos)
    def forward(self, original, hidden_states, attention_mask=None, sinusoidal_pos=None, encoder_hidden_states=None,
                cache=None,
                output_attentions=False, **others):
        if encoder_hidden_states is not None or cache is not None:
            raise ValueError(f'attn_implementation="{NAME}": RoFormer supports no cache and no encoder_hidden_states; '
                             f'use "eager"')
        query, key, value = (_heads(project(hidden_states), self.num_attention_heads)
                             for project in (self.query, self.key, self.value))
        if sinusoidal_pos is not None:
            rotated = self.apply_rotary_position_embeddings(sinusoidal_pos, query, key,
                                                            value if self.rotary_value else None)
            query, key, value = (*rotated, value)[:3]
        out, weights = attention(self, query, key, value, attention_mask, output_attentions=output_attentions,
                                 dropout=self.dropout.p if self.training else 0.0, **others)
        return out.flatten(2), weights


def _mpt(module, replace):
    """MPT: ALiBi with the model's slopes. The slope of a head is the difference of its last two biases."""
    _wants_weights(module, replace, "MptBlock")

    @replace("MptAttention.forward", _uses_relpos)
    def forward(self, original, hidden_states, position_bias, cache=None, attention_mask=None, **others):
        mixed = self.Wqkv(hidden_states)
        if self.clip_qkv:
            mixed = mixed.clamp(min=-self.clip_qkv, max=self.clip_qkv)
        query, key, value = (_heads(x, self.n_heads) for x in mixed.chunk(3, -1))
        key, value, norms = update(cache, key, value, self.layer_idx)
        slopes = position_bias[:, 0, -1] - position_bias[:, 0, -2]
        out, weights = attention(self, query, key, value, attention_mask, scaling=self.softmax_scale,
                                 output_attentions=self.wants_weights,
                                 position_bias={"bias": relpos.ALiBi(slopes), **norms},
                                 dropout=self.attn_dropout_p if self.training else 0.0, **others)
        return self.out_proj(out.flatten(2)), weights


def _falcon(module, replace):
    """Falcon: rotated queries and keys, or a bias per key. use_alibi is off during the call; otherwise the model would
    add the bias to its mask."""
    @replace("FalconModel.forward", _uses_relpos)
    def model(self, original, *args, **kwargs):
        self.use_alibi = False
        try:
            return original(self, *args, **kwargs)
        finally:
            self.use_alibi = self.config.alibi

    @replace("FalconAttention.forward", _given)
    def forward(self, original, hidden_states, alibi, attention_mask, position_ids=None, layer_past=None,
                use_cache=False,
                output_attentions=False, position_embeddings=None, **others):
        query, key, value = (x.transpose(1, 2) for x in self._split_heads(self.query_key_value(hidden_states)))
        if not self.config.alibi:
            query, key = module.apply_rotary_pos_emb(query, key, *position_embeddings)
        if layer_past is not None:
            key, value = layer_past.update(key, value, self.layer_idx)
        bias = {}
        if self.config.alibi:
            if not hasattr(attention_mask, "bias"):  # the first layer stores it for the others
                tokens = attention_mask.options.get("key_mask")
                tokens = torch.ones(len(key), key.shape[-2], dtype=torch.long) if tokens is None else tokens
                columns = module.build_alibi_tensor(tokens, self.num_heads, query.dtype).unflatten(0, (len(key), -1))
                attention_mask.bias = relpos.Dense(columns * self.inv_norm_factor)
            bias["bias"] = attention_mask.bias
        out, weights = attention(self, query, key, value, attention_mask, output_attentions=output_attentions,
                                 position_bias=bias,
                                 dropout=self.attention_dropout.p if self.training and bias else 0.0, **others)
        return self.dense(out.flatten(2)), weights


def _xlnet(module, replace):
    """XLNet: Transformer-XL's products. The model would convert padding and segments to N×N arrays; forward passes them
    to the layers as `tokens` instead. The arrays of a permutation, a target mapping, a causal model or more than
    MOST_SEGMENTS segments are used as given."""
    MOST_SEGMENTS = 8  # each segment is a channel of queries and keys

    @replace("XLNetModel.forward", _uses_relpos, passes=True)
    def model(self, original, input_ids=None, attention_mask=None, mems=None, perm_mask=None, target_mapping=None,
              token_type_ids=None,
              input_mask=None, inputs_embeds=None, **kwargs):
        given = input_ids, attention_mask, mems, perm_mask, target_mapping, token_type_ids, input_mask, inputs_embeds
        segments = 0 if token_type_ids is None or traces() else int(token_type_ids.max()) + 1
        if (any(x is not None for x in (perm_mask, target_mapping)) or self.attn_type != "bi"
            or segments > MOST_SEGMENTS or traces()
                or mems is not None and mems[0] is not None or attention_mask is not None and input_mask is not None):
            return original(self, *given, **kwargs)
        keys = (attention_mask == 1 if attention_mask is not None else input_mask == 0 if input_mask is not None
                else None)
        tokens = (None if keys is None or masks_nothing(keys) else keys,
                  torch.nn.functional.one_hot(token_type_ids.t(), segments)[:, :, None] if segments else None)
        layers = [x for x in self.modules() if isinstance(x, module.XLNetRelativeAttention)]
        for layer in layers:
            layer.tokens = tokens
        try:
            return original(self, input_ids, None, mems, None, None, None, None, inputs_embeds, **kwargs)
        finally:
            for layer in layers:
                layer.tokens = None, None

    @replace("XLNetRelativeAttention.rel_attn_core", _uses_relpos)
    def rel_attn_core(self, original, q_head, k_head_h, v_head_h, k_head_r, seg_mat=None, attn_mask=None,
                      output_attentions=False):
        lq, lk = len(q_head), len(k_head_h)
        vectors = k_head_r[1:lq + lk]
        if len(k_head_r) < lq + lk:  # keys after the query are masked
            vectors = torch.nn.functional.pad(vectors, (0, 0) * 3 + (0, lq + lk - len(k_head_r)))
        keys, segments = getattr(self, "tokens", (None, None))
        u, v = self.r_w_bias, self.r_r_bias
        # (L, B, 1, S): a channel of a key is 1 for its segment; a query has the bias of each segment there
        if segments is not None:
            alike, other = torch.einsum("ibnd,snd->ibns", q_head + self.r_s_bias, self.seg_embed).chunk(2, -1)
            q_head = torch.cat([q_head, torch.where(segments == 1, alike, other)], -1)
            k_head_h = torch.cat([k_head_h, segments.expand(-1, -1, self.n_head, -1).to(k_head_h.dtype)], -1)
            vectors, u, v = (torch.nn.functional.pad(x, (0, segments.shape[-1])) for x in (vectors, u, v))
        same = not (self.config.bi_data or self.training and self.dropout.p)  # the same vectors for every batch entry
        found = []
        for at in [slice(None)] if same else [slice(n, n + 1) for n in range(q_head.shape[1])]:
            query, key, value = (x[:, at].permute(1, 2, 0, 3) for x in (q_head, k_head_h, v_head_h))
            options = {"q_offset": lk - lq, "relkey": relpos.XL(vectors[:, at][:, 0].transpose(0, 1), u, v)}
            if keys is not None:
                options["key_mask"] = keys[at]
            if attn_mask is not None:
                options["mask"] = attn_mask[:, :, at].permute(2, 3, 0, 1) == 0
            if seg_mat is not None:
                of = torch.einsum("bnid,snd->bnis", query + self.r_s_bias[:, None], self.seg_embed) * self.scale
                options["bias"] = relpos.Dense(torch.einsum("ijbs,bnis->bnij", seg_mat[:, :, at], of))
            found.append(attention(self, query, key, value, None, is_causal=False, scaling=self.scale,
                                   position_bias=options,
                                   dropout=self.dropout.p if self.training else 0.0,
                                   output_attentions=output_attentions))
        out, weights = found[0] if same else map(torch.cat,
                                                 zip(*found)) if output_attentions else (
                                                     torch.cat([out for out, _ in found]), None)
        return (out.transpose(0, 1), weights.permute(2, 3, 0, 1)) if output_attentions else out.transpose(0, 1)


def _heads(x, count):
    """Reshape (..., L, H D) to (..., H, L, D)."""
    return x.unflatten(-1, (count, -1)).transpose(-2, -3)


def _deberta(module, replace):
    """DeBERTa: products of content and position, without N×N arrays of positions."""
    def parts(self, hidden_states, heads):
        query, key, value = heads(self.in_proj(hidden_states)).chunk(3, -1)
        query, value = query + heads(self.q_bias[None]), value + heads(self.v_bias[None])
        return query, key, value, len(self.pos_att_type)

    def positions(self, kinds):
        return ((self.pos_proj if "c2p" in kinds else None), (self.pos_q_proj if "p2c" in kinds else None),
                {"span": 0, "buckets": -1})

    _disentangled(module, replace, "DebertaEncoder", parts, positions)


def _deberta_v2(module, replace):
    """DeBERTa v2 and v3."""
    def parts(self, hidden_states, heads):
        query, key, value = (heads(project(hidden_states))
                             for project in (self.query_proj, self.key_proj, self.value_proj))
        return query, key, value, sum(kind in self.pos_att_type for kind in ("c2p", "p2c"))

    def positions(self, kinds):
        options = {"span": self.pos_ebd_size, "buckets": self.position_buckets}
        if self.share_att_key:
            return self.key_proj, self.query_proj, options
        return (self.pos_key_proj if "c2p" in kinds else None), (self.pos_query_proj if "p2c" in kinds
                                                                 else None), options

    _disentangled(module, replace, "DebertaV2Encoder", parts, positions)


def _disentangled(module, replace, encoder, parts, positions):
    """Replace the code that both versions of DeBERTa share. parts returns query, key, value and n, the number of
    products with positions; the scale is 1 / sqrt(head_dim (1 + n)). positions returns the projections of position
    vectors for keys and for queries, and options of relpos.Deberta."""
    @replace(encoder + ".get_rel_pos", lambda self, *_, **__: _uses_relpos(self.layer[0].attention))
    def get_rel_pos(self, original, hidden_states, query_states=None, relative_pos=None):
        if relative_pos is not None or query_states is not None:
            raise ValueError(f'attn_implementation="{NAME}": DeBERTa with relative_pos or query_states is not '
                             f'supported; use "eager"')

    @replace(encoder + ".get_attention_mask", lambda self, *_, **__: _uses_relpos(self.layer[0].attention))
    def get_attention_mask(self, original, attention_mask):
        batch, length = attention_mask.shape[0], attention_mask.shape[-1]
        given = attention_mask.bool()
        options = {"key_mask": given} if given.dim() <= 2 else {"mask": original(self, given)}
        return made((batch, 1, length, length), {} if masks_nothing(given) else options)

    @replace("DisentangledSelfAttention.forward", _given)
    def forward(self, original, hidden_states, attention_mask, output_attentions=False, query_states=None,
                relative_pos=None,
                rel_embeddings=None):
        def heads(x):
            return _heads(x, self.num_attention_heads)

        query, key, value, products = parts(self, hidden_states, heads)
        kinds, relkey = [kind for kind in ("c2p", "p2c") if kind in self.pos_att_type], {}
        if self.relative_attention and kinds:
            to_key, to_query, options = positions(self, kinds)
            span, length, buckets = options["span"] or self.max_relative_positions, query.shape[-2], options["buckets"]
            vectors = self.pos_dropout(rel_embeddings)[:2 * span]
            # only these vectors are used; each has one distance
            if not traces() and length < span and (buckets < 0 or length <= buckets // 2):
                vectors, options["span"] = vectors[span - length:span + length], length
            relkey["relkey"] = relpos.Deberta(
                heads(to_key(vectors)) if "c2p" in kinds else None,
                heads(to_query(vectors)) if "p2c" in kinds else None,
                max_position=self.max_relative_positions, **options)
        out, weights = attention(self, query, key, value, attention_mask, position_bias=relkey,
                                 output_attentions=output_attentions,
                                 scaling=(query.shape[-1] * (1 + products)) ** -0.5,
                                 dropout=self.dropout.p if self.training else 0.0)
        return out.flatten(2), weights


def _longt5(module, replace):
    """LongT5 with local attention: a window of local_radius keys on each side."""
    _t5(module, replace, "LongT5Attention")

    @replace("LongT5Stack.forward", lambda self, *_, **__: _uses_relpos(self) and not self.is_decoder, passes=True)
    def stack(self, original, input_ids=None, attention_mask=None, encoder_hidden_states=None,
              encoder_attention_mask=None,
              inputs_embeds=None, **kwargs):
        batch, length = (input_ids if input_ids is not None else inputs_embeds).shape[:2]
        options = {"window": (self.local_radius, self.local_radius)}
        if attention_mask is not None:
            options["key_mask"] = attention_mask.bool()
        return original(self, input_ids, made((batch, 1, length, length), options), encoder_hidden_states,
                        encoder_attention_mask,
                        inputs_embeds, **kwargs)

    @replace("_get_local_attention_mask", _given)
    def _get_local_attention_mask(attention_mask, original, block_len, device):
        return attention_mask

    @replace("LongT5LocalAttention.forward", _given)
    def forward(self, original, hidden_states, mask=None, position_bias=None, output_attentions=False):
        query, key, value = (project(hidden_states).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
                             for project in (self.q, self.k, self.v))
        position_bias = _t5_bias(self, self.is_decoder) if position_bias is None else position_bias
        out, weights = attention(self, query, key, value, mask, scaling=1.0, position_bias=position_bias,
                                 dropout=self.dropout if self.training else 0.0, output_attentions=output_attentions)
        found = self.o(out.flatten(2)), position_bias
        return (*found, weights) if output_attentions else found


# Adapters by the file name of the model's module, without "modeling_".
ADAPTERS = {
    **{file: Adapter(partial(_t5, name=name)) for file, name in (
        ("t5", "T5Attention"), ("mt5", "MT5Attention"), ("umt5", "UMT5Attention"), ("pop2piano", "Pop2PianoAttention"),
        ("switch_transformers", "SwitchTransformersAttention"))},
    "pix2struct": Adapter(_pix2struct),
    "longt5": Adapter(_longt5, lacks=lambda config: config.encoder_attention_type != "local"),
    "mpnet": Adapter(_mpnet, computes="MPNetSelfAttention"),
    "layoutlmv3": Adapter(_layoutlmv3),
    "bloom": Adapter(_bloom, computes="BloomAttention"),
    "mpt": Adapter(_mpt, computes="MptAttention"),
    "falcon": Adapter(_falcon, computes="FalconAttention"),
    "gptj": Adapter(partial(_gptj, name="GPTJ"), computes="GPTJAttention"),
    "codegen": Adapter(partial(_gptj, name="CodeGen"), computes="CodeGenAttention"),
    "roformer": Adapter(_roformer, computes="RoFormerSelfAttention", lacks=lambda config: config.is_decoder),
    "swin": Adapter(_swin),
    "beit": Adapter(_beit),
    "swinv2": Adapter(partial(_swinv2, name="Swinv2"), computes="Swinv2SelfAttention"),
    "swin2sr": Adapter(partial(_swinv2, name="Swin2SR"), computes="Swin2SRSelfAttention"),
    "donut_swin": Adapter(partial(_swin_copy, name="DonutSwin"), computes="DonutSwinSelfAttention"),
    "maskformer_swin": Adapter(partial(_swin_copy, name="MaskFormerSwin"), computes="MaskFormerSwinSelfAttention"),
    "clap": Adapter(partial(_swin_copy, name="ClapAudio"), computes="ClapAudioSelfAttention"),
    "vitdet": Adapter(_vitdet, computes="VitDetAttention"),
    "sam": Adapter(partial(_sam, names=("SamVisionAttention", "SamVisionSdpaAttention")),
                   computes="SamVisionAttention"),
    "sam_hq": Adapter(partial(_sam, names=("SamHQVisionAttention", "SamHQVisionSdpaAttention")),
                      computes="SamHQVisionAttention"),
    "siglip2": Adapter(_siglip2, computes="Siglip2MultiheadAttentionPoolingHead"),
    "gemma4": Adapter(_gemma4),
    "deberta": Adapter(_deberta, computes="DisentangledSelfAttention",
                       lacks=lambda config: getattr(config, "talking_head", False)),
    "deberta_v2": Adapter(_deberta_v2, computes="DisentangledSelfAttention"),
    "wav2vec2_conformer": Adapter(partial(_wav2vec2, name="Wav2Vec2ConformerSelfAttention")),
    "wav2vec2_bert": Adapter(_wav2vec2_bert),
    "parakeet": Adapter(_parakeet),
    "nemotron_asr_streaming": Adapter(_nemotron),
    "seamless_m4t": Adapter(partial(_wav2vec2, name="SeamlessM4TConformerSelfAttention")),
    "seamless_m4t_v2": Adapter(_seamless_v2),
    "fastspeech2_conformer": Adapter(_fastspeech2),
    "inkling": Adapter(_inkling),
    "inkling2": Adapter(partial(_inkling2, name="Inkling2")),
    "inkling2_loop": Adapter(partial(_inkling2, name="Inkling2Loop")),
    "wavlm": Adapter(_wavlm, computes="WavLMAttention"),
    "xlnet": Adapter(_xlnet, computes="XLNetRelativeAttention"),
}
