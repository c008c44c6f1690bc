"""The tokenizer classes of `transformers`: what each makes of a `tokenizer.json` and of `tokenizer_config.json`.

`PreTrainedTokenizerFast` runs `tokenizer.json` as it is. Since version 5, classes with a name of their own take its
vocabulary, merges and added tokens alone: normalizer, pre-tokenizer, decoder and often the post-processor are built
anew, with settings of `tokenizer_config.json`. Parts are JSON of the `tokenizers` library, as in `tokenizer.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from headwise.errors import UserError

Json = dict[str, Any]
UNDERLINE = "▁"
VERBATIM = "PreTrainedTokenizerFast"
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MBART_LANGUAGES = (
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX",
    "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN",
    "zh_CN",
)  # fmt: skip
MBART50_LANGUAGES = (
    *MBART_LANGUAGES, "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK",
    "ml_IN", "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN", "th_TH", "tl_XX",
    "uk_UA", "ur_PK", "xh_ZA", "gl_ES", "sl_SI",
)  # fmt: skip


class Inputs(NamedTuple):
    """What a class builds its pipeline from."""

    settings: Mapping[str, Any]  # of tokenizer_config.json, with the defaults of the class
    tokens: Mapping[str, str | None]  # named special tokens
    pieces: Sequence[tuple[str, float]]  # the vocabulary of a unigram model
    charsmap: Json | None  # SentencePiece's normalizer in tokenizer.json


class Pipeline(NamedTuple):
    """The parts of a `tokenizer.json` that a class builds."""

    normalizer: Json | None
    pre_tokenizer: Json
    decoder: Json
    model: Json  # settings of the model beside the vocabulary


Template = tuple[str, str]  # of one text (A) and of two (A, B): special tokens by role, with `:1` for the second type
NONE: Template = ("A", "A B:1")
CLS_SEP: Template = ("cls A sep", "cls A sep B:1 sep:1")
CLS_SEP_SEP: Template = ("cls A sep", "cls A sep sep B sep")


@dataclass(frozen=True)
class TokenizerClass:
    """A tokenizer class. Without `build`, the pipeline is that of `tokenizer.json`."""

    tokens: Mapping[str, str | None] = field(default_factory=dict)  # default special tokens, by role
    model: str = ""  # the type that its model must have
    build: Callable[[Inputs], Pipeline] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # keys that change its pipeline, and their defaults
    template: Template | None = None  # None: that of tokenizer.json
    fallback: Template = NONE  # where tokenizer.json has none either
    list_extra_tokens: Callable[[Mapping[str, Any], list[Any]], list[Any]] = lambda settings, named: named  # special
    token_flags: Mapping[str, Json] = field(default_factory=dict)  # flags of default tokens, by role
    token_types: bool = False  # returns them, unless `model_input_names` says otherwise
    adds_again: Literal["", "all", "unnamed"] = ""  # special tokens that it adds a second time, without flags


def sequence(kind: str, *parts: Json) -> Json:
    return {"type": "Sequence", kind: list(parts)}


def replace(pattern: str, content: str, regex: bool = False) -> Json:
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def byte_level(add_prefix_space: bool = True, use_regex: bool = True) -> Json:
    return {
        "type": "ByteLevel",
        "add_prefix_space": bool(add_prefix_space),
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def metaspace(prepend_scheme: str, split: bool = True) -> Json:
    return {"type": "Metaspace", "replacement": UNDERLINE, "prepend_scheme": prepend_scheme, "split": split}


def bpe(**settings: Any) -> Json:
    plain = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
    }  # fmt: skip
    return plain | settings


def unigram(unk_id: int) -> Json:
    return {"type": "Unigram", "unk_id": unk_id, "byte_fallback": False}


def find_unknown(inputs: Inputs, default: int | None, start: int = 0) -> int:
    """The id of the unknown token among pieces with a score of zero."""
    pieces = list(enumerate(inputs.pieces))[start:]
    found = next((number for number, piece in pieces if tuple(piece) == (inputs.tokens["unk"], 0.0)), default)
    if found is None:
        raise UserError(f"unk_token: {inputs.tokens['unk']} is no piece of tokenizer.json with score 0; correct it")
    return found


def build_bert(inputs: Inputs) -> Pipeline:
    """BERT, Funnel."""
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": inputs.settings.get("clean_text", True),
        "handle_chinese_chars": inputs.settings["tokenize_chinese_chars"],
        "strip_accents": inputs.settings["strip_accents"],
        "lowercase": inputs.settings["do_lower_case"],
    }
    model = {
        "type": "WordPiece",
        "unk_token": inputs.tokens["unk"],
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    decoder = {"type": "WordPiece", "prefix": inputs.settings.get("wordpieces_prefix", "##"), "cleanup": True}
    return Pipeline(normalizer, {"type": "BertPreTokenizer"}, decoder, model)


def build_byte_bpe(inputs: Inputs) -> Pipeline:
    """GPT-2, RoBERTa, DeBERTa."""
    return Pipeline(None, byte_level(inputs.settings["add_prefix_space"]), byte_level(), bpe())


def build_gpt_neox(inputs: Inputs) -> Pipeline:
    pre_tokenizer = byte_level(inputs.settings["add_prefix_space"])
    return Pipeline({"type": "NFC"}, pre_tokenizer, byte_level(), bpe())


def build_qwen2(inputs: Inputs) -> Pipeline:
    split = {"type": "Split", "pattern": {"Regex": QWEN_SPLIT}, "behavior": "Isolated", "invert": False}
    bytes_only = byte_level(inputs.settings["add_prefix_space"] or False, use_regex=False)
    return Pipeline({"type": "NFC"}, sequence("pretokenizers", split, bytes_only), byte_level(), bpe())


def build_openai_gpt(inputs: Inputs) -> Pipeline:
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    }
    model = bpe(end_of_word_suffix="</w>", unk_token=inputs.tokens["unk"])
    return Pipeline(normalizer, {"type": "BertPreTokenizer"}, {"type": "BPEDecoder", "suffix": "</w>"}, model)


def build_llama(inputs: Inputs) -> Pipeline:
    prefix = inputs.settings["add_prefix_space"]
    prefix = True if prefix is None else prefix
    scheme = ("always" if inputs.settings["legacy"] else "first") if prefix else "never"
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    decoder = sequence("decoders", replace(UNDERLINE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}, *strip)
    model = bpe(continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=True, byte_fallback=True)
    return Pipeline(None, metaspace(scheme, split=False), decoder, model)


def build_reformer(inputs: Inputs) -> Pipeline:
    steps = [inputs.charsmap, replace(" {2,}", " ", regex=True)] if inputs.charsmap else []
    model = bpe(continuing_subword_prefix=None, end_of_word_suffix=None, unk_token=inputs.tokens["unk"], fuse_unk=True)
    normalizer = sequence("normalizers", *steps) if steps else None
    return Pipeline(normalizer, metaspace("always"), metaspace("always"), model)


def build_words_pipeline(normalizer: Json | None, scheme: str, unk_id: int) -> Pipeline:
    """Unigram pieces of words between spaces."""
    pre_tokenizer = sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace(scheme))
    return Pipeline(normalizer, pre_tokenizer, metaspace(scheme), unigram(unk_id))


def build_t5(inputs: Inputs) -> Pipeline:
    return build_words_pipeline(inputs.charsmap, "always", 2)


def build_xlm_roberta(inputs: Inputs) -> Pipeline:
    return build_words_pipeline(inputs.charsmap, "always" if inputs.settings["add_prefix_space"] else "never", 3)


def build_mbart(inputs: Inputs) -> Pipeline:
    return build_words_pipeline(None, "always", 3)


def build_albert(inputs: Inputs) -> Pipeline:
    steps = [replace("``", '"'), replace("''", '"')]
    if not inputs.settings["keep_accents"]:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if inputs.settings["do_lower_case"]:
        steps.append({"type": "Lowercase"})
    steps += [inputs.charsmap] if inputs.charsmap else []
    scheme = "always" if inputs.settings["add_prefix_space"] else "never"
    return build_words_pipeline(sequence("normalizers", *steps), scheme, 1)


def build_mbart50(inputs: Inputs) -> Pipeline:
    steps = [*([inputs.charsmap] if inputs.charsmap else []), replace(" {2,}", " ", regex=True)]
    return Pipeline(sequence("normalizers", *steps), metaspace("always"), metaspace("always"), unigram(3))


def build_pegasus(inputs: Inputs) -> Pipeline:
    first = inputs.charsmap or replace(r"\n", " ", regex=True)
    normalizer = sequence("normalizers", first, replace(" {2,}", " ", regex=True))
    return Pipeline(normalizer, metaspace("always"), metaspace("always"), unigram(find_unknown(inputs, None, 1)))


def build_big_bird(inputs: Inputs) -> Pipeline:
    strip = {"type": "Strip", "strip_left": False, "strip_right": False}
    normalizer = sequence("normalizers", strip, replace(" {2,}", UNDERLINE, regex=True))
    spaces = metaspace("always" if inputs.settings["add_prefix_space"] else "never")
    return Pipeline(normalizer, spaces, spaces, unigram(find_unknown(inputs, 100)))


def build_deberta_v2(inputs: Inputs) -> Pipeline:
    settings = inputs.settings
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    steps = [replace(r"\s{2,}|[\n\r\t]", " ", regex=True), {"type": "NFC"}, strip]
    steps = [{"type": "Lowercase"}, *steps] if settings["do_lower_case"] else steps
    spaces = metaspace("always" if settings["add_prefix_space"] else "first")
    splits = [{"type": "Punctuation", "behavior": "Isolated"}] if settings["split_by_punct"] else []
    unk_id = find_unknown(inputs, settings["unk_id"])
    return Pipeline(
        sequence("normalizers", *steps), sequence("pretokenizers", *splits, spaces), spaces, unigram(unk_id)
    )


def list_t5_sentinels(settings: Mapping[str, Any], named: list[Any]) -> list[Any]:
    has_sentinels = any("<extra_id_" in str(token) for token in named)
    return named if has_sentinels else [*named, *(f"<extra_id_{number}>" for number in range(settings["extra_ids"]))]


def list_pegasus_tokens(settings: Mapping[str, Any], named: list[Any]) -> list[Any]:
    """The class leaves out the tokens that a file names."""
    mask = settings["mask_token_sent"]
    masks = [] if mask is None or mask in named else [mask]
    return [*masks, *(f"<unk_{number}>" for number in range(2, settings["offset"]))]


BERT_TOKENS = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
ROBERTA_TOKENS = {
    "bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>",
}  # fmt: skip
ALBERT_TOKENS = {
    "bos": "[CLS]", "eos": "[SEP]", "unk": "<unk>", "sep": "[SEP]", "pad": "<pad>", "cls": "[CLS]", "mask": "[MASK]",
}  # fmt: skip
GPT_TOKENS = {"unk": "<|endoftext|>", "bos": "<|endoftext|>", "eos": "<|endoftext|>", "pad": None}
MASK_FLAGS = {"mask": {"lstrip": True}}
BERT = TokenizerClass(
    BERT_TOKENS,
    "WordPiece",
    build_bert,
    {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None},
    CLS_SEP,
    token_types=True,
)
ROBERTA = TokenizerClass(ROBERTA_TOKENS, "BPE", build_byte_bpe, {"add_prefix_space": False}, CLS_SEP_SEP)
CLASSES = {
    VERBATIM: TokenizerClass(),
    "BertTokenizer": BERT,
    "FunnelTokenizer": TokenizerClass(
        {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "<sep>", "pad": "<pad>", "cls": "<cls>", "mask": "<mask>"},
        "WordPiece",
        build_bert,
        {**BERT.settings, "clean_text": True, "wordpieces_prefix": "##"},
        ("cls:2 A sep", "cls:2 A sep B:1 sep:1"),
    ),
    "ReformerTokenizer": TokenizerClass({"eos": "</s>", "unk": "<unk>"}, "BPE", build_reformer, adds_again="unnamed"),
    "RobertaTokenizer": ROBERTA,
    "GPT2Tokenizer": TokenizerClass(GPT_TOKENS, "BPE", build_byte_bpe, {"add_prefix_space": False}),
    "GPTNeoXTokenizer": TokenizerClass(
        {**GPT_TOKENS, "pad": "<|padding|>"}, "BPE", build_gpt_neox, {"add_prefix_space": False}, NONE
    ),
    "Qwen2Tokenizer": TokenizerClass(
        {**GPT_TOKENS, "bos": None, "pad": "<|endoftext|>"},
        "BPE",
        build_qwen2,
        {"add_prefix_space": None},
        adds_again="all",
    ),
    "OpenAIGPTTokenizer": TokenizerClass({"unk": "<unk>"}, "BPE", build_openai_gpt),
    "LlamaTokenizer": TokenizerClass(
        {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}, "BPE", build_llama, {"add_prefix_space": None, "legacy": False}
    ),
    "T5Tokenizer": TokenizerClass(
        {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
        "Unigram",
        build_t5,
        {"extra_ids": 100},
        ("A eos", "A eos B eos"),
        list_extra_tokens=list_t5_sentinels,
    ),
    "AlbertTokenizer": TokenizerClass(
        ALBERT_TOKENS,
        "Unigram",
        build_albert,
        {"do_lower_case": True, "keep_accents": False, "add_prefix_space": True},
        fallback=CLS_SEP,
    ),
    "FNetTokenizer": TokenizerClass(ALBERT_TOKENS, token_types=True),
    "XLMRobertaTokenizer": TokenizerClass(
        ROBERTA_TOKENS, "Unigram", build_xlm_roberta, {"add_prefix_space": True}, ("bos A eos", "bos A eos eos B eos")
    ),
    "BigBirdTokenizer": TokenizerClass(
        {**BERT_TOKENS, "unk": "<unk>", "bos": "<s>", "eos": "</s>", "pad": "<pad>"},
        "Unigram",
        build_big_bird,
        {"add_prefix_space": True},
        CLS_SEP,
        token_flags=MASK_FLAGS,
    ),
    "DebertaTokenizer": TokenizerClass(
        {**BERT_TOKENS, "bos": "[CLS]", "eos": "[SEP]"},
        "BPE",
        build_byte_bpe,
        {"add_prefix_space": False},
        CLS_SEP_SEP,
        token_types=True,
    ),
    "DebertaV2Tokenizer": TokenizerClass(
        {**BERT_TOKENS, "bos": "[CLS]", "eos": "[SEP]"},
        "Unigram",
        build_deberta_v2,
        {"do_lower_case": False, "split_by_punct": False, "add_prefix_space": True, "unk_id": 1},
        CLS_SEP,
        token_types=True,
    ),
    "MBartTokenizer": TokenizerClass(
        ROBERTA_TOKENS,
        "Unigram",
        build_mbart,
        {"src_lang": "en_XX"},
        ("A eos src_lang", "A B eos src_lang"),
        list_extra_tokens=lambda settings, named: [*MBART_LANGUAGES, *named],
        token_flags=MASK_FLAGS,
    ),
    "MBart50Tokenizer": TokenizerClass(
        {role: token for role, token in ROBERTA_TOKENS.items() if role != "bos"},
        "Unigram",
        build_mbart50,
        {"src_lang": "en_XX"},
        ("src_lang A eos", "src_lang A B eos"),
        list_extra_tokens=lambda settings, named: [*named, *MBART50_LANGUAGES],
        token_flags=MASK_FLAGS,
    ),
    "PegasusTokenizer": TokenizerClass(
        {"pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask_2>"},
        "Unigram",
        build_pegasus,
        {"offset": 103, "mask_token_sent": "<mask_1>"},
        ("A eos", "A B eos"),
        list_extra_tokens=list_pegasus_tokens,
    ),
}
ALIASES = {
    "TokenizersBackend": VERBATIM, "PreTrainedTokenizer": VERBATIM, "PythonBackend": VERBATIM,
    "BloomTokenizer": VERBATIM, "DistilBertTokenizer": "BertTokenizer", "ElectraTokenizer": "BertTokenizer",
    "MobileBertTokenizer": "BertTokenizer", "LxmertTokenizer": "BertTokenizer", "BartTokenizer": "RobertaTokenizer",
    "LongformerTokenizer": "RobertaTokenizer", "LEDTokenizer": "RobertaTokenizer",
}  # fmt: skip
# The class of a model type in `AutoTokenizer`, for folders that name none; the others have the class that they name.
REGISTERED = {
    "albert": "AlbertTokenizer", "bart": "RobertaTokenizer", "bert": "BertTokenizer", "big_bird": "BigBirdTokenizer",
    "deberta": "DebertaTokenizer", "deberta-v2": "DebertaV2Tokenizer", "distilbert": "BertTokenizer",
    "electra": "BertTokenizer", "ernie": "BertTokenizer", "fnet": "FNetTokenizer", "funnel": "FunnelTokenizer",
    "gpt2": "GPT2Tokenizer", "gpt_neox": "GPTNeoXTokenizer", "longformer": "RobertaTokenizer",
    "marian": "MarianTokenizer", "mbart": "MBartTokenizer", "mistral": VERBATIM, "mixtral": VERBATIM,
    "modernbert": VERBATIM, "mt5": "T5Tokenizer", "nystromformer": VERBATIM, "openai-gpt": "OpenAIGPTTokenizer",
    "opt": "GPT2Tokenizer", "pegasus": "PegasusTokenizer", "perceiver": "PerceiverTokenizer",
    "qwen2": "Qwen2Tokenizer", "qwen3": "Qwen2Tokenizer", "reformer": "ReformerTokenizer",
    "roberta": "RobertaTokenizer", "switch_transformers": "T5Tokenizer", "t5": "T5Tokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}  # fmt: skip
ALWAYS_REGISTERED = frozenset({"qwen2"})  # `AutoTokenizer` takes no other class for these model types


def choose_class(model_type: str, named: str, byte_level: bool, follow_name: bool = False) -> str:
    """The class that `AutoTokenizer` takes. `named` is the `tokenizer_class` of a folder, empty without one;
    `byte_level`, whether its `tokenizer.json` has byte-level parts, which `LlamaTokenizer` cannot have."""
    registered = REGISTERED.get(model_type, "")
    name = named.removesuffix("Fast") if named != VERBATIM else named
    name = ALIASES.get(name, name)
    if not name:
        return registered or VERBATIM
    if registered == VERBATIM or (name == "LlamaTokenizer" and byte_level):
        return VERBATIM
    return registered if registered and model_type in ALWAYS_REGISTERED and not follow_name else name
