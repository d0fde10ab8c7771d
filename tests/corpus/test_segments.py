"""How documents are cut to segments, and drawn."""

import random
from collections import Counter

import pytest

from spnb.corpus import store
from spnb.corpus.segments import Segments, cut
from spnb.corpus.store import CorpusError
from spnb.lab.segments import documents
from spnb.train.policies import load_policy


class Words:
    """A token for each word, the spaces before it included."""

    def __call__(self, text, add_special_tokens, return_offsets_mapping):
        assert not add_special_tokens and return_offsets_mapping
        ends = [at for at in range(1, len(text)) if text[at].isspace()] + [len(text)]
        return {"offset_mapping": list(zip([0, *ends], ends, strict=False))}


class Ended(Words):
    """A token for each word, the space behind it included."""

    def __call__(self, text, add_special_tokens, return_offsets_mapping):
        starts = [0, *(at for at in range(1, len(text)) if text[at - 1].isspace())]
        return {"offset_mapping": list(zip(starts, [*starts[1:], len(text)], strict=True))}


def rows(*texts):
    return [{"id": f"d{n}", "title": "", "text": text} for n, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (9, ["a b c\nd e\nf g h i"]),
        (8, ["a b c\nd e", "f g h i"]),  # back to the last line end
        (5, ["a b c\nd e", "f g h i"]),
        (4, ["a b c", "d e", "f g h i"]),
        (3, ["a b c", "d e", "f g h", "i"]),  # a line longer than a segment is cut within
        (2, ["a b", "c", "d e", "f g", "h i"]),
        (1, list("abcdefghi")),
        (99, ["a b c\nd e\nf g h i"]),  # a document shorter than a segment is one
    ],
)
def test_segments_take_whole_lines_where_they_can(size, expected):
    pieces = cut("a b c\nd e\nf g h i", Words(), size)
    assert [piece.strip() for piece in pieces] == expected


def test_a_line_end_may_be_in_the_token_before_it():
    pieces = cut("a b c\nd e\nf g h i", Ended(), 4)
    assert pieces == ["a b c", "d e", "f g h i"]


def test_nothing_is_lost_and_no_segment_is_too_long():
    tokenizer = load_policy("embedded/learner").tokenizer
    for row in documents("math", 8):
        for size in (7, 40, 150):
            pieces = cut(row["text"], tokenizer, size)
            assert "".join("".join(pieces).split()) == "".join(row["text"].split())
            whole = tokenizer(row["text"], add_special_tokens=False)["input_ids"]
            assert len(pieces) >= len(whole) / size
            for piece in pieces:
                assert len(tokenizer(piece, add_special_tokens=False)["input_ids"]) <= size


def test_documents_are_drawn_alike_and_then_any_of_their_segments():
    corpora = [rows("a", "b c d e"), rows("f")]
    corpus = Segments(corpora, Words(), 2)
    assert len(corpus) == 3
    drawn = Counter()
    for seed in range(600):
        segments = corpus.draw(random.Random(seed), 3)
        drawn.update(texts := [text.strip() for text in segments])
        assert len({"b c" if text == "d e" else text for text in texts}) == 3  # none twice
    assert drawn["a"] == drawn["f"] == 600
    assert drawn["b c"] + drawn["d e"] == 600 and abs(drawn["b c"] - 300) < 60
    many = corpus.draw(random.Random(0), 7)
    assert Counter(many)["f"] in (2, 3)


def test_a_blank_document_behind_those_that_are_looked_at_is_not_drawn(monkeypatch):
    monkeypatch.setattr(store, "CHECKED", 1)
    corpus = Segments([rows("a", " \n ", "b")], Words(), 4)
    assert {*corpus.draw(random.Random(0), 60)} == {"a", "b"}
    assert len(corpus.draw(random.Random(0), 7)) == 7
    many = Segments([rows("a", *[" "] * 3000)], Words(), 4)
    assert many.draw(random.Random(0), 5) == ["a"] * 5


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="size of a segment is 0; allowed: 1 or more tokens"):
        cut("a", Words(), 0)
    for empty in ("", " \n "):
        with pytest.raises(ValueError, match="text is empty; allowed: a document with words"):
            cut(empty, Words(), 4)
        with pytest.raises(CorpusError, match="text of document 1 is empty; allowed: words"):
            Segments([rows("a", empty)], Words(), 4).draw(random.Random(0), 2)
    with pytest.raises(CorpusError, match="corpus has 0 documents"):
        Segments([], Words(), 4)
