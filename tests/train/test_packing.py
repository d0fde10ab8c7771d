"""Rows grouped by length: TRL's numbers, whatever is passed along."""

import inspect

import pytest
import torch
import trl

from spnb.train.logps import GROUP_ROWS, LENGTH_GROUPS, PackingMixin, length_groups


class Plain:
    """Stands for TRL's trainer: every token's number is a function of the row's own tokens."""

    class args:
        steps_per_generation = 2

    def __init__(self):
        self.calls = []

    def _get_per_token_logps_and_entropies(self, model, ids, mask, keep, *rest, **more):
        self.calls.append((ids.shape, keep, rest, more))
        logps = (ids * mask)[:, -keep:].float()
        entropy = rest[1] if len(rest) > 1 else more.get("compute_entropy", False)
        return logps, logps * 2 if entropy else None, None


class Packed(PackingMixin, Plain):
    pass


def batch(rows=3 * GROUP_ROWS, prompt=9, completion=7):
    torch.manual_seed(0)
    ids = torch.randint(5, 99, (rows, prompt + completion))
    starts = torch.randint(0, prompt, (rows, 1))
    ends = prompt + torch.randint(1, completion + 1, (rows, 1))
    columns = torch.arange(prompt + completion)
    return ids, ((columns >= starts) & (columns < ends)).long(), completion


def test_groups_are_equal_sorted_by_length_and_complete():
    lengths = torch.tensor([5, 1, 9, 3] * 10)
    groups = length_groups((torch.arange(10) < lengths[:, None]).int())
    assert [len(group) for group in groups] == [20, 20]
    assert sorted(torch.cat(groups).tolist()) == list(range(40))
    assert lengths[groups[0]].max() == 3 and lengths[groups[1]].min() == 5
    assert len(length_groups(torch.ones(3, 4))) == 1
    assert len(length_groups(torch.ones(999, 4))) == LENGTH_GROUPS


@pytest.mark.parametrize("entropy", [False, True])
def test_numbers_are_trls_in_the_order_of_the_rows(entropy):
    ids, mask, keep = batch()
    packed = Packed()
    logps, entropies, aux = packed._get_per_token_logps_and_entropies(
        None, ids, mask, keep, 4, compute_entropy=entropy
    )
    expected = (ids * mask)[:, -keep:].float()
    assert torch.equal(logps, expected) and aux is None
    assert torch.equal(entropies, 2 * expected) if entropy else entropies is None
    assert len(packed.calls) == 3 and all(rest[0] == 24 for _, _, rest, _ in packed.calls)
    assert min(shape[1] for shape, *_ in packed.calls) < ids.shape[1]


def test_unsloths_seven_positional_arguments_go_through():
    ids, mask, keep = batch()
    packed = Packed()
    packed._get_per_token_logps_and_entropies("model", ids, mask, keep, None, True, False)
    assert packed.calls == [(ids.shape, keep, (None, True, False), {})]
    six = Packed()
    logps, entropies, _ = six._get_per_token_logps_and_entropies("m", ids, mask, keep, None, True)
    assert len(six.calls) == 3 and torch.equal(entropies, 2 * logps)


def test_what_packing_does_not_know_is_left_to_trl():
    ids, mask, keep = batch()
    for more in ({"compute_aux_loss": True}, {"token_type_ids": torch.zeros_like(ids)}):
        packed = Packed()
        packed._get_per_token_logps_and_entropies(None, ids, mask, keep, **more)
        assert len(packed.calls) == 1 and packed.calls[0][0] == ids.shape


def test_the_signature_takes_all_that_trls_takes():
    ours = inspect.signature(PackingMixin._get_per_token_logps_and_entropies)
    theirs = inspect.signature(trl.GRPOTrainer._get_per_token_logps_and_entropies)
    ours.bind(*range(len(theirs.parameters)))
    ours.bind(0, 1, 2, 3, 4, **dict.fromkeys([*theirs.parameters][6:]))
