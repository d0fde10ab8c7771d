"""spnb: self-play reinforcement learning for language models, in notebooks."""

__version__ = "0.1.0"
