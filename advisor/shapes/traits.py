"""What a config does not say: class defaults per family (tying, norms, biases), one row each.

Checked against the classes of transformers 5.24 on the meta device (tests/advisor/shapes). A family
that is missing here is read as a Llama-like decoder with bounds and `known=False`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traits:
    gated: bool = True  # SwiGLU-like MLP: three matrices
    tied: bool = False  # class default of tie_word_embeddings
    norm: str = "rms"  # rms and layer_nobias: one vector; layer: two
    norms: int = 2  # per layer, of width hidden_size
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    qk_norm: str = ""  # "head": one vector per projection; "full": over all heads
    gated_query: bool = False  # query projection also yields the output gate
    bias_key: str = "attention_bias"  # config key that turns qkv and output bias on
    sinks: bool = False
    mlp_factor: int | None = None  # MLP width over hidden when the key is missing
    mlp_halved: bool = False  # the config counts both gate halves in one number
    window: str = ""  # how sliding layers are placed when layer_types is missing
    vocab: int | None = None
    positions: int | None = None  # extra rows of a learned position table; None: no table
    embed_norm: bool = False
    single_kv: bool = False  # multi_query flag decides the KV heads


_GPT = Traits(
    gated=False, tied=True, norm="layer", qkv_bias=True, o_bias=True, mlp_bias=True, mlp_factor=4
)

TRAITS: dict[str, Traits] = {
    "llama": Traits(),
    "mistral": Traits(window="all"),
    "ministral": Traits(window="all"),
    "mixtral": Traits(window="all"),
    "qwen": Traits(qkv_bias=True, mlp_halved=True),
    "qwen2": Traits(qkv_bias=True, window="late"),
    "qwen2_moe": Traits(qkv_bias=True, window="late"),
    "qwen2_vl": Traits(qkv_bias=True),
    "qwen2_5_vl": Traits(qkv_bias=True),
    "qwen3": Traits(qk_norm="head", window="late"),
    "qwen3_moe": Traits(qk_norm="head"),
    "qwen3_vl": Traits(qk_norm="head"),
    "qwen3_vl_moe": Traits(qk_norm="head"),
    "qwen3_next": Traits(qk_norm="head", gated_query=True),
    "qwen3_5": Traits(qk_norm="head", gated_query=True),
    "qwen3_5_moe": Traits(qk_norm="head", gated_query=True),
    "smollm3": Traits(tied=True),
    "cohere": Traits(norm="layer_nobias", norms=1, tied=True),
    "cohere2": Traits(norm="layer_nobias", norms=1, tied=True, window="pattern4"),
    "gemma": Traits(tied=True, vocab=256_000),
    "gemma2": Traits(tied=True, norms=4, window="alternate", vocab=256_000),
    "gemma3": Traits(tied=True, norms=4, qk_norm="head", window="pattern6", vocab=262_208),
    "gemma4": Traits(tied=True, norms=4, qk_norm="head", window="pattern6", vocab=262_144),
    "phi3": Traits(window="all"),
    "phimoe": Traits(norm="layer", head_bias=True),
    "phi": Traits(
        gated=False,
        norm="layer",
        norms=1,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        head_bias=True,
        mlp_factor=4,
    ),
    "gpt2": Traits(
        gated=False,
        tied=True,
        norm="layer",
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        mlp_factor=4,
        positions=0,
    ),
    "gpt_bigcode": Traits(
        gated=False,
        tied=True,
        norm="layer",
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        mlp_factor=4,
        positions=0,
        single_kv=True,
    ),
    "gpt_neox": Traits(
        gated=False, norm="layer", qkv_bias=True, o_bias=True, mlp_bias=True, mlp_factor=4
    ),
    "bloom": Traits(
        gated=False,
        tied=True,
        norm="layer",
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        mlp_factor=4,
        embed_norm=True,
    ),
    "opt": Traits(
        gated=False,
        tied=True,
        norm="layer",
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        mlp_factor=4,
        positions=2,
    ),
    "mpt": Traits(gated=False, tied=True, norm="layer_nobias", mlp_factor=4),
    "falcon": Traits(
        gated=False, tied=True, norm="layer", norms=1, mlp_factor=4, single_kv=True, bias_key="bias"
    ),
    "starcoder2": Traits(
        gated=False,
        tied=True,
        norm="layer",
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        window="all",
    ),
    "stablelm": Traits(norm="layer", bias_key="use_qkv_bias"),
    "exaone": Traits(),
    "exaone4": Traits(qk_norm="head"),
    "internlm2": Traits(bias_key="bias"),
    "internlm3": Traits(),
    "baichuan": Traits(),
    "mimo": Traits(qkv_bias=True, bias_key=""),
    "granite": Traits(tied=False),
    "olmo": Traits(norm="none"),
    "olmo2": Traits(qk_norm="full"),
    "olmo3": Traits(qk_norm="full"),
    "glm": Traits(qkv_bias=True, bias_key=""),
    "glm4": Traits(qkv_bias=True, norms=4, bias_key=""),
    "glm4_moe": Traits(qkv_bias=True, bias_key=""),
    "chatglm": Traits(qkv_bias=True),
    "molmo": Traits(qkv_bias=True, mlp_halved=True),
    "dbrx": Traits(norm="layer_nobias"),
    "minimax_m2": Traits(qk_norm="full"),
    "gpt_oss": Traits(
        qkv_bias=True,
        o_bias=True,
        router_bias=True,
        expert_bias=True,
        sinks=True,
        window="alternate",
    ),
    "llama4": Traits(window="chunked"),
    "mllama": Traits(),
    "nemotron_nas": Traits(),
    "deepseek_v2": Traits(),
    "deepseek_v3": Traits(),
    "deepseek_v32": Traits(),
    "kimi_k2": Traits(),
    "glm_moe_dsa": Traits(),
    "glm4_moe_lite": Traits(),
    "minicpm3": Traits(tied=True),
    "jamba": Traits(),
    "mamba": Traits(tied=True),
    "falcon_mamba": Traits(tied=True),
    "mamba2": Traits(),
    "nemotron_h": Traits(gated=False),
    "falcon_h1": Traits(),
    "deepseek_v4": Traits(),
}

# model_type of a config (or of its text part) -> row above
SYNONYMS: dict[str, str] = {
    "mixformer-sequential": "phi",
    "phi-msft": "phi",
    "refinedweb": "falcon",
    "refinedwebmodel": "falcon",
    "nemotron-nas": "nemotron_nas",
    "kimi_k25": "kimi_k2",
    "kimi_vl": "deepseek_v3",
    "deepseek_vl_v2": "deepseek_v2",
    "deepseek": "deepseek_v2",
    "yi": "llama",
    "aquila": "llama",
    "deci": "nemotron_nas",
    "minimax": "minimax_m2",
    "llava": "llama",
    "mistral3": "mistral",
    "qwen3_omni_moe": "qwen3_moe",
}


def family_of(model_type: str) -> str:
    """The row name for a config's model_type: `gemma3_text` and `gemma3` are one family."""
    name = model_type.lower().strip()
    for suffix in ("_text_model", "_text", "_language_model"):
        name = name.removesuffix(suffix)
    return SYNONYMS.get(name, name)


# Families that are not causal language models: refused with a sentence.
ENCODERS = frozenset(
    [
        "bert",
        "roberta",
        "xlm-roberta",
        "distilbert",
        "deberta",
        "deberta-v2",
        "electra",
        "albert",
        "camembert",
        "mpnet",
        "modernbert",
        "nomic_bert",
        "new",
        "eurobert",
        "vit",
        "clip",
        "clip_vision_model",
        "siglip",
        "siglip2",
        "dinov2",
        "wav2vec2",
        "hubert",
        "wavlm",
        "layoutlm",
        "layoutlmv3",
        "longformer",
        "big_bird",
        "esm",
        "xlnet",
        "ernie",
        "convnext",
        "swin",
        "detr",
    ]
)
ENCODER_DECODERS = frozenset(
    [
        "t5",
        "mt5",
        "umt5",
        "bart",
        "mbart",
        "pegasus",
        "marian",
        "m2m_100",
        "whisper",
        "blenderbot",
        "led",
        "prophetnet",
        "vision-encoder-decoder",
        "encoder-decoder",
        "nllb-moe",
        "seamless_m4t",
        "speecht5",
        "longt5",
        "florence2",
    ]
)
