"""A random Qwen3 of two layers in a folder, with the layout of special tokens that Qwen has.

As Qwen's chat models: the end of a turn is `<|im_end|>`, the pad `<|endoftext|>` also ends, both
are listed as ends, special tokens are spare, and the template thinks unless it is told not to. As
its base models: `<|endoftext|>` is the one end, and the pad. Some rows of the embedding are free.
"""

from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

ROOT = Path(__file__).resolve().parents[1]
END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END_OF_TEXT, START, END, "<|object_ref_start|>", "<|vision_pad|>", "<|fim_pad|>")
PLAIN = ("<tool_call>", "</tool_call>", "<think>", "</think>")
"""Tokens of their own that are text."""
FREE_ROWS = 20
TEMPLATE = (
    "{%- for message in messages %}"
    "{%- set text = message['content'] %}"
    "{%- if message['role'] == 'assistant' and '</think>' in text %}"
    "{%- set text = text.split('</think>')[-1].lstrip('\\n') %}"
    "{%- endif %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + text + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif %}"
    "{%- endif %}"
)


def make_tokenizer(base: bool = False) -> PreTrainedTokenizerFast:
    """Byte-level BPE of 1,500 tokens over the project's prompts and code: it writes any text."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    texts = [path.read_text() for path in sorted((ROOT / "spnb" / "core").glob("*.*"))]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(texts, trainer)
    backend.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    backend.add_tokens([AddedToken(token, special=False) for token in PLAIN])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=END_OF_TEXT if base else END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[START, END],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_policy(folder: Path, base: bool = False, seed: int = 0) -> str:
    """Writes the model, in bfloat16, and its tokenizer; returns the folder's name."""
    tokenizer = make_tokenizer(base)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer) + FREE_ROWS,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=40960,
        tie_word_embeddings=True,
        eos_token_id=end,
        bos_token_id=None,
        initializer_range=0.1,
    )
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.generation_config.eos_token_id = end if base else [end, pad]
    model.generation_config.pad_token_id = pad
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
