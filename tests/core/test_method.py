"""What every method has: roles as data, its share of a step, selection, state."""

import pytest

from spnb.core.advantages import make_estimator
from spnb.core.method import MethodParams, Role, SelfPlayMethod, Share
from spnb.core.params import ParamError, validate
from spnb.core.types import Sample, Sampling


class Params(MethodParams):
    role_names = ("asker", "solver")


class Method(SelfPlayMethod):
    """Two roles, no rollout of its own."""

    Params = Params

    def default_roles(self):
        role = Role(self.params.sampling, make_estimator("role_ema"))
        return {"asker": role, "solver": Role(self.params.sampling, make_estimator("raw"))}

    def rollout(self, step):
        yield from ()
        return []


def row(role, reward):
    return Sample((1,), (2,), (1,), None, reward, role, 0)


def test_roles_are_data():
    changes = {"policy": "start", "trainable": False, "temperature": 0.5, "estimator": "raw"}
    params = Params(max_new_tokens=9, top_p=0.9, roles={"asker": changes})
    method = Method(params, None)
    asker, solver = method.roles["asker"], method.roles["solver"]
    assert (asker.policy, asker.trainable) == ("start", False)
    assert asker.sampling == Sampling(9, 0.5, 0.9) and solver.sampling == Sampling(9, 1.0, 0.9)
    assert asker.estimator([3.0], [0], ["asker"]) == [3.0] and solver.trainable
    with pytest.raises(ParamError, match="role is 'judge', which is unknown; allowed: asker, sol"):
        validate(Params, {"roles": {"judge": {}}})
    with pytest.raises(ParamError, match="roles.asker.estimator is 'median'; allowed: 'group_z"):
        validate(Params, {"roles": {"asker": {"estimator": "median"}}})
    with pytest.raises(
        ParamError, match="'roles.asker.temprature', .*did you mean 'roles.asker.te"
    ):
        validate(Params, {"roles": {"asker": {"temprature": 1}}})


def test_a_role_that_learns_is_sampled():
    with pytest.raises(ParamError, match="roles.asker.temperature is 0.0; allowed: above 0, or tr"):
        validate(Params, {"roles": {"asker": {"temperature": 0}}})
    for still in ({"trainable": False}, {"policy": "start"}):
        assert validate(Params, {"roles": {"asker": {"temperature": 0, **still}}}).roles


def test_a_role_that_does_not_learn_is_not_trained():
    params = Params(roles={"asker": {"trainable": False}})
    method, rows = Method(params, None), [row("asker", 5.0), row("solver", 2.0), row("solver", 0.0)]
    method.estimate(rows)
    method.select(rows)
    assert [one.advantage for one in rows] == [0.0, 2.0, 0.0]
    assert [one.weight for one in rows] == [0, 1 / 2, 0]  # the mean of the two that learn


def test_a_policys_own_kl_keeps_its_rows():
    """A policy that learns beside may have a KL where the run has none."""
    params = Params(grpo={"beta": 0.0}).model_copy(update={"co_trained": {"policy": {"beta": 0.1}}})
    method, rows = Method(params, None), [row("solver", 2.0), row("solver", 0.0)]
    method.estimate(rows)
    method.select(rows)
    assert [one.weight for one in rows] == [1, 1]


WHOLE = [{"entropy_coef": 0.03}, {"use_adaptive_entropy": True}, {"top_entropy_quantile": 0.5}]
"""TRL's entropy terms and thresholds are over all rows of a batch."""


@pytest.mark.parametrize("grpo", [{"beta": 0.1}, {"loss_type": "dapo"}, *WHOLE], ids=str)
def test_rows_without_an_advantage_stay_where_they_count(grpo):
    method, rows = Method(Params(grpo=grpo), None), [row("solver", 2.0), row("solver", 0.0)]
    method.estimate(rows)
    method.select(rows)
    assert [one.weight for one in rows] == [1.0, 1.0]


def test_a_role_without_a_kl_is_left_out_where_it_adds_nothing():
    """Both roles have a row without an advantage; the KL holds the first role's alone."""
    method = Method(Params(grpo={"beta": 0.1}, roles={"solver": {"kl": False}}), None)
    rows = [row("asker", 0.0), row("solver", 2.0), row("solver", 0.0)]
    method.estimate(rows)
    method.select(rows)
    assert [one.weight for one in rows] == pytest.approx([2 / 3, 2 / 3, 0])


def test_a_share_splits_a_global_quantity_and_its_items():
    shares = [Share(rank, 3) for rank in range(3)]
    assert [share.of(128) for share in shares] == [43, 43, 42]
    assert [share.part(range(5)) for share in shares] == [[0, 3], [1, 4], [2]]
    assert [share.of(2) for share in shares] == [1, 1, 1]  # nobody has nothing to do
    assert Share().of(128) == 128 and Share().part("abc") == ["a", "b", "c"]


def test_state_survives():
    first, second = Method(Params(), None), Method(Params(), None)
    first.estimate([row("asker", 4.0)])
    assert first.state_dict() != second.state_dict()
    second.load_state_dict(first.state_dict())
    assert first.state_dict() == second.state_dict()


def test_thinking_reaches_the_template():
    class Template:
        all_special_tokens = ()

        def apply_chat_template(self, messages, tokenize, add_generation_prompt, **more):
            return str(more)

        def __call__(self, text, add_special_tokens):
            return {"input_ids": [ord(char) for char in text]}

    class Thinks(Params):
        thinking: bool | None = None

    for thinking, said in ((None, "{}"), (False, "{'enable_thinking': False}")):
        chat = Method(Thinks(thinking=thinking), Template()).chat
        request = chat.request([{"role": "user", "content": "x"}], Sampling(1), 0)
        assert "".join(map(chr, request.prompt_ids)) == said
