"""A small random Qwen3 with Qwen's special tokens and a template that can think.

It knows nothing. It shows that everything around a policy is connected, where there is no GPU or no
network.
"""

from pathlib import Path

from spnb.corpus.store import built_once

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_pad|>")
"""In Qwen's order: the pad, a turn's start and end, one that nothing uses."""
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}"
    "{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"
)


def tiny_qwen(folder: Path, **sizes: int) -> str:
    """Writes the policy to a folder, unless it is there: a token a byte, the same weights always.

    Args:
        sizes: in place of `SIZES`, for instance those of Qwen3-0.6B.
    """
    return str(built_once(folder, lambda part: _write(part, sizes)))


def _write(folder: Path, sizes: dict[str, int]) -> None:
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Tokenizer(models.BPE({letter: place for place, letter in enumerate(letters)}, []))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    words.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    words.add_tokens([AddedToken(token, special=False) for token in ("<think>", "</think>")])
    pad, _, end, _ = SPECIAL
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=end, pad_token=pad)
    tokenizer.chat_template = TEMPLATE
    ends = tokenizer.convert_tokens_to_ids([end, pad])
    rows = -(-len(tokenizer) // 64) * 64
    shape = {"vocab_size": rows, "max_position_embeddings": 40960, "tie_word_embeddings": True}
    shape |= SIZES | sizes
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = Qwen3Config(eos_token_id=ends[0], **shape)
        model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = ends
    model.generation_config.pad_token_id = ends[1]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
