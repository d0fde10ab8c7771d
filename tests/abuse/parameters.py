"""What people get wrong in parameters and commands: every case is answered by one sentence.

    for case in CASES: ...

A case is a command of `spnb`, what the sentence says (a pattern), and files that the project has.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

VARIANT = {"rlvr": "think", "proposer": "learning"}
"""Of papers that have no variant `full`."""
HUGE = 10**12


@dataclass(frozen=True)
class Case:
    """`files`: path below the project and text; a project with any has SPIRAL's parameters else."""

    arguments: tuple[str, ...]
    says: str
    files: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return " ".join([*(part[:60] for part in self.arguments[1:]), *dict(self.files)])


def run(*values: str, says: str, paper: str = "spiral", variant: str = "") -> Case:
    """A run at scale smoke with values of its own."""
    variant = variant or VARIANT.get(paper, "full")
    options = [part for value in values for part in ("--set", value)]
    return Case(("run", paper, "--scale", "smoke", "--variant", variant, *options), says)


def bomb(open_: str = "", close: str = "") -> str:
    """Nine values nine times, in twelve levels: 282,429,536,481 values."""
    levels = [f"&a0 [{', '.join('x' * 9)}]"]
    levels += [f"&a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return open_ + ", ".join(levels) + close


# --- values of a wrong kind

NUMBERS = [
    *("steps", "save_every", "eval_every", "max_new_tokens", "max_length", "lora_rank"),
    *("temperature", "top_p", "eval_temperature", "eval_top_p", "gpu_memory", "most_tokens"),
    *("grpo.learning_rate", "grpo.epsilon", "grpo.epsilon_high", "grpo.beta", "grpo.warmup_steps"),
    *("grpo.adam_beta1", "grpo.adam_beta2", "grpo.adam_epsilon", "grpo.weight_decay"),
    *("grpo.max_grad_norm", "grpo.num_iterations", "grpo.gradient_accumulation_steps"),
    *("grpo.entropy_coef", "grpo.delta"),
]
NO_NUMBER = ["many", "-1", ".inf"]
CHOICES = [
    *("dtype", "backend", "engine", "report_to", "baseline", "opponent", "reward"),
    *("grpo.optim", "grpo.lr_scheduler_type", "grpo.loss_type", "grpo.importance_sampling_level"),
]
OWN_NUMBERS = {
    "spiral": ["turns_per_step", "eval_matches", "final_matches", "group_size", "eval_samples"],
    "rlvr": ["prompts_per_step", "group_size", "fixed", "eval_items", "max_searches"],
    "proposer": ["proposals", "answers", "sources", "highest", "eval_proposals"],
    "spell": ["clusters", "questions_per_round", "rounds", "documents", "judgments_per_answer"],
    "spice": ["attempts", "documents_per_step", "answers", "documents", "writer_wrong"],
    "scope": ["proposals", "tasks_per_step", "most_batches", "tau", "filled_at_least"],
    "ssp": ["answers_per_step", "attempts", "readings", "noisy_documents", "highest"],
}


def wrong_kinds() -> Iterator[Case]:
    """No number, no choice, no mapping."""
    for key, value in product(NUMBERS, NO_NUMBER):
        yield run(f"{key}={value}", says=rf"{key}(\.0)? is .*; allowed: ")
    for key in CHOICES:
        yield run(f"{key}=nope", says=f"{key} is 'nope'; allowed: .*[a-z]")
    for paper, keys in OWN_NUMBERS.items():
        for key, value in product(keys, ["many", "-1"]):
            yield run(f"{key}={value}", says=rf"{key}.* is .*; allowed: ", paper=paper)
    for key in ("grpo", "roles", "policies", "co_trained", "stages", "benchmarks", "start_from"):
        yield run(f"{key}=7", says=f"{key}.* is 7; allowed: ")


# --- what a run may not set

REFUSED = [
    *("push_to_hub", "hub_token", "hub_model_id", "hub_strategy", "hub_always_push", "run_name"),
    *("deepspeed", "fsdp", "fsdp_config", "torch_compile", "torch_compile_backend", "report_to"),
    *("output_dir", "resume_from_checkpoint", "log_completions_hub_repo", "trackio_space_id"),
    *("trust_remote_code", "model_init_kwargs", "load_in_4bit", "accelerator_config", "debug"),
    *("bf16", "fp16", "seed", "max_steps", "num_generations", "use_vllm", "vllm_mode", "top_k"),
    *("vllm_server_host", "auto_find_batch_size", "full_determinism", "project", "optim_args"),
]
UNKNOWN = ["stepz", "load_in_4bit", "a.b.c", "Steps", "grpo.learnin_rate"]


def refused() -> Iterator[Case]:
    """Settings of TRL that are not for training, names that are none, combinations that fail."""
    for name in REFUSED:
        yield run(f"grpo.{name}=true", says=f"grpo.{name}.*; .*allowed: ")
    for name in UNKNOWN:
        yield run(f"{name}=1", says="which is unknown; .*allowed: ")
    yield run(
        "learning_rate=1", says="which is unknown; did you mean 'grpo.learning_rate'.*allowed: "
    )
    for name in ("seed", "paper", "scale", "variant", "variants", "seeds", "runs"):
        yield run(f"{name}=1", says=f"--set is {name}=1; allowed: other parameters")
    schedule = "grpo.lr_scheduler_type=cosine_with_min_lr"
    yield run(schedule, says="grpo.lr_scheduler_kwargs is None with .*; allowed: min_lr, min_lr_")
    yield run("grpo.lr_scheduler_kwargs={power: 1}", says="with .*'constant'; allowed: nothing")
    yield run("engine=vllm", says="dtype is 'float32' with engine 'vllm'; allowed: bfloat16")
    yield run("engine=vllm", "dtype=bfloat16", says="engine is 'vllm', whose package vllm is not")
    yield run("report_to=wandb", says="report_to is 'wandb', whose package wandb is not installed")
    yield run("grpo.optim=adamw_8bit", says="grpo.optim is 'adamw_8bit', whose package bitsandb")
    yield run("games=checkmate", says="game is 'checkmate'")
    yield run("benchmarks={gsm: null}", says="benchmark is 'gsm', .*did you mean 'gsm8k'")
    yield run("sources=1000000", says="sources is 1000000; allowed: 1 to", paper="proposer")
    yield run("rivals=1000000", says="rivals is 1000000; allowed: ", paper="proposer")


# --- what is not there

NO_POLICY = ["nope", "none", "no/such-model", "''", "../../etc", "/etc", ".", "a/b/c", "embedded/x"]
CORPORA = ("spell", "spice", "scope", "ssp")


def absent() -> Iterator[Case]:
    """Policies, files and folders that do not exist, and a policy that reads other tokens."""
    for policy in NO_POLICY:
        yield run(f"policy={policy}", says="policy is .*; .*allowed: |policy is .*: .*allowed: ")
    yield run("policies={rival: nope}", says="policy is 'nope', which is not in the hub's cache")
    for path in ("nowhere.jsonl", "/nowhere/at/all", "no/such/folder"):
        where = f"benchmarks.gsm8k.path is '{path}'; allowed: an existing file or folder"
        yield run(f"benchmarks={{gsm8k: {path}}}", says=where)
    there = {"nowhere.jsonl": "an existing file", "/nowhere/at/all": "an existing file"}
    there |= {"spnb": ".*finished", "README.md": ".*finished"}
    for paper, (path, allowed) in product(CORPORA, there.items()):
        how = ("rubrics=judge", "grades=judge") if paper == "scope" else ()
        where = f"corpus is '{path}'; allowed: {allowed}"
        yield run(f"corpus={path}", *how, says=where, paper=paper)
    for paper in ("ssp", "scope"):
        says = "retriever is 'bm26'; allowed: bm25, .* or a URL"
        yield run("corpus=README.md", "retriever=bm26", says=says, paper=paper)
        says = "retriever is 'http://there'; allowed: bm25 without a corpus"
        yield run("retriever=http://there", says=says, paper=paper)
        says = "max_new_tokens is 300 with max_length 300; allowed: a turn that is shorter than"
        yield run("max_new_tokens=300", "max_length=300", says=says, paper=paper)
        says = "roles.solver.max_new_tokens is 400 with max_length 400; allowed: a turn"
        yield run("roles.solver.max_new_tokens=400", "max_length=400", says=says, paper=paper)
    yield run("plugins=nowhere.py", says="plugins is 'nowhere.py'; allowed: an existing file")
    other = "policies={proposer: embedded/games}"
    says = "policy is 'embedded/games', whose vocabulary is not that of the policy in training"
    yield run(other, says=says, paper="proposer", variant="learning-two")


# --- work for years

WORK = {
    "spiral": ["turns_per_step", "eval_matches", "final_matches", "eval_samples", "group_size"],
    "rlvr": ["prompts_per_step", "group_size", "fixed", "eval_items", "grpo.num_iterations"],
    "proposer": ["proposals", "answers", "eval_items", "eval_proposals"],
    "spell": ["clusters", "questions_per_round", "rounds", "group_size", "static_questions"],
    "spice": ["attempts", "answers", "documents", "documents_per_step", "eval_tasks"],
    "scope": ["proposals", "tasks_per_step", "most_batches", "short_items", "filter_attempts"],
    "ssp": ["answers_per_step", "attempts", "readings", "eval_proposals", "resamples"],
}


def years() -> Iterator[Case]:
    """Quantities that a run would not live to see."""
    for paper, keys in WORK.items():
        for key in keys:
            says = f"^error: {key} is 1,000,000,000,000, .* may write .* tokens; allowed: 1,000,0"
            yield run(f"{key}={HUGE}", says=says, paper=paper)
    yield run(f"judgments_per_answer={HUGE}", says="^error: judgments is 1,000,0", paper="spell")
    yield run("steps=10000000", says="steps( / eval_every)? is 10,000,00., .* may write ")
    yield run("steps=100000000", says="steps is 100000000; allowed: less than or equal to")
    yield run(f"grpo.num_iterations={10**100}", says="is more than 1,000,000,000,000,000, so that")
    yield run("most_tokens=1000", says="may write [0-9,]* tokens; allowed: 1,000, or more where")
    uses = f"benchmarks={{gsm8k: {{samples: {HUGE}}}}}"
    yield run(uses, says="benchmarks.gsm8k.samples is 1,000,000,000,000, .* may write")


# --- texts

TEXTS = {
    bomb("[", "]"): "more than 20,000 values",
    bomb("{a: [", "]}"): "more than 20,000 values",
    "[" * 20_000: "more than 50 levels",
    "{a: " * 20_000: "more than 50 levels",
    "{beta: 1, beta: 2}": "it has the key 'beta' twice",
    "&a [*a]": "a value in it holds itself",
    "[1": "expected ',' or ']'",
    "!!python/object/apply:os.system [id]": "could not determine a constructor",
    "!!timestamp soon": "a value in it cannot be read",
    "9" * 5000: "a value in it cannot be read",
    "2001-99-99": "a value in it cannot be read",
    "? [1]\n: 2": "unhashable key",
    "a\n---\nb": "expected a single document",
}
VARIANTS = {
    "full: {about: x., at: {smoke: [1]}}": r"variant full: at.smoke is \[1\]; allowed: a valid dic",
    "full: {about: x., set: [1]}": r"variant full: set is \[1\]; allowed: a valid dictionary",
    "full: {about: x., seeds: {smoke: x}}": "variant full: seeds.smoke.* is 'x'; allowed: ",
    "full: {about: x., scales: [laptop]}": "variant full: scales.0 is 'laptop'; allowed: 'smoke'",
    "full: {about: x., stes: {}}": "variant full: parameter is 'stes', .*did you mean 'seeds'",
    "full: null": "variant full is None; allowed: about",
    "full: {about: x.}\n7: {about: y.}": "variant is 7; allowed: small letters",
    "full: {about: x.}\nfull: {about: y.}": "not valid YAML: it has the key 'full' twice",
    **{
        f"full: {{about: x.}}\n{name!r}: {{about: y.}}": "variant is .*; allowed: small letters"
        for name in ("../../escaped", "..", "a/b", "", ".hidden")
    },
    bomb("full: {about: x., set: {games: [", "]}}"): "not valid YAML: it has more than 20,000 val",
    "[" * 20_000: "not valid YAML: it has more than 50 levels",
    "- full": "holds list; allowed: a mapping",
}
SCALES = {
    "scale: smoke\nrun: {steps: 1, steps: 2}": "not valid YAML: it has the key 'steps' twice",
    "scale: smoke\nrun: {steps: .inf}": "steps is inf; allowed: ",
    "scale: smoke\nrun: {policy: nope, games: [kuhn_poker]}": "policy is 'nope', which is not in",
    "scale: smoke\nrun: [1]": r"run is \[1\]; allowed: parameters of a run by name",
    "scale: smoke\nsteps: 3": "parameter is 'steps', which is unknown",
    bomb("scale: smoke\nrun: {games: [", "]}"): "not valid YAML: it has more than 20,000 values",
    "scale: gpu": "scale is another one; allowed: smoke",
    "scale: smoke\nrun: {seeds: [1]}": "allowed: parameters of a run by name",
}


def texts() -> Iterator[Case]:
    """Values and parameter files that are no YAML, or far too much of it."""
    for text, says in TEXTS.items():
        yield run(f"grpo={text}", says=f"--set is .*, which cannot be read: .*{says}.*; allowed")
    yield run("a." * 20_000 + "b=1", says="parameter is 'a', which is unknown")
    yield run("steps", says="--set is 'steps'; allowed: key=value")
    command = ("run", "spiral", "--scale", "smoke")
    for name, cases in (("variants", VARIANTS), ("smoke", SCALES)):
        for text, says in cases.items():
            yield Case(command, says, ((f"params/spiral/{name}.yaml", text),))


# --- commands

NAMES = ["spirall", "..", "../spiral", "/etc", "", "spiral/../spiral", "params"]
COMMANDS = {
    ("run", "spiral", "--scale", "laptop"): "scale is 'laptop', which is unknown; allowed: ",
    ("run", "spiral", "--scale", "../cpu"): "scale is '../cpu', which is unknown; did you mean",
    (
        "run",
        "spiral",
        "--variant",
        "no-rea",
    ): "variant of spiral is 'no-rea', .*did you mean 'no-rae'",
    ("run", "spiral", "--variant", "../full"): "variant of spiral is '../full', which is unknown",
    ("run", "spiral", "--seed", "-1"): "seed.* is -1; allowed: ",
    ("run", "spiral", "--seed", str(2**32)): "seed is 4294967296; allowed: ",
    ("exhibit", "spiral/table-99"): "exhibit is 'spiral/table-99', .*did you mean",
    ("exhibit", "../table-1"): "exhibit is '../table-1', which is unknown",
    ("search", "rlvr"): "rlvr has no search.yaml; allowed: ",
    ("search", "spirall"): "paper is 'spirall', .*did you mean 'spiral'",
    ("reproduce", "--paper", "spirall"): "paper is 'spirall', .*did you mean 'spiral'",
    (
        "reproduce",
        "--paper",
        "spiral",
        "--variants",
        "x,y",
    ): "variant of spiral is 'x', which is unknown",
    ("reproduce", "--paper", "spiral", "--seeds", "0,x"): "seeds is '0,x'; allowed: comma-sep",
    ("gallery", "--folder", "/etc"): "/etc has no index.json; allowed: a folder of exhibits",
    ("embedded", "/nowhere", "--recipe", "chess"): "recipe is 'chess'",
    ("new-method", "../x"): "NAME is '../x'; allowed: small letters",
}


def commands() -> Iterator[Case]:
    """Names that are none."""
    for name in NAMES:
        yield Case(("run", name, "--scale", "smoke"), "paper is .*; .*allowed: ")
    for arguments, says in COMMANDS.items():
        yield Case(arguments, says)


CASES = [*wrong_kinds(), *refused(), *absent(), *years(), *texts(), *commands()]
