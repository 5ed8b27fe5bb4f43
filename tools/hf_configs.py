"""Settings of single models for tools/hf_models.py: config attributes that make a model small or complete, and inputs.

SETTINGS maps paths in the config of a model to values. INPUTS has the arguments of its forward method:

    (shape...)                        random numbers
    ("ones" or "zeros", shape...)     an integer tensor
    "ids"                             token numbers
    ("ids", shape...)                 token numbers of another shape
    ("ids", token, count)             token numbers that begin with `count` copies of an image token
    a list                            the tensor with these elements

SPDX-License-Identifier: Apache-2.0"""

SAM = {"prompt_encoder_config.image_embedding_size": 4, "prompt_encoder_config.image_size": 64,
       "vision_config.window_size": 3,
       "vision_config.global_attn_indexes": [1], "vision_config.output_channels": 64, "vision_config.num_pos_feats": 32,
       "prompt_encoder_config.hidden_size": 64, "mask_decoder_config.hidden_size": 64}
SERIES = {"prediction_length": 8, "context_length": 16, "num_time_features": 0}
DETR = {"decoder_in_channels": [64] * 3, "num_queries": 10}
SWIN = {"backbone_config.num_layers": 4}
HIERA = {"backbone_config.image_size": [64, 64], "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]]}
MROPE = "rope_parameters.mrope_section"
SHARED = {"num_kv_shared_layers": 0, "vocab_size_per_layer_input": 120, "hidden_size_per_layer_input": 16}


def within(part, settings):
    return {f"{part}.{key}": value for key, value in settings.items()}


SETTINGS = {
    "audioflamingo3_encoder": {"max_source_positions": 100}, "autoformer": SERIES, "informer": SERIES,
    "time_series_transformer": SERIES,
    "bailing_hybrid": {"n_group": 1, "topk_group": 1, "num_group": 1},
    "bamba": {"attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_head": 32},
    "blip-2": {"image_token_id": 5, "image_token_index": 5, "num_query_tokens": 4},
    "blt": {"encoder_hash_byte_group_vocab": 100, "encoder_config.hidden_size_global": 64,
            "decoder_config.hidden_size_global": 64},
    "chameleon": {"vocabulary_map": {"<image>": 5}}, "cohere_compass_text": {"layer_types": ["sliding_attention"] * 2},
    "cohere_compass": {"text_config.layer_types": ["sliding_attention"] * 2},
    "csm": {"codec_config.upsample_groups": 64},
    "d_fine": DETR, "rt_detr": DETR, "rt_detr_v2": DETR, "deimv2": DETR, "pp_doclayout_v4": DETR,
    "dbrx": {"attn_config.rope_theta": 1e4},
    "deepseek_v2": {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "diffusion_gemma": {"text_config.num_experts": 4},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "emu3": {"vocabulary_map": {"<|extra_200|>": 5, "<image>": 6},
             "text_config.vocabulary_map": {"<|extra_200|>": 5, "<image>": 6}},
    "ernie4_5_vl_moe": {"text_config." + MROPE: [2, 2, 4]},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16},
    "fastspeech2_conformer_with_hifigan": {"vocoder_config.model_in_dim": 80,
                                           "vocoder_config.upsample_initial_channel": 32},
    "florence2": {"vision_config.embed_dim": [32, 32, 64, 64], "vision_config.projection_dim": 64},
    "gemma3n_text": SHARED, "gemma4_text": SHARED, "gemma4": within("text_config", SHARED),
    "glm4v_moe": {"text_config." + MROPE: [2, 1, 1]}, "glm4v_moe_text": {MROPE: [2, 1, 1]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "layers_block_type": ["mamba", "attention"]},
    "grounding-dino": SWIN, "mm-grounding-dino": SWIN, "oneformer": SWIN, "hrm_text": {"use_cache": False},
    "instructblip": {"image_token_id": 5, "image_token_index": 5, "num_query_tokens": 4},
    "janus": {"vq_config.base_channels": 32, "vq_config.num_embeddings": 64}, "kosmos-2": {"latent_query_num": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]}, "longcat_flash": {"qk_head_dim": 32, "zero_expert_num": 4},
    "mamba2": {"num_heads": 8}, "mimi_decoder": {"upsample_groups": 64}, "mimi_encoder": {"upsample_groups": 64},
    "mistral4": {"qk_rope_head_dim": 8, "qk_nope_head_dim": 8}, "moonshine_streaming": {"num_key_value_heads": 4},
    "nemotron_h": {"n_groups": 2, "layers_block_type": ["mamba", "attention"]},
    "nemotron_h_omni": {"text_config.n_groups": 2, "text_config.layers_block_type": ["mamba", "attention"]},
    "perceiver": {"d_latents": 64, "num_latents": 16, "num_self_attends_per_block": 2, "d_model": 64},
    "pocket_tts_audio_tokenizer": {"upsample_groups": 64},
    "pocket_tts_audio_tokenizer_decoder": {"upsample_groups": 64},
    "sam": SAM, "sam_hq": {**SAM, "mask_decoder_config.vit_dim": 64}, "sam2_hiera_det_model": {"image_size": [64, 64]},
    "sam2_vision_model": HIERA, "sam2": {**within("vision_config", HIERA), "prompt_encoder_config.image_size": 64},
    "seggpt": {"image_size": [64, 32], "pretrain_image_size": 32}, "step3p7": {"text_config.sliding_window": 512},
    "t5gemma2_encoder": {"text_config.dropout_rate": 0.0}, "textnet": {"image_size": [64, 64]},
    "tvp": {"max_img_size": 64, "visual_prompt_size": 16, "num_frames": 4}, "xmod": {"default_language": "en_XX"},
    "zamba2": {"mamba_headdim": 32, "layers_block_type": ["mamba", "hybrid"]},
}

TEXT = {"input_ids": "ids", "attention_mask": ("ones", 2, 12)}
TIMES = {"past_values": (2, 23), "past_time_features": (2, 23, 0), "past_observed_mask": [[1.0] * 23] * 2,
         "future_values": (2, 8),
         "future_time_features": (2, 8, 0)}
GRID = {"grid_thw": [[1, 4, 4], [1, 4, 8]]}
STRIP = {"pixel_values": (2, 3, 16, 256), "target_sizes": [[4, 4], [4, 4]]}
SOUND = {"input_features": (2, 128, 200), "input_features_mask": ("ones", 2, 200)}
PAIR = {"pixel_values": (2, 2, 3, 64, 64)}
QUERIED = {"pixel_values": (2, 3, 56, 56), "input_ids": ("ids", 5, 4), "attention_mask": ("ones", 2, 12)}

INPUTS = {
    "audioflamingo3_encoder": SOUND, "qwen3_asr_encoder": SOUND, "autoformer": TIMES, "informer": TIMES,
    "time_series_transformer": TIMES,
    "blip-2": QUERIED, "instructblip": {**QUERIED, "qformer_input_ids": "ids",
                                        "qformer_attention_mask": ("ones", 2, 12)},
    "blip_2_qformer": {"query_embeds": (2, 6, 64), "encoder_hidden_states": (2, 5, 64)},
    "clap": {**TEXT, "input_features": (2, 1, 1001, 64)}, "clvp": {**TEXT, "input_features": (2, 80, 30)},
    "decision_transformer": {"states": (2, 6, 17), "actions": (2, 6, 4), "rewards": (2, 6, 1),
                             "returns_to_go": (2, 6, 1),
                             "timesteps": [[0, 1, 2, 3, 4, 5]] * 2, "attention_mask": ("ones", 2, 6)},
    "lightglue": PAIR, "gemma3n_audio": {"audio_mel": (2, 40, 128), "audio_mel_mask": [[False] * 40] * 2},
    "gemma4_audio": {"input_features": (2, 40, 128), "attention_mask": [[True] * 40] * 2},
    "gemma4_vision": {"pixel_values": (2, 36, 768), "pixel_position_ids": [[[n % 6, n // 6] for n in range(36)]] * 2},
    "granite_speech5_ctc": {"input_features": (2, 50, 320)},
    "granite_speech5_encoder": {"input_features": (2, 50, 320)},
    "idefics": {**TEXT, "pixel_values": (2, 1, 3, 56, 56), "image_attention_mask": ("ones", 2, 12, 1)},
    "inkling2_vision": {"pixel_values": (48, 1200), "image_grid_thw": GRID["grid_thw"]},
    "kimi_k25_vision": {"pixel_values": (48, 3, 14, 14), **GRID},
    "kosmos-2": {**TEXT, "pixel_values": (2, 3, 56, 56), "image_embeds_position_mask": [[1] * 4 + [0] * 8] * 2},
    "kyutai_speech_to_text": {"input_ids": ("ids", 2, 12, 33)}, "minicpm_ocr_vision": STRIP,
    "minicpmv4_7_vision": STRIP,
    "muse_glimmer_assistant": {"noise_embeds": (2, 8, 64), "context_hidden_states": (2, 12, 128)},
    "muse_glimmer_vision": {"pixel_values": (48, 1176), **GRID},
    "muse_spark_vision": {"pixel_values": (48, 1176), **GRID},
    "muse_spark_audio": {"input_values": (2, 3840)}, "nemotron3_5_transcribe_audio": {"input_features": (2, 48, 128)},
    "perceiver": {"inputs": (2, 12, 64)},
    "seggpt": {key: (2, 3, 32, 32) for key in ("pixel_values", "prompt_pixel_values", "prompt_masks")},
    "speecht5": {"input_values": (2, 12, 64), "decoder_input_values": (2, 12, 64)},
    "timesfm": {"past_values": (2, 512), "past_values_padding": ("zeros", 2, 512), "freq": ("zeros", 2, 1)},
    "timesfm2_5": {"past_values": (2, 512), "past_values_padding": ("zeros", 2, 512)},
    "tvp": {**TEXT, "pixel_values": (2, 4, 3, 64, 64)},
    "videoprism": {**TEXT, "pixel_values_videos": (2, 16, 3, 64, 64)},
    "voxtral_realtime": {**TEXT, "input_features": (2, 128, 96)},
    "xclip": {**TEXT, "pixel_values": (2, 8, 3, 128, 128)},
}


def complete(config, name):
    """Set the config attributes listed in SETTINGS[name]."""
    for path, value in SETTINGS.get(name, {}).items():
        *parts, last = path.split(".")
        at = config
        for part in parts:
            at = at[part] if isinstance(at, dict) else getattr(at, part)
        if isinstance(at, dict):
            at[last] = value
        else:
            setattr(at, last, value)


def inputs(name, ids, torch, g):
    """Return the input tensors described by INPUTS[name], or None if INPUTS has no such entry."""
    def made(given):
        if isinstance(given, list):
            return torch.tensor(given)
        if given == "ids":
            return ids
        if given[0] == "ids" and len(given) == 3:
            return torch.cat([torch.full_like(ids[:, :given[2]], given[1]), ids[:, given[2]:]], 1)
        if given[0] == "ids":
            return torch.randint(20, 90, given[1:], generator=g)
        if isinstance(given[0], str):
            return getattr(torch, given[0])(given[1:], dtype=torch.long)
        return torch.randn(given, generator=g, dtype=torch.float64)

    return {key: made(given) for key, given in INPUTS[name].items()} if name in INPUTS else None
