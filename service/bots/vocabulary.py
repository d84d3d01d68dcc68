"""The verbs and their options: registered with Discord, parsed from Slack's line, and listed by `help`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from service.engine.config import ENGINES
from service.engine.goal import Preset

SLACK_COMMAND = "/advisor"
CHECK_MESSAGE, ADD_MESSAGE = "Check this command", "Add to leaderboard"  # in the menu of a message
OF_MESSAGES = {CHECK_MESSAGE: "check", ADD_MESSAGE: "result"}


class Option(NamedTuple):
    """An option of a verb. `choices`: all its values; `complete`: what to propose while it is typed."""

    name: str
    help: str
    required: bool = False
    choices: tuple[str, ...] = ()
    complete: Literal["repo", "hardware", "model"] | None = None
    kind: Literal["text", "number", "yes"] = "text"


class Verb(NamedTuple):
    """A verb. `form`: options that a platform with forms asks for in one; `actions`: sub-commands.

    `title`: of the form, 45 characters at most. Examples of what to type after the verb: `line` on Slack, `typed` on
    Discord. `private`: only the asker sees the answer; `once`: the answer cannot be produced a second time.
    """

    name: str
    help: str
    options: tuple[Option, ...] = ()
    actions: tuple[Verb, ...] = ()
    form: tuple[Option, ...] = ()
    title: str = ""
    line: str = ""
    typed: str = ""
    private: bool = False
    once: bool = False


_REPO = Option("repo", "Hugging Face GGUF repo: OWNER/NAME, OWNER/NAME:VARIANT or its address", True, complete="repo")
_HARDWARE = Option("hardware", "Your rig, such as 2x5090 + 4090, Xeon 8480+, 512GB; left out: the one you saved")
_RIG = _HARDWARE._replace(name="rig", help="Such as 2x5090 + 4090, Xeon 8480+, 512GB DDR5-4800 x8", required=True)

VERBS = (
    Verb(
        "advise",
        "The best configs for a GGUF repo on your hardware, ready to paste",
        (
            _REPO,
            _HARDWARE._replace(complete="hardware"),
            Option("goal", "What you want to do (chat if left out)", choices=get_args(Preset)),
            Option("context", "Tokens of context, such as 32k or 131072"),
            Option("engine", "Only this engine (both if left out)", choices=ENGINES),
            Option("public", "Let everybody here see the answer; without it only you do, if it is of your saved rig",
                   kind="yes"),
        ),
        line="ubergarm/DeepSeek-R1-0528-GGUF on 2x5090, 512GB DDR5-4800 x8 goal agent context 64k",
        typed="repo:ubergarm/DeepSeek-R1-0528-GGUF hardware:2x5090, 512GB DDR5-4800 x8 goal:agent context:64k",
    ),
    Verb(
        "check",
        "What is wrong with a command you use, and the fixed one",
        title="What is wrong with a command you use",
        form=(
            Option("command", "The command you run", True),
            Option("rig", "Your hardware", True),
            Option("repo", "Hugging Face repo, if the command does not name it"),
            Option("measured", "Measured speed, such as: tg 17.9 pp 420 at 4096"),
        ),
        line="llama-server -m Qwen3-235B-A22B-IQ4_K.gguf -ngl 99 -ot exps=CPU -c 32768",
        private=True,
    ),
    Verb(
        "validate",
        "Have an advice measured on registered hosts",
        (
            Option("advice", "The advice's address or id", True),
            Option("config", "Number of the config (the best ones if left out)", kind="number"),
            Option("mode", "validate: measure; tune: also search around the config", choices=("validate", "tune")),
            Option("minutes", "Of measuring, at most (10 if left out)", kind="number"),
        ),
        line="https://advisor.example/advice/MZ0Vb1p2QvK3x9dT4sLwGg config 1",
        typed="advice:https://advisor.example/advice/MZ0Vb1p2QvK3x9dT4sLwGg config:1",
    ),
    Verb(
        "result",
        "Put a benchmark you ran on the leaderboard",
        title="Put a benchmark you ran on the leaderboard",
        form=(
            Option("text", "The command, and what llama-sweep-bench or llama-bench printed", True),
            Option("rig", "The hardware it ran on", True),
            Option("repo", "Hugging Face repo with variant, if the command does not name it"),
            Option("source", "If somebody else measured it: the address where it was published"),
        ),
        line="llama-sweep-bench -hf OWNER/NAME:VARIANT …, and its table on the lines below",
        private=True,
    ),
    Verb(
        "leaderboard",
        "The fastest that was measured of a model",
        (
            Option("model", "The model's name, or a part of it", complete="model"),
            Option("gpu", "Only on this card, such as 3090"),
        ),
        line="deepseek-r1 on 3090",
        typed="model:deepseek-r1 gpu:3090",
    ),
    Verb(
        "hardware",
        "The rig that is remembered for you alone",
        actions=(
            Verb("set", "Remember my rig", (_RIG._replace(complete="hardware"),)),
            Verb("show", "Which rig is remembered"),
            Verb("forget", "Forget my rig, and delete my account here with all that belongs to it"),
        ),
        line="set 2x5090, Threadripper 7970X, 256GB DDR5-6000 x4",
        typed="set rig:2x5090, Threadripper 7970X, 256GB DDR5-6000 x4",
        private=True,
    ),
    Verb("token", "An API token for your account here, shown to you once", private=True, once=True),
    Verb("help", "What you can ask", private=True),
)  # fmt: skip
NAMES = tuple(verb.name for verb in VERBS)
OF_BUTTONS = {"commands": "advise", "keep": "result"}  # verbs that only buttons ask: the verb they belong to


def verb_named(name: str) -> Verb | None:
    """Return the verb of this name; None if there is none."""
    return next((verb for verb in VERBS if verb.name == name), None)


def example(verb: Verb, platform: str) -> str:
    """Return an example of what to type on a platform, such as `/advise repo:…` or `/advisor advise …`."""
    if platform == "slack":
        return f"{SLACK_COMMAND} {verb.name} {verb.line}".rstrip()
    return f"/{verb.name} {verb.typed}".rstrip()


def is_private(verb: str, words: Mapping[str, str]) -> bool:
    """Return whether only the asker may see the answer: it is personal, or about their saved rig."""
    known = verb_named(verb)
    if verb == "advise":
        return "hardware" not in words and "public" not in words
    return known is None or known.private


def shown(off: Sequence[str]) -> tuple[Verb, ...]:
    """Return the verbs that are not turned off."""
    return tuple(verb for verb in VERBS if verb.name not in off)
