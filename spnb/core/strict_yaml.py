"""YAML that a person wrote, read with limits: what is refused costs no time and no memory; and the
project's own."""

from collections import Counter
from copy import deepcopy
from functools import lru_cache
from typing import Any

import yaml

DEEPEST = 50
LARGEST = 20_000
"""Most levels, and most values where each alias counts as all that it stands for."""


class YamlError(ValueError):
    """A text is no YAML, or too deep, too large, or with a key twice; one sentence."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which counts while it reads, before anything is built."""

    def __init__(self, text: str):
        super().__init__(text)
        self.depth = self.count = 0
        self.sizes: dict[Any, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node; YamlError where it is one too many."""
        before = self.count
        alias = self.check_event(yaml.AliasEvent)
        if self.depth == DEEPEST:
            raise YamlError(f"it has more than {DEEPEST} levels")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        if alias and node not in self.sizes:
            raise YamlError("a value in it holds itself")
        self.count += self.sizes[node] if alias else 1
        self.sizes[node] = self.count - before
        if self.count > LARGEST:
            raise YamlError(f"it has more than {LARGEST:,} values")
        if isinstance(node, yaml.MappingNode) and not alias:
            keys = Counter(str(key.value) for key, _ in node.value)
            if twice := [key for key, times in keys.items() if times > 1 and key != "<<"]:
                raise YamlError(f"it has the key {twice[0]!r} twice")
        return node


def own_yaml(text: str) -> Any:
    """The value of a text of the project's own, read by libyaml where PyYAML has it."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def read_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        YamlError: it cannot be read; the message says why in one line.
    """
    return deepcopy(_read(text))


@lru_cache(32)
def _read(text: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except YamlError:
        raise
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from None
    except Exception as error:  # of int(), date() or a table that PyYAML asks about a value
        raise YamlError(f"a value in it cannot be read ({error})") from None
