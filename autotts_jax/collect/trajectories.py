"""Trajectories of one question, generated interval by interval and probed on the way.

Collection and live control both use this module, so that a controller that runs live sees exactly the tokens
that a collection with the same seed has recorded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from autotts_jax.checks import check_float, check_int, check_text
from autotts_jax.collect.answers import FENCE, Extractor, extract
from autotts_jax.collect.engine import (
    ChatMessage,
    Completion,
    Engine,
    EngineError,
    Finish,
    Request,
    Tokens,
    writes_whole,
)
from autotts_jax.collect.signals import (
    CONFIDENCES,
    EAT,
    FORCED,
    LOGPROB_MEAN,
    PROBE_HEDGE,
    PROBE_P_GEO,
    PROBE_P_MEAN,
    Windows,
    asked_signals,
    hedges,
    probabilities,
    rounded,
)
from autotts_jax.collect.thinking import TAGS
from autotts_jax.errors import InputError
from autotts_jax.replay.spelling import ERROR

BOX = "\\boxed{"
ANSWER = f"The final answer is {BOX}"
"""What forces an answer, after the end of the thinking or a new paragraph."""
QUESTION = "{question}"
"""The place of the question in `Sampling.prompt_template`."""
MOST_TOKENS = 32_768
"""T by default, where the model's context holds as much."""
_BEGINS_CODE = re.compile(rf"(^|\n){FENCE}[^\n]*\n\Z")
MAX_SEED = MAX_TOP_K = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How trajectories are sampled and probed (AutoTTS, arXiv 2605.08083; Parallel-Probe, 2602.03845).

    Attributes:
        interval: Δ, tokens between two probes.
        max_tokens: maximal tokens of a trajectory.
        temperature: sampling temperature of the trajectories; at 0 all would be the same.
        top_p: nucleus of the trajectories, as in `Request`.
        top_k: most likely tokens that they are sampled from; 0 for all.
        min_p: least share of the most likely token's probability that a token needs.
        seed: seed of everything that is drawn.
        system: system prompt; None for none.
        prompt_template: the user's message, with ``{question}`` in the place of the question; None for the
            question alone.
        suffix: text that is appended to a prefix to force an answer; None for the end of the thinking and
            `ANSWER`. Its part up to the end of the thinking is left out if the prefix has already ended it.
            What is forced ends with the box or the block of code that the suffix begins, or with the line.
        probe_tokens: maximal tokens of a forced answer.
        probes_per_prefix: forced answers of each prefix. One is the most likely answer; several are sampled
            at the trajectories' temperature, and their majority is the probe.
        probe_tail: tokens to generate after a forced answer, in which the signal ``probe_hedge`` is seen.
        signals: names of the signals to keep, of `autotts_jax.replay.SIGNALS`.

    Raises:
        InputError: a value is out of range, or no text that UTF-8 can write.
    """

    interval: int = 500
    max_tokens: int = MOST_TOKENS
    temperature: float = 0.7
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    system: str | None = None
    prompt_template: str | None = None
    suffix: str | None = None
    probe_tokens: int = 32
    probes_per_prefix: int = 1
    probe_tail: int = 0
    signals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("interval", "max_tokens", "probe_tokens", "probes_per_prefix"):
            object.__setattr__(self, name, check_int(name, getattr(self, name), 1))
        object.__setattr__(self, "probe_tail", check_int("probe_tail", self.probe_tail, 0))
        object.__setattr__(self, "signals", asked_signals(self.signals, self.probe_tail))
        for name in ("seed", "top_k"):
            object.__setattr__(self, name, check_int(name, getattr(self, name), None))
        for name in ("temperature", "top_p", "min_p"):
            object.__setattr__(self, name, check_float(name, getattr(self, name)))
        for name in ("system", "suffix"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        if not 0 <= self.temperature <= 2:
            raise InputError(f"temperature is {self.temperature:g}; it must be at least 0 and at most 2")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p:g}; it must be above 0 and at most 1")
        if not 0 <= self.top_k <= MAX_TOP_K:
            raise InputError(f"top_k is {self.top_k}; it must be at least 0, which is all tokens")
        if not 0 <= self.min_p <= 1:
            raise InputError(f"min_p is {self.min_p:g}; it must be at least 0 and at most 1")
        if self.prompt_template is not None and QUESTION not in self.prompt_template:
            raise InputError(
                f"the prompt template {self.prompt_template!r:.60} has no place for the question; write "
                f"{QUESTION} there"
            )

    @property
    def max_depth(self) -> int:
        """K, the largest depth that a trajectory can be read to."""
        return last_depth(self.max_tokens, self.interval)


def fitting_tokens(context: int | None) -> int:
    """Finds how long the trajectories of a model are by default.

    Args:
        context: tokens that a prompt and its completion may have together; None if unknown.

    Returns:
        Four fifths of the context, the rest of which is for the question, or `MOST_TOKENS` if that is less.
    """
    return MOST_TOKENS if context is None else max(min(context * 4 // 5, MOST_TOKENS), 1)


def last_depth(tokens: int, interval: int) -> int:
    """Computes the depth L + 1 at which a trajectory is read to its end.

    The trajectory has a probe at each multiple of Δ before its end, and at least one.

    Args:
        tokens: T, tokens of the trajectory.
        interval: Δ, tokens between two probes.

    Returns:
        The depth, at least 2.
    """
    return max(2, -(-tokens // interval))


def cut(text: str, stops: Iterable[str]) -> str:
    """Cuts a text off before the first stop string in it.

    Args:
        text: the text.
        stops: the strings.

    Returns:
        What stands before; the whole text if it has none of them.
    """
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]


def majority(answers: Sequence[str]) -> str:
    """Finds the most frequent of some forced answers.

    Args:
        answers: the answers, at least one.

    Returns:
        The answer; of several that are as frequent, the one that came first.
    """
    return Counter(answers).most_common(1)[0][0]


@dataclasses.dataclass(frozen=True)
class Probe:
    """Forced answers of a prefix.

    Attributes:
        answer: the answer, ``ERR`` if none could be extracted; the majority of several.
        answers: the answer of each forced completion.
        tokens: tokens that were generated for them.
        signals: signals of the forced answers, by name, as far as the engine told them; None while they are
            not forced, because the answer is in the text.
    """

    answer: str
    answers: tuple[str, ...]
    tokens: int
    signals: Mapping[str, float] | None = None


def check_differing(sampling: Sampling) -> None:
    """Checks that several trajectories of a question would not all be the same.

    Args:
        sampling: how they are sampled.

    Raises:
        InputError: they would.
    """
    if sampling.temperature == 0:
        raise InputError("temperature is 0; it must be above 0 for branches to differ")


class ContextError(InputError):
    """A question and its longest trajectory do not fit into the model's context."""


class Trajectory:
    """One trajectory as far as it was generated.

    Attributes:
        limit: tokens after which it is cut off.
        thought: whether it has ended its thinking, or has none.
        tokens: its tokens so far.
        ended: why it has ended; None while it has not.
        probes: the probes so far, by depth.
        final: its final answer; None until it is extracted or forced.
        signals: signals of each interval, by name, as far as the engine told them.
        windows: the confidence of its tokens.
    """

    def __init__(self, limit: int, thought: bool) -> None:
        self.limit = limit
        self.tokens: Tokens = ()
        self.ended: Finish | None = None
        self.thought = thought
        self.probes: dict[int, Probe] = {}
        self.final: Probe | None = None
        self.signals: list[dict[str, float]] = []
        self.windows = Windows()


@dataclasses.dataclass
class Usage:
    """What the engine did.

    Attributes:
        generated: tokens of trajectories.
        forced: tokens of forced answers, and of what is generated after them for signals.
        probes: number of forced answers.
        prompted: tokens of all prompts.
        cached: tokens of prompts that were in the prefix cache.
    """

    generated: int = 0
    forced: int = 0
    probes: int = 0
    prompted: int = 0
    cached: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Adds two usages field by field."""
        return Usage(*map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))


class _Forced(NamedTuple):
    """A forced answer.

    Attributes:
        answer: the answer.
        tokens: its tokens.
        logprobs: their log-probabilities; empty if they are not told.
        entropies: entropies in the places of its first tokens; empty likewise.
        request: what it was asked for with.
    """

    answer: str
    tokens: Tokens
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]
    request: Request


class Trajectories:
    """Trajectories of one question, by the number of the branch.

    The tokens of a branch depend on the seed, the question, its number and nothing else, or are given.

    Args:
        engine: the model.
        question: the question, or a conversation that ends with it. `Sampling.system` comes before both.
        sampling: how trajectories are sampled and probed.
        extractor: finds the answer in a text.
        cancel: once this is set, requests are dropped and methods raise `Cancelled`.
        given: the tokens of the branches, if they exist already instead of being sampled.
        stop: strings with which a branch ends.
        on_text: called with what is added to the text of the first branch.

    Attributes:
        usage: what the engine did so far.
        model: the model's name.
        thinking_begun: whether the prompt has begun the thinking.

    Raises:
        ContextError: the question and the longest trajectory do not fit into the model's context.
        InputError: the model's chat template refuses the conversation.
    """

    def __init__(
        self,
        engine: Engine,
        question: str | tuple[ChatMessage, ...],
        sampling: Sampling,
        extractor: Extractor,
        cancel: threading.Event | None = None,
        given: Mapping[int, Tokens] | None = None,
        stop: tuple[str, ...] = (),
        on_text: Callable[[str], None] | None = None,
    ):
        self._engine = engine
        self.model = engine.model
        self._sampling = sampling
        self._extractor = extractor
        self._cancel = cancel
        self._given = given
        self._whole = writes_whole(engine)
        self._stop = stop
        self._on_text = on_text
        self._told = 0
        self._question = question
        *before, last = (ChatMessage("user", question),) if isinstance(question, str) else question
        system = (ChatMessage("system", sampling.system),) if sampling.system else ()
        asked = ChatMessage("user", (sampling.prompt_template or QUESTION).replace(QUESTION, last.content))
        self._prompt = engine.tokenizer.chat((*system, *before, asked))
        self._thinking = engine.tokenizer.thinking or TAGS
        end = self._thinking.end
        self._thinks = engine.tokenizer.thinking is not None or end in (sampling.suffix or "")
        if engine.tokenizer.decode(self._prompt).rstrip().endswith(end):
            self._thinks = False  # the prompt has ended it
        begun = engine.tokenizer.decode(self._prompt).rstrip()
        self.thinking_begun = self._thinks and bool(start := self._thinking.start) and begun.endswith(start)
        self._boxed = (sampling.suffix or ANSWER).endswith(BOX)
        self._fenced = _BEGINS_CODE.search(sampling.suffix or "") is not None
        self._signals = frozenset(sampling.signals)
        self._branches: dict[int, Trajectory] = {}
        self.usage = Usage()
        suffix = len(engine.tokenizer.encode(self._suffix("", not self._thinks)))
        needed = (
            len(self._prompt) + sampling.max_tokens + suffix + sampling.probe_tokens + sampling.probe_tail
        )
        if needed > engine.max_model_len:
            most = sampling.max_tokens - (needed - engine.max_model_len)
            way_out = f"lower max_tokens to {most}" if most >= 1 else "shorten the question"
            raise ContextError(
                f"the question has {len(self._prompt)} tokens, which makes {needed} with the longest "
                f"trajectory and its probe, and {engine.model} takes {engine.max_model_len}; {way_out}"
            )

    def __getitem__(self, branch: int) -> Trajectory:
        """Returns the trajectory of a branch, an empty one at first."""
        return self._branches.setdefault(branch, Trajectory(self._sampling.max_tokens, not self._thinks))

    def depth(self, branch: int) -> int:
        """Counts the intervals of a branch.

        Args:
            branch: number of the branch.

        Returns:
            The intervals generated so far; the last may be shorter than Δ.
        """
        return -(-len(self[branch].tokens) // self._sampling.interval)

    def text(self, branch: int) -> str:
        """Returns the text of a branch.

        Args:
            branch: number of the branch.

        Returns:
            The text generated so far.
        """
        return self._engine.tokenizer.decode(self[branch].tokens)

    def answered(self, branch: int, depth: int, answer: str) -> str:
        """Returns the text of a branch up to a depth, with its answer there.

        Args:
            branch: number of the branch.
            depth: the depth, from 1.
            answer: the answer.

        Returns:
            The text. If the branch had not ended there by itself, the suffix that forced the answer follows,
            and the answer.
        """
        trajectory = self[branch]
        if trajectory.ended is Finish.stop and depth >= self.depth(branch):
            return self.text(branch)
        written = self._engine.tokenizer.decode(trajectory.tokens[: depth * self._sampling.interval])
        suffix = self._suffix(written, not self._thinks or self._thinking.end in written)
        if self._fenced and (probe := self.at(branch, depth)):
            return f"{written}{suffix}{probe.answer}\n{FENCE}"
        return written + suffix + (f"{answer}}}" if self._boxed else f" {answer}")

    def signal(self, branch: int, name: str, depth: int) -> float | None:
        """Returns a signal of a branch at a depth that has an answer.

        Args:
            branch: number of the branch.
            name: the signal, one of `Sampling.signals`.
            depth: the depth, from 1. A branch of one interval shows the same at depth 2.

        Returns:
            The value; None if the engine did not tell it.
        """
        if name in FORCED:
            probe = self.at(branch, depth)
            return (probe.signals or {}).get(name) if probe else None
        intervals = self[branch].signals
        if not intervals or len(intervals) != self.depth(branch):
            return None  # an engine that returns text without tokens ends some intervals early
        return intervals[min(depth, len(intervals)) - 1].get(name)

    def read(self, upto: Mapping[int, int], probe: bool = True) -> None:
        """Generates branches up to some depth or to their ends; those that end get their final answer.

        All branches advance as one batch, and the probe of a prefix runs beside its continuation.

        Args:
            upto: the depth of each branch.
            probe: whether to force an answer at every depth on the way.

        Raises:
            Cancelled: ``cancel`` was set.
            EngineError: the engine cannot continue.
        """
        before = {b: self.depth(b) for b in upto}
        # At the largest depth an engine that returns text without tokens may be some short of the end.
        whole = {b for b, depth in upto.items() if depth >= self._sampling.max_depth}
        while True:
            going = [b for b in upto if not self[b].ended]
            short = [b for b in going if b in whole or self.depth(b) < upto[b]]
            passed = [b for b in going if probe and self.depth(b) > before[b]]
            forced = [b for b in passed if self.depth(b) not in self[b].probes]
            if not short and not forced:
                break
            self._step(short, forced)
        self.force([b for b in upto if self[b].ended])

    def force(self, branches: Iterable[int]) -> None:
        """Forces an answer of branches at their present depth, unless they have one.

        A branch that has ended gets its final answer instead: the one in the text after its thinking, or a
        forced one if it was cut off.

        Args:
            branches: numbers of the branches.

        Raises:
            Cancelled: ``cancel`` was set.
            EngineError: the engine cannot continue.
        """
        for b in branches:
            trajectory = self[b]
            if (trajectory.ended is Finish.stop or self._whole) and trajectory.final is None:
                thought, said = self._thinking.split(self.text(b))
                cut_off = not thought and said.startswith(self._thinking.start or "\0")
                answer = ERROR if cut_off else extract(cut(said, self._stop), self._extractor)
                trajectory.final = Probe(answer, (answer,), 0)
        # What is forced at the end of a branch that has ended by itself does not replace its answer.
        self._step([], [b for b in branches if not self._complete(self.at(b, self.depth(b)))])

    def at(self, branch: int, depth: int) -> Probe | None:
        """Returns the answer of a branch at a depth.

        Args:
            branch: number of the branch.
            depth: the depth, from 1.

        Returns:
            The probe; at the branch's last depth and beyond, its final answer (also at depth 1 if the branch
            ended there, since every branch has a probe). None if no answer was forced there.
        """
        trajectory = self[branch]
        over = trajectory.ended and depth >= self.depth(branch)
        return trajectory.final if over else trajectory.probes.get(depth)

    def _step(self, extended: Sequence[int], forced: Sequence[int]) -> None:
        """Generates an interval of some branches, and forces answers of some as they are before it."""
        count = self._sampling.probes_per_prefix
        sampled = [self._next_interval(b) for b in extended] if self._given is None else []
        probes = [self._forced(b, draw) for b in forced for draw in range(count)]
        thinking = [b for b in forced if EAT in self._signals and not self[b].thought]
        ends = [self._forced_end(b) for b in thinking]
        completions = self._generate([*sampled, *probes, *ends])
        intervals, completions = completions[: len(sampled)], completions[len(sampled) :]
        self.usage.generated += sum(len(interval.tokens) for interval in intervals)
        if self._given is not None:
            intervals = [self._given_interval(b, self._given[b]) for b in extended]
        answers = self._finish_boxes(probes, completions[: len(probes)])
        after = self._after(answers[::count])
        entropies = dict(zip(thinking, completions[len(probes) :], strict=True))
        for i, b in enumerate(forced):
            drawn = answers[i * count : (i + 1) * count]
            self._keep_probe(b, drawn, after[i] if after else None, entropies.get(b))
        for b, interval in zip(extended, intervals, strict=True):
            self._keep_interval(b, interval)

    def _keep_interval(self, branch: int, completion: Completion) -> None:
        trajectory = self[branch]
        if not trajectory.thought:
            # The mark may begin in the interval before; each of its letters takes at most one token.
            end = self._thinking.end
            tail = trajectory.tokens[1 - len(end) :] + completion.tokens
            trajectory.thought = end in self._engine.tokenizer.decode(tail)
        trajectory.tokens += completion.tokens
        if completion.tokens:
            trajectory.signals.append(self._interval_signals(trajectory, completion))
        if completion.finish is Finish.stop or len(trajectory.tokens) >= trajectory.limit:
            trajectory.ended = completion.finish
        if self._whole:  # whatever it wrote is all
            trajectory.ended = completion.finish
        if self._stop and any(stop in self.text(branch) for stop in self._stop):
            trajectory.ended = Finish.stop
        if self._on_text is not None and branch == 0:
            self._tell(self._on_text)

    def _tell(self, on_text: Callable[[str], None]) -> None:
        """Tells what is new of the text of the first branch."""
        text = self.text(0)
        # The bytes of a letter may come with two tokens.
        text = text if self[0].ended else text.rstrip("\ufffd")
        more, self._told = text[self._told :], max(len(text), self._told)
        if more:
            on_text(more)

    def _interval_signals(self, trajectory: Trajectory, completion: Completion) -> dict[str, float]:
        told: dict[str, float] = {}
        if completion.logprobs and LOGPROB_MEAN in self._signals:
            told[LOGPROB_MEAN] = math.fsum(completion.logprobs) / len(completion.logprobs)
        if completion.confidences and CONFIDENCES & self._signals:
            told |= trajectory.windows.add(completion.confidences)
        return {name: rounded(value) for name, value in told.items() if name in self._signals}

    def _keep_probe(
        self, branch: int, forced: Sequence[_Forced], after: Completion | None, end: Completion | None
    ) -> None:
        trajectory, answers = self[branch], tuple(one.answer for one in forced)
        signals = self._forced_signals(forced, after, end)
        tokens = sum(len(one.tokens) for one in forced)
        if trajectory.final is not None:
            trajectory.final = dataclasses.replace(trajectory.final, signals=signals)
        elif trajectory.ended:
            trajectory.final = Probe(majority(answers), answers, tokens, signals)
        else:
            trajectory.probes[self.depth(branch)] = Probe(majority(answers), answers, tokens, signals)
        self.usage.probes += len(forced)
        self.usage.forced += tokens + sum(len(beside.tokens) for beside in (after, end) if beside)

    def _forced_signals(
        self, forced: Sequence[_Forced], after: Completion | None, end: Completion | None
    ) -> dict[str, float]:
        told: dict[str, float] = {}
        if all(one.logprobs for one in forced):
            told |= probabilities([logprob for one in forced for logprob in one.logprobs])
        if after:
            told[PROBE_HEDGE] = float(hedges(after.text))
        entropies = forced[0].entropies if end is None else end.entropies
        if entropies:
            told[EAT] = entropies[0]
        return {name: rounded(value) for name, value in told.items() if name in self._signals}

    def _complete(self, probe: Probe | None) -> bool:
        """Whether a probe has all that it is asked for."""
        return probe is not None and (probe.signals is not None or not FORCED & self._signals)

    # --- requests ------------------------------------------------------------------------------------

    def _next_interval(self, branch: int) -> Request:
        return Request(
            prompt=self._prompt + self[branch].tokens,
            max_tokens=self._next_tokens(branch),
            temperature=self._sampling.temperature,
            top_p=self._sampling.top_p,
            top_k=self._sampling.top_k,
            min_p=self._sampling.min_p,
            seed=self._seed(branch, self.depth(branch)),
            stop=self._stop,
            logprobs=bool((CONFIDENCES | {LOGPROB_MEAN}) & self._signals),
            top_logprobs=bool(CONFIDENCES & self._signals),
        )

    def _next_tokens(self, branch: int) -> int:
        """Tokens that the next interval of a branch has at most."""
        written, interval = len(self[branch].tokens), self._sampling.interval
        if self._whole:
            return self[branch].limit
        # Up to the next multiple of Δ: an engine that returns text without tokens may be off by some.
        return min(interval - written % interval, self[branch].limit - written)

    def _given_interval(self, branch: int, given: Tokens) -> Completion:
        """The next interval of a branch that exists already."""
        written = len(self[branch].tokens)
        tokens = given[written : written + self._next_tokens(branch)]
        finish = Finish.stop if written + len(tokens) == len(given) else Finish.length
        return Completion(tokens, self._engine.tokenizer.decode(tokens), finish)

    def _forced(self, branch: int, draw: int) -> Request:
        return Request(
            prompt=self._prompt + self._read_tokens(branch) + self._suffix_of(branch),
            max_tokens=self._sampling.probe_tokens,
            temperature=self._sampling.temperature if self._sampling.probes_per_prefix > 1 else 0.0,
            top_p=self._sampling.top_p,
            top_k=self._sampling.top_k,
            min_p=self._sampling.min_p,
            seed=self._seed(branch, self.depth(branch), draw),
            stop=("}" if self._boxed else FENCE if self._fenced else "\n",),
            logprobs=bool({PROBE_P_MEAN, PROBE_P_GEO, EAT} & self._signals),
            top_logprobs=EAT in self._signals and draw == 0 and self[branch].thought,
        )

    def _forced_end(self, branch: int) -> Request:
        """Has the model say what it would say next if its thinking ended here."""
        trajectory, tokenizer = self[branch], self._engine.tokenizer
        closing = self._thinking.closing(tokenizer.decode(trajectory.tokens[-len(self._thinking.close) :]))
        prompt = self._prompt + self._read_tokens(branch) + tokenizer.encode(closing)
        return Request(prompt, max_tokens=1, logprobs=True, top_logprobs=True)

    def _read_tokens(self, branch: int) -> Tokens:
        """The tokens of a branch without the one that ends a text, after which nothing can be forced."""
        tokens = self[branch].tokens
        ended = self[branch].ended is Finish.stop and not self._engine.tokenizer.decode(tokens[-1:])
        return tokens[:-1] if ended else tokens

    def _suffix_of(self, branch: int) -> Tokens:
        tokenizer, trajectory = self._engine.tokenizer, self[branch]
        tail = tokenizer.decode(trajectory.tokens[-len(self._thinking.close) :])
        return tokenizer.encode(self._suffix(tail, trajectory.thought))

    def _suffix(self, written: str, thought: bool) -> str:
        """What forces an answer after a text."""
        if (suffix := self._sampling.suffix) is not None:
            return suffix.rpartition(self._thinking.end)[2] if thought else suffix
        return ("\n\n" if thought else self._thinking.closing(written)) + ANSWER

    def _finish_boxes(self, requests: Sequence[Request], completions: Sequence[Completion]) -> list[_Forced]:
        """What was forced; a box that contains braces is generated to its end."""
        prompts = [request.prompt for request in requests]
        texts = [completion.text for completion in completions]
        tokens = [completion.tokens for completion in completions]
        logprobs = [completion.logprobs or () for completion in completions]
        silent: set[int] = set()  # what has no more to say
        while rest := [
            i
            for i, request in enumerate(requests)
            if self._boxed and texts[i].endswith("}") and _open_braces(texts[i]) >= 0
            if len(tokens[i]) < request.max_tokens and i not in silent
        ]:
            more = [
                dataclasses.replace(
                    requests[i],
                    prompt=prompts[i] + tokens[i],
                    max_tokens=requests[i].max_tokens - len(tokens[i]),
                )
                for i in rest
            ]
            for i, completion in zip(rest, self._generate(more), strict=True):
                texts[i] += completion.text
                tokens[i] += completion.tokens
                logprobs[i] += completion.logprobs or ()
                if not completion.tokens:
                    silent.add(i)
        lead = f"{FENCE}\n" if self._fenced else self._suffix("", thought=True).rpartition("\n")[2]
        return [
            _Forced(
                extract(lead + texts[i], self._extractor),
                tokens[i],
                logprobs[i],
                completions[i].entropies or (),
                request,
            )
            for i, request in enumerate(requests)
        ]

    def _after(self, forced: Sequence[_Forced]) -> list[Completion]:
        """What the model writes after forced answers; nothing if nobody wants to know."""
        if PROBE_HEDGE not in self._signals:
            return []
        tail = self._sampling.probe_tail
        return self._generate([Request(one.request.prompt + one.tokens, tail) for one in forced])

    def _generate(self, requests: Sequence[Request]) -> list[Completion]:
        completions = self._engine.generate(requests, self._cancel)
        if len(completions) != len(requests):
            raise EngineError(
                f"the engine of {self._engine.model} gave {len(completions)} completions for {len(requests)} "
                "requests; check it with autotts_jax.testing.check_engine"
            )
        for request, completion in zip(requests, completions, strict=True):
            self._check(request, completion)
        self.usage.prompted += sum(len(request.prompt) for request in requests)
        self.usage.cached += sum(completion.cached for completion in completions)
        return completions

    def _check(self, request: Request, completion: Completion) -> None:
        """Raises an `EngineError` for a completion that no such request has.

        One of no tokens, for example, would be requested forever.
        """
        count, cached = len(completion.tokens), completion.cached
        told = (completion.logprobs, completion.confidences, completion.entropies)
        if count > request.max_tokens or (count == 0 and completion.finish is not Finish.stop):
            problem = (
                f"{count} tokens, with the reason {completion.finish!r}, where 1 to {request.max_tokens} "
                "were asked for"
            )
        elif unreal := [value for values in told for value in values or () if not math.isfinite(value)]:
            problem = f"a log-probability, confidence or entropy of {unreal[0]}"
        elif not 0 <= cached <= len(request.prompt):
            problem = f"{cached} cached tokens of a prompt of {len(request.prompt)}"
        else:
            return
        raise EngineError(
            f"the engine of {self._engine.model} gave {problem}; check it with "
            "autotts_jax.testing.check_engine"
        )

    def _seed(self, *what: int) -> int:
        key = repr((self._sampling.seed, self._question, *what)).encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()) & MAX_SEED


def _open_braces(text: str) -> int:
    return text.count("{") - text.count("}")
